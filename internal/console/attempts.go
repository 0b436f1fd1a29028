package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/pmezard/go-difflib/difflib"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/internal/words"
)

// attempt is one time that a step, or its undo, was asked of its agent.
type attempt struct {
	Seq        uint64 // of the event with which it began
	EndSeq     uint64 // of that with which it ended, 0 while it goes on
	Number     int
	Agent, Key string
	From, To   time.Time // To is zero while it goes on
	End        string    // the event with which it ended
	Input      json.RawMessage
	Output     json.RawMessage
	Error      string
	of         string
}

// Took is how long it took.
func (a *attempt) Took() string {
	if a.To.IsZero() {
		return "goes on"
	}
	return a.To.Sub(a.From).String()
}

// String names it, by where it begins and ends in the history.
func (a *attempt) String() string {
	if a.EndSeq == 0 {
		return fmt.Sprintf("attempt %d, from event %d on", a.Number, a.Seq)
	}
	return fmt.Sprintf("attempt %d, events %d to %d: %s", a.Number, a.Seq, a.EndSeq, a.End)
}

// attemptsOf are all attempts in a history that is whole, in their order. The input of one is what was recorded last: where
// nothing was, the order's.
func attemptsOf(rows []eventRow) (all []*attempt) {
	var order json.RawMessage
	input, open := make(map[string]json.RawMessage), make(map[string]*attempt)
	for _, e := range rows {
		of := doing(e.Event)
		switch e.Type {
		case events.OrderAccepted:
			order = json.RawMessage(e.Input)
		case events.OrderResubmitted:
			if e.Input != nil {
				input[of] = json.RawMessage(e.Input)
			}
		case events.StepStarted, events.UndoStarted:
			if e.Input != nil {
				input[of] = json.RawMessage(e.Input)
			}
			a := &attempt{Seq: e.Seq, Number: e.Attempt, Agent: strings.Trim(e.Agent+"/"+e.Operation, "/"), Key: e.IdempotencyKey, From: e.At, Input: order, of: of}
			if own, has := input[e.Step]; has { // also of its undo
				a.Input = own
			}
			if own, has := input[of]; has {
				a.Input = own
			}
			all, open[of] = append(all, a), a
		case events.StepRepeated, events.StepCompleted, events.UndoCompleted, events.StepFailed, events.UndoFailed, events.StepExpired, events.UndoExpired:
			a := open[of]
			if a == nil {
				continue
			}
			delete(open, of)
			a.EndSeq, a.To, a.End, a.Output = e.Seq, e.At, e.Name, json.RawMessage(e.Output)
			if e.Error != nil {
				fault := api.Fault(*e.Error)
				a.Error = words.Fault(&fault)
			}
		}
	}
	return all
}

// several are the steps, and undos, of which there were several attempts.
func several(rows []eventRow) (names []string) {
	count := make(map[string]int)
	for _, a := range attemptsOf(rows) {
		if count[a.of]++; count[a.of] == 2 {
			names = append(names, a.of)
		}
	}
	return names
}

// attemptsPage is two attempts side by side.
type attemptsPage struct {
	Order, Of             string
	Attempts              []*attempt
	Left, Right           *attempt
	Input, Output, Errors *difference
}

// difference is two texts side by side, line by line.
type difference struct {
	Same        bool
	Left, Right []line
}

// line is one, and whether the other text has another in its place, or none.
type line struct {
	Text  string
	Other bool
}

// maxLines is how many lines two texts may have together that are compared line by line.
const maxLines = 2000

// differ compares two texts.
func differ(left, right string) *difference {
	d := &difference{Same: left == right}
	a, b := strings.Split(left, "\n"), strings.Split(right, "\n")
	if len(a)+len(b) > maxLines {
		d.Left, d.Right = []line{{left, !d.Same}}, []line{{right, !d.Same}}
		return d
	}
	for _, op := range difflib.NewMatcher(a, b).GetOpCodes() {
		for _, text := range a[op.I1:op.I2] {
			d.Left = append(d.Left, line{text, op.Tag != 'e'})
		}
		for _, text := range b[op.J1:op.J2] {
			d.Right = append(d.Right, line{text, op.Tag != 'e'})
		}
	}
	return d
}

func (c *Console) attempts(v *visit) (*view, error) {
	id, of := v.PathValue("id"), v.value("of")
	if err := events.CheckOrderID(id); err != nil {
		return nil, missing("%v.", err)
	}
	rows, next, masked, err := v.history(v.Context(), id, "")
	switch {
	case err != nil:
		return nil, err
	case masked:
		return nil, &api.Problem{Status: http.StatusForbidden, Title: "Forbidden", Detail: "What agents were asked and answered is left out for you: it takes the role payload-reader."}
	case next != "":
		return nil, missing("Attempts are compared of orders with up to %d events.", pageEvents)
	}
	p := &attemptsPage{Order: id, Of: of}
	for _, a := range attemptsOf(rows) {
		if a.of == of {
			p.Attempts = append(p.Attempts, a)
		}
	}
	if len(p.Attempts) < 2 {
		return nil, missing("There were no two attempts of %q that could be compared.", of)
	}
	for name, to := range map[string]**attempt{"left": &p.Left, "right": &p.Right} {
		seq, err := v.number(name)
		if err != nil {
			return nil, err
		}
		n := slices.IndexFunc(p.Attempts, func(a *attempt) bool { return a.Seq == seq })
		switch {
		case n >= 0:
			*to = p.Attempts[n]
		case seq > 0:
			return nil, missing("No attempt of %q began with event %d.", of, seq)
		case name == "left":
			*to = p.Attempts[len(p.Attempts)-2]
		default:
			*to = p.Attempts[len(p.Attempts)-1]
		}
	}
	p.Input = differ(pretty(p.Left.Input), pretty(p.Right.Input))
	p.Output = differ(pretty(p.Left.Output), pretty(p.Right.Output))
	p.Errors = differ(p.Left.Error, p.Right.Error)
	return &view{page: "attempts.html", title: fmt.Sprintf("%s: attempts of %s", id, of), data: p}, nil
}
