package projections

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/waybill-dev/waybill/events"
)

// The store's values are binary: they are written and read more often than
// anything else. Whoever changes their layout raises [layout].
//
// Equal states have equal bytes, so that two stores can be compared key by key.

type writer struct{ b []byte }

func (w *writer) uint(n uint64) { w.b = binary.AppendUvarint(w.b, n) }
func (w *writer) int(n int64)   { w.b = binary.AppendVarint(w.b, n) }
func (w *writer) text(s string) {
	w.uint(uint64(len(s)))
	w.b = append(w.b, s...)
}

// names are those of a map in order. Most orders have none, and looking for them would still take memory.
func names[V any](of map[string]V) []string {
	if len(of) == 0 {
		return nil
	}
	return slices.Sorted(maps.Keys(of))
}

func (w *writer) truth(b bool) {
	if b {
		w.uint(1)
	} else {
		w.uint(0)
	}
}

// time writes milliseconds; messages carry nothing finer. Zero stands for no
// time, so the milliseconds from 1970 on are moved up by one.
func (w *writer) time(t time.Time) {
	switch ms := t.UnixMilli(); {
	case t.IsZero():
		w.int(0)
	case ms >= 0:
		w.int(ms + 1)
	default:
		w.int(ms)
	}
}

// writeJSON writes what is rare and of many parts; nil is an empty text.
func writeJSON[T any](w *writer, v *T) {
	if v == nil {
		w.text("")
		return
	}
	b, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		panic(fmt.Sprintf("projections: %T does not encode: %v", v, err)) // only our own structs of text come here
	}
	w.text(string(b))
}

// errDamaged says that a stored value cannot be what was written.
var errDamaged = errors.New("stored value is damaged")

type reader struct {
	b   []byte
	err error
}

func (r *reader) uint() uint64 {
	n, size := binary.Uvarint(r.b)
	return n * uint64(r.skip(size))
}

func (r *reader) int() int64 {
	n, size := binary.Varint(r.b)
	return n * int64(r.skip(size))
}

// skip passes size bytes and returns 1, or 0 once anything was damaged.
func (r *reader) skip(size int) int {
	if r.err != nil || size <= 0 || size > len(r.b) {
		r.err = errDamaged
		return 0
	}
	r.b = r.b[size:]
	return 1
}

// bytes returns the next n bytes, nil once anything was damaged. They belong to
// what is read.
func (r *reader) bytes(n int) []byte {
	b := r.b
	if r.skip(n) == 0 {
		return nil
	}
	return b[:n:n]
}

func (r *reader) text() string {
	n := r.uint()
	if r.err != nil || n > uint64(len(r.b)) {
		r.err = errDamaged
		return ""
	}
	s := string(r.b[:n])
	r.b = r.b[n:]
	return s
}

// some returns a text as bytes, nil if it is empty.
func (r *reader) some() []byte {
	if s := r.text(); s != "" {
		return []byte(s)
	}
	return nil
}

// count returns how many parts follow, each of which has more than one byte.
func (r *reader) count() int {
	n := r.uint()
	if n > uint64(len(r.b)) {
		r.err = errDamaged
		return 0
	}
	return int(n)
}

func (r *reader) truth() bool { return r.uint() != 0 }

func (r *reader) time() time.Time {
	ms := r.int()
	if ms == 0 {
		return time.Time{}
	}
	if ms > 0 {
		ms--
	}
	return time.UnixMilli(ms).UTC()
}

func readJSON[T any](r *reader) *T {
	s := r.text()
	if s == "" {
		return nil
	}
	v := new(T)
	if err := json.Unmarshal([]byte(s), v); err != nil {
		r.err = fmt.Errorf("%w: %v", errDamaged, err)
	}
	return v
}

