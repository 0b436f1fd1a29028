package audit

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
)

// message is an input as docs/messages.md has it read.
type message struct {
	order string // "" if that cannot be read
	// unreadable says why nothing can be done but to put it aside.
	unreadable string

	// One of them, if it can be read.
	submission *submission
	reply      *said
	command    *told
	signal     *heard
	word       *word
}

func read(r *kgo.Record, topics *events.Topics) message {
	m := message{order: string(r.Key)}
	want := map[string]events.Type{topics.Orders: events.OrderSubmitted, topics.Replies: events.StepReplied, topics.Commands: events.OrderCommand, topics.Signals: events.OrderSignal}[r.Topic]
	kind := events.Type(events.Header(r, events.HeaderType))
	if r.Topic == topics.Internal {
		want = events.ChildWanted
		if kind == events.ChildReported || kind == events.SignalWanted || kind == events.SignalPassed || kind == events.PlaceWanted || kind == events.PlaceGiven {
			want = kind
		}
	}
	if want == events.OrderSignal {
		m.order = homeOf(r)
	}
	if kind != want && (kind != "" || r.Topic == topics.Internal) {
		return message{unreadable: fmt.Sprintf("it is of type %q", kind)}
	}
	var err error
	if m.order != "" || want != events.StepReplied { // the key of a reply may be left out
		if err := events.CheckOrderID(m.order); err != nil {
			return message{unreadable: err.Error()}
		}
	}
	switch want {
	case events.OrderSubmitted:
		err = m.submit(r)
	case events.StepReplied:
		err = m.answer(r)
	case events.OrderSignal:
		err = m.hear(r)
	case events.ChildWanted, events.ChildReported, events.SignalWanted, events.SignalPassed, events.PlaceWanted, events.PlaceGiven:
		err = m.tell(r, want)
	default:
		err = m.operate(r)
	}
	if err != nil {
		m.unreadable = err.Error()
		if m.order = string(r.Key); want == events.OrderSignal && homeOf(r) != m.order { // it is read wherever it is
			m.order = ""
		}
	}
	return m
}

// submission is the first that an order has.
type submission struct {
	events.Submission
	input       uint64 // the fingerprint of its input
	digest      string // of all that it says
	traceparent string
	tracestate  string
	baggage     string
	size        int
	problem     string // of the field that has the wrong form, if one has
	signature   signature
}

func (m *message) submit(r *kgo.Record) error {
	value, err := events.Decode[events.Submission](r.Value)
	if errors.Is(err, events.ErrUnreadable) {
		return err //nolint:wrapcheck // whoever reports it says of what
	}
	m.submission = &submission{Submission: value, input: hash(value.Input), digest: value.Digest(), size: len(r.Value), signature: signatureOf(r)}
	if err != nil { // the rest of the text differs from time to time
		const form = " has the wrong form"
		m.submission.problem = "unmarshal"
		if field, _, found := strings.Cut(err.Error(), form); found {
			m.submission.problem = field + form
		}
	}
	if t := events.Header(r, events.HeaderTraceparent); traceparentForm.MatchString(t) {
		m.submission.traceparent = t
		if s := events.Header(r, events.HeaderTracestate); len(s) <= 512 && list(s, 32, traceMember) && !strings.Contains(t, strings.Repeat("0", 32)) {
			m.submission.tracestate = s
		}
	}
	if b := events.Header(r, events.HeaderBaggage); len(b) <= 8192 && list(b, 64, baggageMember) {
		m.submission.baggage = b
	}
	return nil
}

// traceparentForm is that of W3C Trace Context.
var traceparentForm = regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)

// list says that a header has members of a form, and not too many.
func list(header string, most int, form *regexp.Regexp) bool {
	members := strings.Split(header, ",")
	return header != "" && len(members) <= most && !slices.ContainsFunc(members, func(m string) bool { return !form.MatchString(m) })
}

// traceMember and baggageMember are those of W3C Trace Context and W3C Baggage.
var (
	traceMember   = regexp.MustCompile(`^[ \t]*[a-z0-9][a-z0-9_*/@-]*=[ -+\--<>-~]*[!-+\--<>-~][ \t]*$`)
	baggageMember = func() *regexp.Regexp {
		// No two parts could take the same character, which makes it three times as fast.
		const blank, name = `[ \t]*`, "[!#$%&'*+.^_`|~0-9A-Za-z-]+"
		const value = `=` + blank + `(?:(?:%[0-9A-Fa-f]{2}|[!#$&-+\--:<-[\]-~])+` + blank + `)?`
		return regexp.MustCompile(`^` + blank + name + blank + value + `(?:;` + blank + name + blank + `(?:` + value + `)?)*$`)
	}()
)

