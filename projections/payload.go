package projections

import (
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// inlinePayload is the largest payload, in bytes, that stands in its order's
// record. A larger one has a key of its own, so that it is written once and not
// with every change of the order.
const inlinePayload = 1 << 10

// payload is one of the values that an order carries for others.
type payload struct {
	step, part string          // both "" for the order's input, only step "" for an input that waits
	at         *jsontext.Value // nil for an undo that has not begun
}

func (p *payload) value() jsontext.Value {
	if p.at == nil {
		return nil
	}
	return *p.at
}

// among returns the value of the same payload in another list, nil if it is not
// there. It looks at place i first: only what waits moves.
func (p *payload) among(all []payload, i int) []byte {
	if i < len(all) && all[i].step == p.step && all[i].part == p.part {
		return all[i].value()
	}
	for i := range all {
		if all[i].step == p.step && all[i].part == p.part {
			return all[i].value()
		}
	}
	return nil
}

func heldPayload(h *Held) payload {
	return payload{"", ":held:" + h.Source, (*jsontext.Value)(&h.Value)}
}

func signalPayload(s *Signal) payload { return payload{"", ":signal:" + s.Source, &s.Data} }

// passing lists what an order has for some time only: inputs that wait, and signals that are
// kept.
func passing(o *Order) (all []payload) {
	for i := range o.Waiting {
		all = append(all, heldPayload(&o.Waiting[i]))
	}
	for i := range o.Signals {
		if o.Signals[i].Kept() {
			all = append(all, signalPayload(&o.Signals[i]))
		}
	}
	return all
}

// payloads lists the order's input, of each step the output, the input, the undo's input, the items at hand of a page
// and the inputs under earlier keys, the inputs that wait, and the signals that are kept.
func payloads(o *Order) []payload {
	return appendPayloads(make([]payload, 0, 1+3*len(o.Steps)+len(o.Waiting)+len(o.Signals)), o)
}

func appendPayloads(all []payload, o *Order) []payload {
	all = append(all, payload{"", "", &o.Input})
	for i := range o.Steps {
		s := &o.Steps[i]
		name := s.Known()
		undo := payload{name, ":undo", nil}
		if s.Undo != nil {
			undo.at = &s.Undo.Input
		}
		all = append(all, payload{name, "", &s.Output}, payload{name, ":input", &s.Input}, undo)
		if s.Each != nil && s.Each.Pages != nil {
			all = append(all, payload{name, ":page", &s.Each.Pages.list})
		}
		for j := range s.Earlier {
			key := &s.Earlier[j]
			all = append(all, payload{name, ":input:" + strconv.Itoa(key.Resubmissions), &key.Input})
		}
	}
	return append(all, passing(o)...)
}

// same compares by identity: a payload is never changed in place.
func same(a, b []byte) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}
