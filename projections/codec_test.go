package projections

import (
	"bytes"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"pgregory.net/rapid"

	"github.com/waybill-dev/waybill/events"
)

// drawOrder draws any state record, without payloads, which have their own keys.
func drawOrder(t *rapid.T) *Order {
	text := rapid.StringN(0, 20, 80)
	// Zero stands for no time, so the millisecond of the epoch is no time.
	moment := rapid.Custom(func(t *rapid.T) time.Time {
		if rapid.Bool().Draw(t, "none") {
			return time.Time{}
		}
		return time.UnixMilli(rapid.Int64Range(1, 253402300799999).Draw(t, "ms")).UTC()
	})
	number := rapid.IntRange(0, 1<<40)
	fault := func() events.Error {
		return events.Error{
			Code: text.Draw(t, "code"), Message: text.Draw(t, "message"), Permanent: rapid.Bool().Draw(t, "permanent"),
			Step: text.Draw(t, "step"), Attempt: number.Draw(t, "attempt"),
			Undo: rapid.Bool().Draw(t, "undo"),
		}
	}
	o := &Order{
		ID: text.Draw(t, "id"), Workflow: text.Draw(t, "workflow"), Version: number.Draw(t, "version"),
		State: rapid.SampledFrom(States).Draw(t, "state"), LockedBy: text.Draw(t, "lockedBy"), FailureCount: number.Draw(t, "failures"),
		ReplyTo: text.Draw(t, "replyTo"), Priority: events.Priority(text.Draw(t, "priority")), Deadline: moment.Draw(t, "deadline"),
		Traceparent: text.Draw(t, "traceparent"), Tracestate: text.Draw(t, "tracestate"), Baggage: text.Draw(t, "baggage"), Seq: rapid.Uint64().Draw(t, "seq"),
		AcceptedAt: moment.Draw(t, "acceptedAt"), UpdatedAt: moment.Draw(t, "updatedAt"), Reason: text.Draw(t, "reason"),
		Paused: rapid.Bool().Draw(t, "paused"), Toward: State(text.Draw(t, "toward")),
		Command: text.Draw(t, "command"), Refusal: text.Draw(t, "refusal"), whyCompensated: text.Draw(t, "why compensated"),
		Steps: make([]Step, rapid.IntRange(0, 4).Draw(t, "steps")),
	}
	if rapid.Bool().Draw(t, "alert") {
		o.Alert = &events.Alert{Order: o.ID, Step: text.Draw(t, "step"), Reason: text.Draw(t, "reason"), Errors: []events.Error{}, At: moment.Draw(t, "at")}
		for range rapid.IntRange(0, 3).Draw(t, "errors") {
			o.Alert.Errors = append(o.Alert.Errors, fault())
		}
	}
	if rapid.Bool().Draw(t, "raised") {
		o.Failure = new(fault())
	}
	if rapid.Bool().Draw(t, "held") {
		o.Hold = &Hold{State: rapid.SampledFrom(States).Draw(t, "before"), Reason: text.Draw(t, "reason before"), Alert: o.Alert}
		some := rapid.Custom(func(t *rapid.T) []byte {
			if b := rapid.SliceOfN(rapid.Byte(), 0, 5).Draw(t, "bytes"); len(b) > 0 {
				return b
			}
			return nil
		})
		for range rapid.IntRange(0, 3).Draw(t, "waiting") {
			h := Held{Source: text.Draw(t, "source"), Raw: events.Raw{Written: moment.Draw(t, "written"), Key: some.Draw(t, "key")}}
			for range rapid.IntRange(0, 2).Draw(t, "headers") {
				h.Headers = append(h.Headers, events.RawHeader{Key: text.Draw(t, "header"), Value: some.Draw(t, "value")})
			}
			o.Waiting = append(o.Waiting, h)
		}
	}
	if labels := rapid.MapOfN(text, text, 0, 3).Draw(t, "labels"); len(labels) > 0 {
		o.Labels = labels
	}
	o.RerunOf = text.Draw(t, "rerun of")
	o.SubmittedBy = text.Draw(t, "submitted by")
	if names := rapid.SliceOfN(text, 0, 2).Draw(t, "submitters"); len(names) > 0 {
		o.Submitters = names
	}
	o.Unheard, o.GivenUp = number.Draw(t, "unheard"), number.Draw(t, "given up")
	for range rapid.IntRange(0, 3).Draw(t, "signals") {
		o.Signals = append(o.Signals, Signal{Name: text.Draw(t, "name"), ID: text.Draw(t, "id"), Source: text.Draw(t, "source"), Until: moment.Draw(t, "until")})
	}
	if rapid.IntRange(0, 3).Draw(t, "has the signals of a key") == 0 {
		o.Correlation = &Correlation{Signal: text.Draw(t, "signal"), Key: text.Draw(t, "its key"), First: rapid.Uint64().Draw(t, "first")}
		for range rapid.IntRange(0, 2).Draw(t, "waits") {
			o.Correlation.Waits = append(o.Correlation.Waits, Wait{text.Draw(t, "waiter"), text.Draw(t, "its step"), rapid.Uint64().Draw(t, "number"), rapid.Uint64().Draw(t, "its signal")})
		}
		for i := range o.Signals {
			if rapid.Bool().Draw(t, "is under it") {
				o.Signals[i].Under = &Under{rapid.Uint64().Draw(t, "given"), rapid.Bool().Draw(t, "starts"), rapid.Bool().Draw(t, "told"), text.Draw(t, "answered by"), text.Draw(t, "told at"), text.Draw(t, "sent by")}
			}
		}
	}
	o.keyed = rapid.Bool().Draw(t, "keyed")
	if rapid.Bool().Draw(t, "does a step of another") {
		o.Parent = &Parent{text.Draw(t, "parent"), text.Draw(t, "step of it"), number.Draw(t, "depth"), rapid.Bool().Draw(t, "detached")}
	}
	o.Quiet = rapid.Bool().Draw(t, "quiet")
	o.Asked, o.Started, o.TurnHome, o.TurnKey = rapid.Uint64().Draw(t, "asked"), rapid.Bool().Draw(t, "started"), text.Draw(t, "home of its turn"), text.Draw(t, "key of its turn")
	for range rapid.IntRange(0, 2).Draw(t, "turns") {
		o.Turns = append(o.Turns, Turn{text.Draw(t, "its home"), text.Draw(t, "its key"), text.Draw(t, "its step"), events.OnConflict(text.Draw(t, "on conflict")), rapid.Bool().Draw(t, "for an undo"), rapid.Uint64().Draw(t, "its number"), moment.Draw(t, "its time"), rapid.Uint64().Draw(t, "ended")})
	}
	if rapid.IntRange(0, 3).Draw(t, "has places") == 0 {
		o.Places = &Places{
			First: rapid.Uint64().Draw(t, "first"), AppliedBy: text.Draw(t, "applied by"), Taken: number.Draw(t, "taken"), Waiting: number.Draw(t, "waiting"), Oldest: moment.Draw(t, "oldest"),
			one: rapid.Bool().Draw(t, "one"), first: rapid.Uint64().Draw(t, "oldest number"), since: rapid.Uint64().Draw(t, "since"), comer: text.Draw(t, "comer"), told: rapid.Uint64().Draw(t, "told"), rank: rapid.Uint64().Draw(t, "rank"), full: rapid.Int64().Draw(t, "full"),
		}
		if rapid.Bool().Draw(t, "is a limit") {
			o.Places.Says = &events.Limit{AtATime: 1 + number.Draw(t, "at a time")}
		}
	}
	if pinned := rapid.MapOfN(text, rapid.Int64Range(0, 1<<40), 0, 3).Draw(t, "pinned"); len(pinned) > 0 {
		o.Pinned = pinned
	}
	work := func() Work {
		w := Work{
			State: StepState(text.Draw(t, "state")), Attempt: number.Draw(t, "attempt"),
			FailureCount: number.Draw(t, "failures"), Tried: number.Draw(t, "tried"), Uncounted: number.Draw(t, "uncounted"), NotKnown: number.Draw(t, "not known"),
			Round: number.Draw(t, "round"), Resubmissions: number.Draw(t, "resubmissions"), Unanswered: rapid.Bool().Draw(t, "unanswered"),
			CompleteBy: moment.Draw(t, "completeBy"), Expires: moment.Draw(t, "expires"), Due: moment.Draw(t, "due"),
			IdempotencyKey: text.Draw(t, "key"), ExtendTo: moment.Draw(t, "extendTo"),
		}
		if !w.ExtendTo.IsZero() {
			length := rapid.Int64Range(0, 1<<40)
			w.Timeout, w.Extended = time.Duration(length.Draw(t, "timeout"))*time.Millisecond, time.Duration(length.Draw(t, "extended"))*time.Millisecond
		}
		if rapid.Bool().Draw(t, "error") {
			w.Error = new(fault())
		}
		return w
	}
	for i := range o.Steps {
		o.Steps[i] = Step{Name: text.Draw(t, "name"), Work: work(), Unknown: rapid.Bool().Draw(t, "unknown")}
		for range rapid.IntRange(0, 2).Draw(t, "earlier") {
			o.Steps[i].Earlier = append(o.Steps[i].Earlier, Key{Resubmissions: number.Draw(t, "resubmissions")})
		}
		o.Steps[i].Passed, o.Steps[i].Sleeps = rapid.Bool().Draw(t, "passed"), rapid.Bool().Draw(t, "sleeps")
		o.Steps[i].AttemptsBefore = number.Draw(t, "attempts before")
		o.Steps[i].Repeats, o.Steps[i].RepeatsBefore = number.Draw(t, "repeats"), number.Draw(t, "repeats before")
		if o.Steps[i].Sleeps {
			if at := moment.Draw(t, "wakes"); !at.IsZero() {
				o.Steps[i].Wakes = &at
			}
			o.Steps[i].Left = time.Duration(rapid.Int64Range(0, 1<<40).Draw(t, "left")) * time.Millisecond
		}
		if rapid.IntRange(0, 3).Draw(t, "approves") == 0 {
			names := rapid.SliceOfN(text, 1, 3)
			o.Steps[i].Approves = &Approval{
				Roles: names.Draw(t, "roles"), Outcomes: names.Draw(t, "outcomes"), Count: number.Draw(t, "count"), Since: moment.Draw(t, "since"),
				Remind: moment.Draw(t, "remind"), Reminded: rapid.Bool().Draw(t, "reminded"), Until: moment.Draw(t, "until"),
			}
			if rapid.Bool().Draw(t, "escalates") {
				o.Steps[i].Approves.Escalate = names.Draw(t, "escalate")
			}
			for range rapid.IntRange(0, 2).Draw(t, "decisions") {
				o.Steps[i].Approves.Decisions = append(o.Steps[i].Approves.Decisions, Verdict{text.Draw(t, "by"), text.Draw(t, "outcome"), text.Draw(t, "note"), moment.Draw(t, "at")})
			}
			o.Steps[i].Left = time.Duration(rapid.Int64Range(0, 1<<40).Draw(t, "left of it")) * time.Millisecond
		}
		if rapid.Bool().Draw(t, "listens") {
			o.Steps[i].Listens = &Listen{
				How: text.Draw(t, "how"), Names: rapid.SliceOfN(text, 1, 3).Draw(t, "names"),
				Left: number.Draw(t, "signals left"), Since: rapid.Uint64().Draw(t, "since"),
			}
			o.Steps[i].Left = time.Duration(rapid.Int64Range(0, 1<<40).Draw(t, "left")) * time.Millisecond
		}
		if rapid.IntRange(0, 3).Draw(t, "done by another order") == 0 {
			o.Steps[i].Child = &Child{text.Draw(t, "child"), rapid.Bool().Draw(t, "recalled")}
		}
		o.Steps[i].Leaves = rapid.Bool().Draw(t, "leaves")
		for range rapid.IntRange(0, 2).Draw(t, "left by") {
			o.Steps[i].LeftBy = append(o.Steps[i].LeftBy, number.Draw(t, "resubmissions"))
		}
		if rapid.IntRange(0, 3).Draw(t, "emits") == 0 {
			o.Steps[i].Emits = &Emission{text.Draw(t, "topic"), text.Draw(t, "type"), text.Draw(t, "key"), rapid.Uint64().Draw(t, "begun"), moment.Draw(t, "since")}
		}
		if rapid.Bool().Draw(t, "undo") {
			o.Steps[i].Undo = new(work())
			o.Steps[i].Undo.Done, o.Steps[i].Undo.Doubtful = number.Draw(t, "done"), rapid.Bool().Draw(t, "doubtful")
		}
	}
	if rapid.IntRange(0, 3).Draw(t, "is a schedule") == 0 {
		o.Schedule = &Schedule{
			Incarnation: number.Draw(t, "incarnation"), AppliedBy: text.Draw(t, "applied by"), Next: moment.Draw(t, "next"), Begins: moment.Draw(t, "begins"), Last: moment.Draw(t, "last"),
			Free: moment.Draw(t, "free"), PausedAt: moment.Draw(t, "paused at"), Resumed: moment.Draw(t, "resumed"), Started: number.Draw(t, "started"), Skipped: number.Draw(t, "skipped"),
			Backfilled: number.Draw(t, "backfilled"),
		}
		if rapid.Bool().Draw(t, "is there") {
			o.Schedule.Says = &events.Schedule{Every: "1h", Workflow: rapid.StringMatching("[a-z]*").Draw(t, "workflow"), Start: moment.Draw(t, "start"), Input: []byte(`{"a":1,"a":2}`)}
		}
		for range rapid.IntRange(0, 3).Draw(t, "open") {
			o.Schedule.Open = append(o.Schedule.Open, Tick{moment.Draw(t, "tick"), text.Draw(t, "order"), rapid.Bool().Draw(t, "recalled")})
		}
		for range rapid.IntRange(0, 2).Draw(t, "pauses") {
			o.Schedule.Pauses = append(o.Schedule.Pauses, Pause{moment.Draw(t, "from"), moment.Draw(t, "until")})
		}
		for range rapid.IntRange(0, 2).Draw(t, "backfills") {
			o.Schedule.Backfills = append(o.Schedule.Backfills, Backfill{number.Draw(t, "number"), moment.Draw(t, "from"), moment.Draw(t, "to"), number.Draw(t, "left"), number.Draw(t, "at once"), text.Draw(t, "by"), o.Schedule.Open})
		}
		for range rapid.IntRange(0, 2).Draw(t, "commands") {
			o.Schedule.Commands = append(o.Schedule.Commands, text.Draw(t, "command"))
		}
	}
	return o
}

func TestRecordRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := drawOrder(t)
		tail := rapid.SliceOf(rapid.Byte()).Draw(t, "tail")
		got, rest, err := decodeRecord(o.ID, append(appendRecord(nil, o), tail...))
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, o) {
			t.Fatalf("read is\n%+v, not\n%+v", got, o)
		}
		if !bytes.Equal(rest, tail) {
			t.Fatalf("what is left is %x, not %x", rest, tail)
		}
	})
}

func positions(t *testing.T, text string) (p events.Positions) {
	t.Helper()
	must(t, json.Unmarshal([]byte(text), &p))
	return p
}

func TestHeadRoundTrip(t *testing.T) {
	s, _ := temporary(t)
	for _, next := range []string{`{}`, `{"orders":1125899906842624,"replies":0,"commands":7}`, `{"replies":3}`, `{"replies":3,"timers":4}`} {
		want := Head{
			Offset: 1 << 50, Transaction: 1<<64 - 1, Next: positions(t, next),
			Owner: "i-1", Claim: "c", ClaimedAt: start, Partitions: 1<<31 - 1,
			format: 3, vocabulary: 1 << 20,
		}
		must(t, s.db.Set(prefix(0, kindHead), appendHead(nil, &want), nil))
		if got := partition(t, s, 0).Head(); got != want || got.Next.String() != next {
			t.Errorf("read is %+v, not %+v", got, want)
		}
	}
}