// said is what a reply says, and what must be recorded of it.
type said struct {
	step    string
	attempt int
	undo    bool
	fault   *events.Error // nil if it completed
	output  uint64
	token   string
	sender  string // see senderOf
	// progress says that its agent is still at it: it may leave no event.
	progress bool
	// large says that its output may be refused: one of fewer bytes fits, and is not nested too deeply.
	large bool
}

func (a *said) String() string {
	what := "step " + a.step
	if a.undo {
		what = "undo of " + what
	}
	if a.progress {
		return fmt.Sprintf("a reply: %s, attempt %d, still at it", what, a.attempt)
	}
	if a.fault == nil {
		return fmt.Sprintf("a reply: %s, attempt %d, completed", what, a.attempt)
	}
	return fmt.Sprintf("a reply: %s, attempt %d, failed: %s", what, a.attempt, a.fault.Text())
}

func (m *message) answer(r *kgo.Record) error {
	value, err := events.Decode[events.Reply](r.Value)
	if err != nil {
		return err //nolint:wrapcheck // whoever reports it says of what
	}
	switch {
	case m.order == "":
		if err := events.CheckOrderID(value.Order); err != nil {
			return err //nolint:wrapcheck // as above
		}
		m.order = value.Order
	case m.order != value.Order:
		return fmt.Errorf("it is of order %q, and its key of order %q", value.Order, m.order)
	}
	m.reply = &said{step: value.Step, attempt: value.Attempt, undo: value.Undo, token: value.Token, sender: senderOf(r)}
	switch {
	case value.Status == events.ReplyProgress:
		m.reply.progress = true
	case value.Status != events.ReplyCompleted && value.Status != events.ReplyFailed:
		return fmt.Errorf("its status is %q", value.Status)
	case len(r.Value) > events.MaxValue:
		m.reply.fault = &events.Error{Code: "reply-too-large", Permanent: true}
	case value.Status == events.ReplyCompleted:
		m.reply.output, m.reply.large = hash(value.Output), len(value.Output) > 2_000
	case value.Error == nil:
		m.reply.fault = &events.Error{Code: "error", Message: "the agent gave no reason"}
	default:
		m.reply.fault = value.Error
		cutError(value.Error)
	}
	return nil
}

func cutError(e *events.Error) {
	e.Code, e.Message, e.Step = cut(e.Code, nameLength), cut(e.Message, textLength), cut(e.Step, nameLength)
}

// told is what a command asks for, and what must be recorded of it.
type told struct {
	do, id, step, by, note string
	input, output          uint64
	sameKey, newKey        bool
	discard                bool
	labels                 map[string]*string
	outcome                string
	priority               events.Priority
	deadline               time.Time
	noDeadline             bool
	version                int
	names                  map[string]string
	signature              signature
}

func (c *told) String() string { return fmt.Sprintf("command %q, %s %s", c.id, c.do, c.step) }

func (m *message) operate(r *kgo.Record) error {
	if len(r.Value) > events.MaxValue {
		return fmt.Errorf("it has %d bytes", len(r.Value))
	}
	value, err := events.Decode[events.Command](r.Value)
	if err != nil {
		return err //nolint:wrapcheck // whoever reports it says of what
	}
	m.command = &told{
		do: cut(value.Command, nameLength), id: cut(value.ID, nameLength), step: cut(value.Step, nameLength), by: cut(value.By, nameLength),
		note: cut(value.Note, textLength), input: hash(value.Input), output: hash(value.Output), sameKey: value.SameKey, newKey: value.NewKey, discard: value.Discard, labels: value.Labels,
		outcome: cut(value.Outcome, nameLength), priority: value.Priority, deadline: events.Time(value.Deadline), noDeadline: value.NoDeadline, version: value.ToVersion, names: value.Map,
		signature: signatureOf(r),
	}
	return nil
}

// Names and texts of others are recorded up to these lengths.
const (
	nameLength = 256
	textLength = 1 << 10
)

// cut is s as it is recorded: whole letters, at most n bytes, and a mark where
// the rest was.
func cut(s string, n int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= n {
		return s
	}
	const mark = "…"
	end := n - len(mark)
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + mark
}

// kept reads what an order keeps of an input that waits.
func kept(raw *events.Raw, at place, topics *events.Topics) message {
	if raw == nil {
		return message{}
	}
	r := &kgo.Record{Topic: at.topic, Partition: at.partition, Offset: at.offset, Key: raw.Key, Value: raw.Value, Timestamp: raw.Written}
	for _, h := range raw.Headers {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
	}
	return read(r, topics)
}