// appendRecord appends the record of o without its payloads, input and outputs.
func appendRecord(dst []byte, o *Order) []byte {
	w := writer{dst}
	w.text(o.Workflow)
	w.uint(uint64(o.Version))
	w.text(string(o.State))
	w.text(o.LockedBy)
	w.uint(uint64(o.FailureCount))
	w.text(o.ReplyTo)
	w.text(string(o.Priority))
	w.time(o.Deadline)
	w.text(o.Traceparent)
	w.uint(o.Seq)
	w.time(o.AcceptedAt)
	w.time(o.UpdatedAt)
	w.text(o.Reason)
	writeJSON(&w, o.Alert)
	w.truth(o.Paused)
	w.text(string(o.Toward))
	w.text(o.Command)
	w.text(o.Refusal)
	w.text(o.whyCompensated)
	w.truth(o.Hold != nil)
	if h := o.Hold; h != nil {
		w.text(string(h.State))
		w.text(h.Reason)
		writeJSON(&w, h.Alert)
	}
	w.uint(uint64(len(o.Waiting)))
	for i := range o.Waiting {
		w.held(&o.Waiting[i])
	}
	w.uint(uint64(len(o.Steps)))
	for i := range o.Steps {
		s := &o.Steps[i]
		w.text(s.Name)
		w.work(&s.Work)
		w.truth(s.Unknown)
		w.truth(s.Undo != nil)
		if s.Undo != nil {
			w.work(s.Undo)
		}
	}
	w.text(o.Digest)
	w.truth(o.Conflicted)
	w.uint(uint64(o.Discarded))
	w.uint(uint64(o.Refused))
	w.uint(uint64(o.PutAside))
	w.truth(o.keyed)
	for i := range o.Steps {
		w.keys(&o.Steps[i])
	}
	w.proofs(o)
	w.sleeps(o)
	w.signals(o)
	w.labels(o)
	w.failure(o)
	w.extensions(o)
	w.text(o.RerunOf)
	w.approvals(o)
	w.since13(o)
	w.since14(o)
	w.since15(o)
	w.since16(o)
	w.since17(o)
	w.since19(o)
	return w.b
}

// signals writes what steps wait for, and which signals are kept or remembered, without what
// they say, which are payloads.
func (w *writer) signals(o *Order) {
	for i := range o.Steps {
		l := o.Steps[i].Listens
		w.truth(l != nil)
		if l == nil {
			continue
		}
		w.text(l.How)
		w.texts(l.Names)
		w.int(int64(l.Left))
		w.uint(l.Since)
		w.int(o.Steps[i].Left.Milliseconds())
	}
	w.int(int64(o.Unheard))
	w.int(int64(o.GivenUp))
	w.uint(uint64(len(o.Signals)))
	for i := range o.Signals {
		s := &o.Signals[i]
		w.text(s.Name)
		w.text(s.ID)
		w.text(s.Source)
		w.time(s.Until)
	}
}

// signals reads what the writer's signals wrote.
func (r *reader) signals(o *Order) {
	for i := range o.Steps {
		if !r.truth() {
			continue
		}
		l := &Listen{How: r.text(), Names: r.texts(), Left: int(r.int()), Since: r.uint()}
		o.Steps[i].Listens, o.Steps[i].Left = l, time.Duration(r.int())*time.Millisecond
	}
	o.Unheard, o.GivenUp = int(r.int()), int(r.int())
	if n := r.count(); n > 0 {
		o.Signals = make([]Signal, n)
	}
	for i := range o.Signals {
		o.Signals[i] = Signal{Name: r.text(), ID: r.text(), Source: r.text(), Until: r.time()}
	}
}

// failure writes what a step raised.
func (w *writer) failure(o *Order) { writeJSON(w, o.Failure) }

// failure reads what the writer's failure wrote.
func (r *reader) failure(o *Order) { o.Failure = readJSON[events.Error](r) }

// extensions writes how often an agent did not know an operation, which attempts may have their
// complete-by moved, and by how much that was.
func (w *writer) extensions(o *Order) {
	of := func(k *Work) {
		w.int(int64(k.NotKnown))
		w.time(k.ExtendTo)
		if !k.ExtendTo.IsZero() {
			w.int(k.Timeout.Milliseconds())
			w.int(k.Extended.Milliseconds())
		}
	}
	for i := range o.Steps {
		of(&o.Steps[i].Work)
		if undo := o.Steps[i].Undo; undo != nil {
			of(undo)
		}
	}
}

