// Package fulfilment is the order example of the Scheduler Agent Supervisor
// pattern: a workflow that reserves goods, charges the customer and ships, and
// the three agents that do it.
//
// [Inventory], [Payments] and [Shipping] call no external service. Each answer
// follows from the request's idempotency key alone, as that of a real service
// should: a repeated request gives the same reservation, payment or shipment,
// and not a second one. `waybill dev` runs the workflow with them, and [Serve]
// runs them against any Kafka.
//
// [PaymentsAt] and [ShippingConfig] are the same agents with services behind
// them, those of package services. The stories run them while the services fail:
//
//	go run ./examples/order-fulfilment/stories
package fulfilment

import _ "embed"

// Workflow is the definition, as it stands in workflow.yaml.
//
//go:embed workflow.yaml
var Workflow []byte

// ShippingConfig describes the agent shipping to `waybill agent http`. It needs
// the variable CARRIER_URL.
//
//go:embed shipping.yaml
var ShippingConfig []byte
