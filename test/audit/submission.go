package audit

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/test/oracle"
)

// Submitted holds the event with which an order began, in a journal of a format, against its submission, as [Settle] does:
// for who decides without topics. It says what is wrong.
func Submitted(k Kafka, format int, r *kgo.Record, e *events.Event) (wrong []string) {
	s := &settlement{Kafka: k, format: map[int32]int{r.Partition: format}}
	s.report = func(text string, args ...any) { wrong = append(wrong, fmt.Sprintf(text, args...)) }
	m := read(r, k.Topics)
	switch a := (&account{id: m.order, partition: r.Partition}); {
	case m.submission == nil:
		s.report("%s cannot be read, and led to %s: %s", placeOf(r), e.Type, m.unreadable)
	case e.Type == events.OrderAccepted:
		s.accepted(a, placeOf(r), m.submission, e)
	default:
		s.rejected(placeOf(r), m.submission, e)
	}
	return wrong
}

// accepted holds the acceptance of an order against its submission.
func (s *settlement) accepted(a *account, at place, first *submission, e *events.Event) {
	wrong := s.wrong(first, e)
	if s.doubted {
		wrong = slices.DeleteFunc(wrong, func(what string) bool { return what == passed })
	}
	if len(wrong) > 0 {
		s.report("%s was accepted as order %q, and must be rejected: %s", at, a.id, strings.Join(wrong, ", "))
		return
	}
	deadline := events.Time(first.Deadline)
	if flow := s.Flow(e.Workflow, e.Version); first.Deadline.IsZero() && flow != nil && flow.Deadline > 0 {
		deadline = events.Time(e.At.Add(time.Duration(flow.Deadline)))
	}
	other := ""
	switch {
	case e.Workflow != first.Workflow, first.Version != 0 && e.Version != first.Version, e.Version < 1:
		other = "another workflow"
	case hash(e.Input) != first.input:
		other = "another input"
	case e.ReplyTo != first.ReplyTo && e.ReplyTo != "":
		other = "another topic for its status messages"
	case e.Priority != first.Priority:
		other = "another priority"
	case !e.Deadline.Equal(deadline):
		other = "another deadline"
	case e.Traceparent != first.traceparent:
		other = "another traceparent"
	case s.format[a.partition] >= events.BaggageFormat && e.Tracestate != first.tracestate, s.format[a.partition] < events.BaggageFormat && e.Tracestate != "":
		other = "another tracestate"
	case s.format[a.partition] >= events.BaggageFormat && e.Baggage != first.baggage, s.format[a.partition] < events.BaggageFormat && e.Baggage != "":
		other = "other baggage"
	case e.By != cut(first.By, nameLength) && (e.By != "" || s.format[a.partition] >= events.ApproveFormat):
		other = "another who submitted it"
	case !slices.Equal(e.Submitters, first.Submitters) && (e.Submitters != nil || s.format[a.partition] >= events.ApproveFormat):
		other = "others who submitted what it does again"
	case !s.labelled(first, e):
		other = "other labels"
	case e.RerunOf != first.RerunOf:
		other = "another order that it does again"
	}
	if other != "" {
		s.report("%s was accepted as order %q with %s", at, a.id, other)
	}
	if s.format[a.partition] >= events.ApproveFormat && e.By != "" || e.Actor != nil {
		s.signed(a, at, first.signature, e)
	}
	if e.ReplyTo == "" && first.ReplyTo != "" && first.ReplyTo != s.Topics.Status {
		a.refusedTo = cut(first.ReplyTo, nameLength)
	}
}

// rejected holds the rejection of an order against its submission.
func (s *settlement) rejected(at place, first *submission, e *events.Event) {
	wrong := s.wrong(first, e)
	holds := s.Retired != nil && s.Retired(first.Workflow, first.Version) && strings.Contains(e.Reason, " is retired") // since when is for who knows more
	for _, what := range wrong {
		holds = holds || strings.Contains(e.Reason, what) || what == input && strings.HasPrefix(e.Reason, "/")
	}
	if !holds {
		s.report("%s was rejected: %s; what is wrong with it: %q", at, e.Reason, wrong)
	}
	if e.Workflow != cut(first.Workflow, nameLength) || e.Version != max(first.Version, 0) || e.ReplyTo != cut(first.ReplyTo, nameLength) && e.ReplyTo != "" {
		s.report("%s was rejected as workflow %q, version %d, with status messages to %q", at, e.Workflow, e.Version, e.ReplyTo)
	}
}

