package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/codec"
)

// DecodeInput asks for payloads as the codec decodes them.
type DecodeInput struct {
	Decode bool `query:"decode" doc:"Payloads that the caller may read are sent to the codec that the server is configured with, and the answer has what it makes of them. Where it does not, they are as they are stored, and undecoded says why"`
}

// Resolve notes what is asked for, for [Server.decode].
func (in *DecodeInput) Resolve(c huma.Context) []error {
	askingOf(c.Context()).decode = in.Decode
	return nil
}

// NotDecoded is what an answer says that was to be decoded.
type NotDecoded struct {
	Undecoded string `json:"undecoded,omitempty" doc:"Why payloads are as they are stored, though decode asked for them as the codec decodes them; left out where they are not"`
}

// decode has the codec decode what [Server.mask] has left of an answer, where its caller asks for that. What is decoded is in that answer and
// nowhere else: no store, no log and no other answer has it.
func (s *Server) decode(c huma.Context, _ string, answer any) (any, error) {
	if !askingOf(c.Context()).decode {
		return answer, nil
	}
	var p payloads
	decoded := func() (why string) {
		if why = s.decoded(c.Context(), &p); why == "" && len(p.values) > 0 {
			s.audit(c.Context(), decodedFor, "operation", c.Operation().OperationID, "of", cmp.Or(c.Param("id"), askingOf(c.Context()).target, c.Param("name")))
		}
		return why
	}
	switch v := answer.(type) {
	case Order:
		p.order(&v)
		v.Undecoded = decoded()
		return v, nil
	case History:
		all, err := p.history(&v)
		if err != nil {
			return nil, err
		}
		if v.Undecoded = decoded(); v.Undecoded == "" {
			for n := range all {
				v.Events[n] = all[n].Append(nil)
			}
		}
		return v, nil
	case ItemPage:
		for n := range v.Items {
			add(&p, &v.Items[n].Output)
			p.fault(&v.Items[n].Error)
		}
		v.Undecoded = decoded()
		return v, nil
	case AlertPage:
		for n := range v.Alerts {
			p.alert(&v.Alerts[n])
		}
		v.Undecoded = decoded()
		return v, nil
	case ApprovalPage:
		for n := range v.Approvals {
			add(&p, &v.Approvals[n].Show)
		}
		v.Undecoded = decoded()
		return v, nil
	case WholeDeadLetter:
		p.letter(&v)
		switch v.Undecoded = decoded(); {
		case v.Value != nil && v.Value.Text == nil:
			v.Undecoded = "bytes that are no UTF-8 are not sent to the codec"
		case v.Value != nil && len(p.values) == 0 && s.codec != nil:
			v.Undecoded = notAsked
		case v.Value != nil && len(p.values) == 0:
			v.Undecoded = noCodec
		}
		return v, nil
	case Schedule:
		add(&p, &v.Input)
		v.Undecoded = decoded()
		return v, nil
	case SchedulePage:
		for n := range v.Schedules {
			add(&p, &v.Schedules[n].Input)
		}
		v.Undecoded = decoded()
		return v, nil
	case huma.StatusError: // which has none
		return answer, nil
	}
	return nil, fmt.Errorf("nothing says what of a %T is to be decoded", answer)
}

// decodedFor is what the audit log says of who is given what was decoded.
const decodedFor = "payloads were decoded"

// payloads are those of an answer, and what is done with each once it is decoded.
type payloads struct {
	values []jsontext.Value
	set    []func(jsontext.Value)
}

const noCodec = "the server has no codec; configure one with --codec"

// tooDeep stands where a payload would that is nested too deeply, and notAsked is why a dead letter is not decoded that is.
var (
	tooDeep  = fmt.Sprintf("this is nested more than %d levels deep, and not shown; it is whole on the topics where it stands", codec.Deepest)
	notAsked = fmt.Sprintf("what is nested more than %d levels deep is not sent to the codec", codec.Deepest)
)

// add adds what stands at a place, where there is something. What it points at may be the state store's, and is not written to. What
// is nested too deeply is nothing for the codec, and said to be so.
func add[V ~[]byte](p *payloads, at *V) {
	if events.Depth(*at) > codec.Deepest {
		*at = V(strconv.Quote(tooDeep))
		return
	}
	if value := jsontext.Value(*at); len(value) > 0 && value.Kind() != 'n' {
		p.values = append(p.values, value)
		p.set = append(p.set, func(decoded jsontext.Value) { *at = V(decoded) })
	}
}

// text adds a text, as JSON has it. What becomes of it is a text again, or JSON.
func (p *payloads) text(at *string) {
	if *at == "" {
		return
	}
	value, err := jsontext.AppendQuote(nil, *at)
	if err != nil {
		return // it is not UTF-8, and nothing that a codec made
	}
	p.values = append(p.values, value)
	p.set = append(p.set, func(decoded jsontext.Value) {
		if text, err := jsontext.AppendUnquote(nil, decoded); err == nil {
			*at = string(text)
		} else {
			*at = string(decoded)
		}
	})
}

// fault adds what an error says. It becomes another one: that which it is may be the state store's.
func (p *payloads) fault(at **Fault) {
	if *at == nil {
		return
	}
	own := new(**at)
	p.text(&own.Message)
	*at = own
}

func (p *payloads) order(o *Order) {
	add(p, &o.Input)
	add(p, &o.Output)
	p.fault(&o.Failure)
	for i := range o.Signals {
		add(p, &o.Signals[i].Data)
	}
	for i := range o.Steps {
		st := &o.Steps[i]
		add(p, &st.Input)
		add(p, &st.Output)
		p.fault(&st.Error)
		if st.Undo != nil {
			add(p, &st.Undo.Input)
			p.fault(&st.Undo.Error)
		}
	}
	if o.Alert != nil {
		p.alert(o.Alert)
	}
}