// FuzzDecodeRecord: no bytes make the codec panic, and what it reads it would
// write so that it reads the same.
func FuzzDecodeRecord(f *testing.F) {
	for seed := range 8 {
		f.Add(appendRecord(nil, rapid.Custom(drawOrder).Example(seed)))
	}
	f.Add([]byte{})
	f.Add(bytes.Repeat([]byte{0xff}, 40))
	f.Fuzz(func(t *testing.T, b []byte) {
		o, rest, err := decodeRecord("o-1", b)
		if err != nil {
			if !errors.Is(err, ErrDamaged) {
				t.Fatalf("%v does not say that the record is damaged", err)
			}
			return
		}
		if len(rest) > len(b) {
			t.Fatal("there is more left than there was")
		}
		if o.Alert != nil && (o.Alert.At.Year() < 0 || o.Alert.At.Year() > 9999) {
			return // JSON cannot say it, and the clock never does
		}
		written := appendRecord(nil, o)
		again, _, err := decodeRecord("o-1", written)
		if err != nil {
			t.Fatalf("%+v cannot be read again: %v", o, err)
		}
		if rewritten := appendRecord(nil, again); !bytes.Equal(rewritten, written) {
			t.Fatalf("written is %q, and then %q", written, rewritten)
		}
	})
}

func FuzzJournalOffsets(f *testing.F) {
	f.Add([]byte{1, 2, 3})
	f.Add([]byte{0xff})
	f.Fuzz(func(_ *testing.T, b []byte) { journalOffsets(b) })
}