// wrong says for what a submission must be rejected at the time of an event: a
// part of the reason.
func (s *settlement) wrong(first *submission, e *events.Event) (all []string) {
	is := func(wrong bool, what string) {
		if wrong {
			all = append(all, what)
		}
	}
	is(first.size > events.MaxValue, "bytes; at most")
	if first.problem != "" {
		return append(all, first.problem) // what follows was not read
	}
	switch first.Priority {
	case "", events.High, events.Normal, events.Low:
	default:
		is(true, "priority")
	}
	is(first.Workflow == "", "no workflow is named")
	is(first.Version < 0, "versions begin with 1")
	flow := s.flow(first, e)
	is(first.Workflow != "" && first.Version >= 0 && flow == nil, "workflow ") // the end may be cut off
	is(!first.Deadline.IsZero() && !e.At.Before(first.Deadline), passed)
	is(flow != nil && !s.fits(flow, first), input)
	if flow != nil {
		keyed, judged := flow.Keyed(first.Input)
		if judged = judged && (len(first.Input) > 0 || first.input == 0); !judged {
			keyed = e.Type != events.OrderRejected
		}
		is(!keyed, "concurrency.key")
	}
	is(first.RerunOf != "" && events.CheckOrderID(first.RerunOf) != nil, "rerunOf")
	is(flow != nil && !labelsFit(flow, first.Labels) || s.earlier(first, e), "label")
	return all
}

// earlier says whether a submission that was rejected cannot have its labels by a version of its
// workflow that was the newest once.
func (s *settlement) earlier(first *submission, e *events.Event) bool {
	newest := s.newest(first.Workflow)
	if first.Version != 0 || newest == nil || e.Type != events.OrderRejected {
		return false
	}
	for version := range newest.Version {
		if flow := s.Flow(first.Workflow, version+1); flow != nil && !labelsFit(flow, first.Labels) {
			return true
		}
	}
	return false
}

// labelled says whether an order has the labels of its submission, and no others but what its
// workflow finds it by.
func (s *settlement) labelled(first *submission, e *events.Event) bool {
	for name, value := range first.Labels {
		if is, has := e.Labels[name]; !has || is != value {
			return false
		}
	}
	flow := s.Flow(e.Workflow, e.Version)
	for name := range e.Labels {
		if _, given := first.Labels[name]; !given && (flow == nil || flow.Search[name] == "") {
			return false
		}
	}
	return true
}

// labelsFit says whether an order of a workflow may have the labels.
func labelsFit(flow *oracle.Flow, labels map[string]string) bool {
	for name := range labels {
		if flow.Search[name] != "" {
			return false
		}
	}
	return events.CheckLabels(labels) == nil
}

// input is what is wrong where the workflow refuses it. The reason names it, or a
// member of it.
const input = "input"

// passed is what is wrong with a deadline, unless the clock is not believed.
const passed = "has passed"

// flow is the workflow of a submission.
func (s *settlement) flow(first *submission, e *events.Event) *oracle.Flow {
	switch {
	case first.Version != 0:
		return s.Flow(first.Workflow, first.Version)
	case e.Type == events.OrderAccepted: // what was the newest then
		return s.Flow(first.Workflow, e.Version)
	}
	return s.newest(first.Workflow)
}

func (s *settlement) newest(name string) *oracle.Flow {
	if flow := s.Flow(name, 0); flow != nil {
		return flow
	}
	return s.Flow(name, 1)
}

// schematic says whether the workflow of a submission wants a certain input.
func (s *settlement) schematic(first *submission) bool {
	flow := s.newest(first.Workflow)
	if first.Version != 0 {
		flow = s.Flow(first.Workflow, first.Version)
	}
	return flow != nil && (flow.Input != nil || flow.Concurrency != nil)
}

// fits says whether the workflow takes the input.
func (s *settlement) fits(flow *oracle.Flow, first *submission) bool {
	if flow.Input == nil || len(first.Input) == 0 && first.input != 0 {
		return true
	}
	if len(first.Input) > 0 && !first.Input.IsValid() { // of two members of one name nobody knows which counts
		return false
	}
	var input any
	if len(first.Input) > 0 {
		var err error
		if input, err = jsonschema.UnmarshalJSON(bytes.NewReader(first.Input)); err != nil {
			return false
		}
	}
	schema, err := compile(flow.Input)
	if err != nil {
		s.report("the input of workflow %s: %v", flow.Name, err)
		return true
	}
	return schema.Validate(input) == nil
}

func compile(source []byte) (*jsonschema.Schema, error) {
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(source))
	if err != nil {
		return nil, err //nolint:wrapcheck // whoever reports it says of what
	}
	const name = "https://schema.invalid/input"
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource(name, document); err != nil {
		return nil, err //nolint:wrapcheck // as above
	}
	return c.Compile(name) //nolint:wrapcheck // as above
}
