package spans

import (
	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
)

// SchemaURL is that of the semantic conventions by which attributes are called that are not Waybill's own.
const SchemaURL = semconv.SchemaURL

// Scope is the name of the instrumentation.
const Scope = "github.com/waybill-dev/waybill"

// Attributes of spans, of OpenTelemetry's semantic conventions.
var (
	System           = semconv.MessagingSystemKafka
	Send             = semconv.MessagingOperationTypeSend
	Process          = semconv.MessagingOperationTypeProcess
	OperationName    = semconv.MessagingOperationName
	Destination      = semconv.MessagingDestinationName
	MessageKey       = semconv.MessagingKafkaMessageKey
	ErrorType        = semconv.ErrorTypeKey
	ServiceName      = semconv.ServiceName
	ServiceNamespace = semconv.ServiceNamespace
	ServiceVersion   = semconv.ServiceVersion
	HTTPMethod       = semconv.HTTPRequestMethodKey
	HTTPStatus       = semconv.HTTPResponseStatusCode
	URLTemplate      = semconv.URLTemplate
	ServerAddress    = semconv.ServerAddress
)

// Attributes of spans that are Waybill's own.
const (
	OrderID    = attribute.Key("waybill.order.id")
	OrderState = attribute.Key("waybill.order.state")
	Parent     = attribute.Key("waybill.order.parent")
	Workflow   = attribute.Key("waybill.workflow.name")
	Version    = attribute.Key("waybill.workflow.version")
	Step       = attribute.Key("waybill.step.name")
	StepKind   = attribute.Key("waybill.step.kind")
	StepState  = attribute.Key("waybill.step.state")
	Attempt    = attribute.Key("waybill.attempt")
	Undo       = attribute.Key("waybill.undo")
	Agent      = attribute.Key("waybill.agent")
	Operation  = attribute.Key("waybill.operation")
	Child      = attribute.Key("waybill.child.id")
)