func (p *payloads) alert(a *Alert) {
	for i := range a.Errors {
		p.text(&a.Errors[i].Message)
	}
}

// history adds what is in the events of a page, unless that is masked, and returns them as they are to be written anew.
func (p *payloads) history(h *History) ([]events.Event, error) {
	if h.Masked {
		return nil, nil
	}
	all := make([]events.Event, len(h.Events))
	for n := range h.Events {
		e := &all[n]
		var err error
		if *e, err = events.Decode[events.Event](h.Events[n]); err != nil {
			return nil, fmt.Errorf("decode an event: %w", err)
		}
		p.event(e)
	}
	return all, nil
}

// event adds what is in an event, which is the caller's own.
func (p *payloads) event(e *events.Event) {
	add(p, &e.Input)
	add(p, &e.Output)
	add(p, &e.Data)
	if e.Error != nil {
		p.text(&e.Error.Message)
	}
	for i := range e.Errors {
		p.text(&e.Errors[i].Message)
	}
	if e.Schedule != nil {
		add(p, &e.Schedule.Input)
	}
}

// letter adds the value of a dead letter, if it is text: as the JSON that it is, or is not. It stays as it was, and what is decoded stands beside it: who puts
// the letter back must not write that.
func (p *payloads) letter(d *WholeDeadLetter) {
	if d.Value == nil || d.Value.Text == nil {
		return
	}
	value := jsontext.Value(*d.Value.Text)
	if !value.IsValid(jsontext.AllowDuplicateNames(true)) {
		var err error
		if value, err = jsontext.AppendQuote(nil, *d.Value.Text); err != nil {
			return
		}
	}
	if events.Depth(value) > codec.Deepest {
		return
	}
	p.values = append(p.values, value)
	p.set = append(p.set, func(decoded jsontext.Value) { d.Decoded = json.RawMessage(decoded) })
}

// decoded has the codec decode payloads for whoever asks, and puts them where they belong: all, or none, and why.
func (s *Server) decoded(ctx context.Context, p *payloads) (why string) {
	if len(p.values) == 0 {
		return ""
	}
	if s.codec == nil {
		return noCodec
	}
	decoded, err := s.askCodec(ctx, p.values)
	if err != nil {
		if ctx.Err() == nil {
			s.warn("payloads were not decoded", "why", err)
		}
		return err.Error()
	}
	for n := range decoded {
		p.set[n](decoded[n])
	}
	return ""
}

var errCodecBusy = errors.New("as many requests as may be are with the codec, of yours or of all; try again in a moment")

// askCodec has the codec decode once there is a place for who asks. One that waits for that keeps nobody from being answered. A stream, which has no
// place among the requests, waits longer: what it sends undecoded nobody asks for again.
func (s *Server) askCodec(ctx context.Context, values []jsontext.Value) ([]jsontext.Value, error) {
	a := askingOf(ctx)
	who, _ := a.who()
	switch place := placeOf(ctx); {
	case s.decoding.take(who):
	case !place.held:
		wait, cancel := context.WithTimeout(ctx, streamsWait*s.codecPatience)
		got := s.decoding.await(wait, who)
		cancel()
		if !got {
			return nil, errCodecBusy
		}
	default:
		leave, room := place.of.rest()
		if !room {
			return nil, errCodecBusy
		}
		place.free()
		wait, cancel := context.WithTimeout(ctx, s.codecPatience)
		got := s.decoding.await(wait, who)
		cancel()
		leave()
		back := place.again(ctx)
		if !got {
			return nil, errCodecBusy
		}
		if !back {
			s.decoding.free(who)
			return nil, errCodecBusy // nobody hears it
		}
	}
	defer s.decoding.free(who)
	return s.codec.Decode(ctx, a.token, values) //nolint:wrapcheck // it is a sentence for whoever asks
}

const (
	// codecPatience is how long a request waits for a place among those that are with the codec, and streamsWait how many times that a stream does.
	codecPatience = time.Second
	streamsWait   = 5
)

// codecPlaces are the places of requests that are with the codec. One caller may have a quarter of them, so that one who asks for much
// leaves places to others, however slow the codec is.
type codecPlaces struct {
	most int

	mu    sync.Mutex
	taken int
	of    map[string]int // by who has them
	freed chan struct{}  // is closed once one is free again
}

// newCodecPlaces are those of a server that answers so many requests at a time, 0 being any number: a codec that is slow leaves three
// quarters of these to others.
func newCodecPlaces(requests int) *codecPlaces {
	p := &codecPlaces{most: codec.AtOnce, of: make(map[string]int), freed: make(chan struct{})}
	if requests > 0 {
		p.most = min(p.most, max(requests/4, 1))
	}
	return p
}

// take takes a place, and reports false if there is none. Who has one gives it back with free.
func (p *codecPlaces) take(who string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken >= p.most || p.of[who] >= max(p.most/4, 1) {
		return false
	}
	p.taken++
	p.of[who]++
	return true
}

// await waits for a place, and reports false if ctx ended before there was one.
func (p *codecPlaces) await(ctx context.Context, who string) bool {
	for {
		p.mu.Lock()
		freed := p.freed
		p.mu.Unlock()
		if p.take(who) {
			return true
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return false
		}
	}
}

func (p *codecPlaces) free(who string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken--
	if p.of[who]--; p.of[who] == 0 {
		delete(p.of, who)
	}
	close(p.freed)
	p.freed = make(chan struct{})
}