// extensions reads what the writer's extensions wrote.
func (r *reader) extensions(o *Order) {
	of := func(k *Work) {
		k.NotKnown = int(r.int())
		if k.ExtendTo = r.time(); !k.ExtendTo.IsZero() {
			k.Timeout, k.Extended = time.Duration(r.int())*time.Millisecond, time.Duration(r.int())*time.Millisecond
		}
	}
	for i := range o.Steps {
		of(&o.Steps[i].Work)
		if undo := o.Steps[i].Undo; undo != nil {
			of(undo)
		}
	}
}

// sleeps writes which steps the order went on without, which are done again and again, and which
// sleep, or slept.
func (w *writer) sleeps(o *Order) {
	for i := range o.Steps {
		s := &o.Steps[i]
		w.truth(s.Passed)
		w.int(int64(s.Repeats))
		w.int(int64(s.RepeatsBefore))
		w.int(int64(s.AttemptsBefore))
		w.truth(s.Sleeps)
		if s.Sleeps {
			w.time(s.WakesAt())
			w.int(s.Left.Milliseconds())
		}
	}
}

// sleeps reads what the writer's sleeps wrote.
func (r *reader) sleeps(o *Order) {
	for i := range o.Steps {
		s := &o.Steps[i]
		s.Passed, s.Repeats, s.RepeatsBefore = r.truth(), int(r.int()), int(r.int())
		s.AttemptsBefore, s.Sleeps = int(r.int()), r.truth()
		if s.Sleeps {
			if at := r.time(); !at.IsZero() {
				s.Wakes = &at
			}
			s.Left = time.Duration(r.int()) * time.Millisecond
		}
	}
}

// proofs writes which attempts had a token, and the commands whose author is known.
func (w *writer) proofs(o *Order) {
	of := func(k *Work) {
		w.text(k.Proof)
		if k.Proof != "" {
			w.text(k.Agent)
		}
	}
	for i := range o.Steps {
		of(&o.Steps[i].Work)
		if undo := o.Steps[i].Undo; undo != nil {
			of(undo)
		}
	}
	for i := range o.Waiting {
		w.text(o.Waiting[i].Proof)
	}
	w.uint(uint64(len(o.Acts)))
	for _, a := range o.Acts {
		w.text(a.ID)
		w.text(a.Command)
		w.time(a.At)
	}
	w.time(o.ActedBefore)
}

// proofs reads what the writer's proofs wrote.
func (r *reader) proofs(o *Order) {
	of := func(k *Work) {
		if k.Proof = r.text(); k.Proof != "" {
			k.Agent = r.text()
		}
	}
	for i := range o.Steps {
		of(&o.Steps[i].Work)
		if undo := o.Steps[i].Undo; undo != nil {
			of(undo)
		}
	}
	for i := range o.Waiting {
		o.Waiting[i].Proof = r.text()
	}
	if n := r.count(); n > 0 {
		o.Acts = make([]Act, n)
	}
	for i := range o.Acts {
		o.Acts[i] = Act{r.text(), r.text(), r.time()}
	}
	o.ActedBefore = r.time()
}

// keys writes of a step the keys of before without their inputs, which are payloads,
// how many of all are undone, whether the undo is in doubt, and how many attempts of
// either were not counted.
func (w *writer) keys(s *Step) {
	w.uint(uint64(len(s.Earlier)))
	for i := range s.Earlier {
		w.uint(uint64(s.Earlier[i].Resubmissions))
	}
	w.uint(uint64(s.Uncounted))
	if s.Undo != nil {
		w.uint(uint64(s.Undo.Done))
		w.truth(s.Undo.Doubtful)
		w.uint(uint64(s.Undo.Uncounted))
	}
}

// keys reads what the writer's keys wrote.
func (r *reader) keys(s *Step) {
	if n := r.count(); n > 0 {
		s.Earlier = make([]Key, n)
	}
	for i := range s.Earlier {
		s.Earlier[i].Resubmissions = int(r.uint())
	}
	s.Uncounted = int(r.uint())
	if s.Undo != nil {
		s.Undo.Done = int(r.uint())
		s.Undo.Doubtful = r.truth()
		s.Undo.Uncounted = int(r.uint())
	}
}

