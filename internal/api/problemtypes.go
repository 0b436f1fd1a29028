package api

import (
	"errors"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
)

// problemType says which problem it is, for programs: it never changes, as what the detail says does.
type problemType string

const (
	orderIDTaken    problemType = "order-id-taken"
	upgradeNeeded   problemType = "upgrade-needed"
	refusedByOwner  problemType = "refused"
	wouldBeRejected problemType = "would-be-rejected"
	laneBehind      problemType = "lane-behind"
	tooManyLogIns   problemType = "too-many-log-ins"
	tooManyStreams  problemType = "too-many-streams"
	tooManyActs     problemType = "too-many-acts"
	notReady        problemType = "not-ready"
	tooBusy         problemType = "busy"
	outcomeUnknown  problemType = "outcome-unknown"
	kafkaSilent     problemType = "kafka-silent"
)

// problemTypes are all that there are; docs/api.md has them. The first of a status is that of problems of it which say no
// other.
var problemTypes = []struct {
	name   problemType
	status int
	means  string
}{
	{"malformed", http.StatusBadRequest, "The request cannot be read; its body is no JSON, for one"},
	{"unauthenticated", http.StatusUnauthorized, "Who asks is not known: [security.md](security.md#roles)"},
	{"forbidden", http.StatusForbidden, "Who asks may not do that, or it came from a page of another origin"},
	{"not-found", http.StatusNotFound, "It is not there, or who asks may not see it"},
	{"method-not-allowed", http.StatusMethodNotAllowed, "The path takes other methods; Allow has them"},
	{"not-acceptable", http.StatusNotAcceptable, "Answers are JSON, and Accept takes none"},
	{"request-timeout", http.StatusRequestTimeout, "The body did not come in time"},
	{"conflict", http.StatusConflict, "It does not go with how things stand; the detail says why, and what to do"},
	{orderIDTaken, http.StatusConflict, "Another submission made the order of this id"},
	{refusedByOwner, http.StatusConflict, "The owner of the order, schedule, limit or partition refused the command; the detail says why"},
	{upgradeNeeded, http.StatusConflict, "An [upgrade](operations.md#upgrading) must be finished first, or an older release still runs"},
	{"gone", http.StatusGone, "The order has ended, and is not kept any more; its id stays taken"},
	{"too-large", http.StatusRequestEntityTooLarge, "The body is larger than is taken: pass a reference to what is large"},
	{"unsupported-media-type", http.StatusUnsupportedMediaType, "The body is of no type that is read; send application/json"},
	{"elsewhere", http.StatusMisdirectedRequest, "Another instance answers that (`--standby owned`), or another host name is to be asked for"},
	{"invalid", http.StatusUnprocessableEntity, "Something in the request is not as OpenAPI says, or contradicts itself; errors has where"},
	{wouldBeRejected, http.StatusUnprocessableEntity, "The order would be Rejected: its workflow is not registered, or takes no such input"},
	{laneBehind, http.StatusTooManyRequests, "What was submitted before waits for too long; come again"},
	{tooManyLogIns, http.StatusTooManyRequests, "Too many log-ins of the address failed"},
	{tooManyStreams, http.StatusTooManyRequests, "Who asks follows as many orders and lists as one caller may"},
	{tooManyActs, http.StatusTooManyRequests, "The instance carries out as many bulk acts as it may; come again once one has ended, or stop one"},
	{"broken", http.StatusInternalServerError, "A fault of the instance, which its log has"},
	{"unavailable", http.StatusServiceUnavailable, "It cannot be done now; the detail says why"},
	{notReady, http.StatusServiceUnavailable, "The instance starts, stops, or has not read so far: come again in a moment, or ask another"},
	{tooBusy, http.StatusServiceUnavailable, "So many are answered, wait or follow as may at a time"},
	{kafkaSilent, http.StatusServiceUnavailable, "Kafka did not take it, or tells nothing, in time. A submission may be on Kafka all the same: repeat it with its id"},
	{outcomeUnknown, http.StatusServiceUnavailable, "It is on Kafka, and will act; what becomes of it is not known yet. Repeat it with its Idempotency-Key, or the signal's id"},
}

// uri is the type of a problem document.
func (t problemType) uri() string { return "urn:waybill:problem:" + string(t) }

// typeOf is the type of a problem that says none itself.
func typeOf(status int) string {
	for _, t := range problemTypes {
		if t.status == status {
			return t.name.uri()
		}
	}
	return "about:blank"
}

// typed says which problem an error is that is made for one answer.
func typed(t problemType, err error) error {
	if model, is := errors.AsType[*huma.ErrorModel](err); is {
		model.Type = t.uri()
	}
	return err
}
