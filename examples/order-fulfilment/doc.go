// Package fulfilment is the order example of the Scheduler Agent Supervisor
// pattern: a workflow that reserves goods, charges the customer and ships, and
// the three agents that do it.
//
// The agents call no external service. Each answer follows from the request's
// idempotency key alone, as that of a real service should: a repeated request
// gives the same reservation, payment or shipment, and not a second one.
//
// `waybill dev` runs all of it. [Serve] runs the agents against any Kafka.
package fulfilment

import _ "embed"

// Workflow is the definition, as it stands in workflow.yaml.
//
//go:embed workflow.yaml
var Workflow []byte