// held writes an input that waits without its value, which is a payload.
func (w *writer) held(h *Held) {
	w.text(h.Source)
	w.time(h.Written)
	w.text(string(h.Key))
	w.uint(uint64(len(h.Headers)))
	for i := range h.Headers {
		w.text(h.Headers[i].Key)
		w.text(string(h.Headers[i].Value))
	}
}

// held reads what the writer's held wrote. No key and an empty one are the same.
func (r *reader) held(h *Held) {
	h.Source = r.text()
	h.Written = r.time()
	h.Key = r.some()
	if n := r.count(); n > 0 {
		h.Headers = make([]events.RawHeader, n)
	}
	for i := range h.Headers {
		h.Headers[i] = events.RawHeader{Key: r.text(), Value: r.some()}
	}
}

func (w *writer) work(k *Work) {
	w.text(string(k.State))
	w.uint(uint64(k.Attempt))
	w.uint(uint64(k.FailureCount))
	w.uint(uint64(k.Tried))
	w.uint(uint64(k.Round))
	w.uint(uint64(k.Resubmissions))
	w.truth(k.Unanswered)
	w.time(k.CompleteBy)
	w.time(k.Expires)
	w.time(k.Due)
	w.text(k.IdempotencyKey)
	writeJSON(w, k.Error)
	if k.Errors == nil {
		w.text("")
	} else {
		writeJSON(w, &k.Errors)
	}
}

func (r *reader) work(k *Work) {
	k.State = StepState(r.text())
	k.Attempt = int(r.uint())
	k.FailureCount = int(r.uint())
	k.Tried = int(r.uint())
	k.Round = int(r.uint())
	k.Resubmissions = int(r.uint())
	k.Unanswered = r.truth()
	k.CompleteBy = r.time()
	k.Expires = r.time()
	k.Due = r.time()
	k.IdempotencyKey = r.text()
	k.Error = readJSON[events.Error](r)
	if all := readJSON[[]events.Error](r); all != nil {
		k.Errors = *all
	}
}

// forgottenMark begins the record of an order that is forgotten. Others begin with the length of a workflow's name,
// which is never so much: what a submission has for one is cut to 256 bytes. Whoever adds to records of orders
// passes over these.
const forgottenMark = "\xff\x7f"

// appendForgotten appends the record of an order of which nothing is known any more but how it ended.
func appendForgotten(dst []byte, o *Order) []byte {
	w := writer{append(dst, forgottenMark...)}
	w.uint(uint64(slices.Index(States, o.State)))
	w.uint(o.Seq)
	w.text(o.Digest)
	w.truth(o.Conflicted)
	w.text(o.Workflow)
	return w.b
}

// decodeForgotten reads what appendForgotten wrote.
func decodeForgotten(id string, b []byte) (*Order, error) {
	r := reader{b: b[len(forgottenMark):]}
	state := r.uint()
	o := &Order{ID: id, Seq: r.uint(), Digest: r.text(), Conflicted: r.truth(), Workflow: r.text(), Forgotten: true}
	if r.err != nil || state >= uint64(len(States)) {
		return nil, fmt.Errorf("order %q: %w", id, errDamaged)
	}
	o.State = States[state]
	return o, nil
}

// decodeRecord reads what appendRecord wrote, and returns the bytes after it.
func decodeRecord(id string, b []byte) (*Order, []byte, error) {
	if bytes.HasPrefix(b, []byte(forgottenMark)) {
		o, err := decodeForgotten(id, b)
		return o, nil, err
	}
	r := reader{b: b}
	o := r.orderOfLayout19(id)
	if r.err != nil {
		return nil, nil, fmt.Errorf("order %q: %w", id, r.err)
	}
	return o, r.b, nil
}

// orderOfLayout19 reads what records of layout 19 begin with.
func (r *reader) orderOfLayout19(id string) *Order {
	o := r.orderOfLayout17(id)
	r.since19(o)
	return o
}

// orderOfLayout17 reads what records of layouts 17 and 18 begin with.
func (r *reader) orderOfLayout17(id string) *Order {
	o := r.orderOfLayout16(id)
	r.since17(o)
	return o
}

// orderOfLayout16 reads what records of layout 16 begin with.
func (r *reader) orderOfLayout16(id string) *Order {
	o := r.orderOfLayout15(id)
	r.since16(o)
	return o
}

// orderOfLayout15 reads what records of layout 15 begin with.
func (r *reader) orderOfLayout15(id string) *Order {
	o := r.orderOfLayout14(id)
	r.since15(o)
	return o
}

// orderOfLayout14 reads what records of layout 14 begin with.
func (r *reader) orderOfLayout14(id string) *Order {
	o := r.orderOfLayout13(id)
	r.since14(o)
	return o
}

// orderOfLayout13 reads what records of layout 13 begin with.
func (r *reader) orderOfLayout13(id string) *Order {
	o := r.orderOfLayout12(id)
	r.since13(o)
	return o
}

// orderOfLayout12 reads what records of layout 12 begin with.
func (r *reader) orderOfLayout12(id string) *Order {
	o := r.orderOfLayout11(id)
	r.signals(o)
	r.labels(o)
	r.failure(o)
	r.extensions(o)
	o.RerunOf = r.text()
	r.approvals(o)
	return o
}

// orderOfLayout11 reads what records of layout 11 begin with.
func (r *reader) orderOfLayout11(id string) *Order {
	o := r.orderOfLayout10(id)
	r.sleeps(o)
	return o
}

// orderOfLayout10 reads what records of layout 10 begin with.
func (r *reader) orderOfLayout10(id string) *Order {
	o := r.orderOfLayout9(id)
	r.proofs(o)
	return o
}

// orderOfLayout9 reads what records of layouts 8 and 9 begin with.
func (r *reader) orderOfLayout9(id string) *Order {
	o := r.orderOfLayout7(id)
	o.keyed = r.truth()
	for i := range o.Steps {
		r.keys(&o.Steps[i])
	}
	return o
}

// orderOfLayout7 reads what records of layout 7 begin with.
func (r *reader) orderOfLayout7(id string) *Order {
	o := r.orderOfLayout6(id)
	o.Digest = r.text()
	o.Conflicted = r.truth()
	o.Discarded = int(r.uint())
	o.Refused = int(r.uint())
	o.PutAside = int(r.uint())
	return o
}

// orderOfLayout6 reads what records of the layouts up to 6 begin with.
func (r *reader) orderOfLayout6(id string) *Order {
	o := &Order{ID: id}
	o.Workflow = r.text()
	o.Version = int(r.uint())
	o.State = State(r.text())
	o.LockedBy = r.text()
	o.FailureCount = int(r.uint())
	o.ReplyTo = r.text()
	o.Priority = events.Priority(r.text())
	o.Deadline = r.time()
	o.Traceparent = r.text()
	o.Seq = r.uint()
	o.AcceptedAt = r.time()
	o.UpdatedAt = r.time()
	o.Reason = r.text()
	o.Alert = readJSON[events.Alert](r)
	o.Paused = r.truth()
	o.Toward = State(r.text())
	o.Command = r.text()
	o.Refusal = r.text()
	o.whyCompensated = r.text()
	if r.truth() {
		o.Hold = &Hold{State: State(r.text()), Reason: r.text(), Alert: readJSON[events.Alert](r)}
	}
	if n := r.count(); n > 0 {
		o.Waiting = make([]Held, n)
	}
	for i := range o.Waiting {
		r.held(&o.Waiting[i])
	}
	o.Steps = make([]Step, r.count())
	for i := range o.Steps {
		s := &o.Steps[i]
		s.Name = r.text()
		r.work(&s.Work)
		s.Unknown = r.truth()
		if r.truth() {
			s.Undo = new(Work)
			r.work(s.Undo)
		}
	}
	return o
}
