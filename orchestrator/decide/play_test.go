package decide

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/go-json-experiment/json"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/proof"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/inspect"
)

// TestPlays performs the files under testdata/plays. Each tells one part of
// the pattern: commands, and below each what followed, one line an event. A
// line with an arrow is a message that left with the event above it. After
// every command the invariants are checked. -rewrite writes the results anew.
// The plays of the example tell what becomes of the orders of its workflow;
// -plays DIRECTORY performs those about somebody's own.
//
//	workflow [file=PATH]       registers the workflow file that stands below, or is
//	        named, as it is seen from the play
//	submit ID workflow=NAME [version=] [input=JSON] [reply-to=TOPIC] [priority=] [deadline=12:00:30] [labels=JSON] [rerun-of=ID] [by=NAME] [submitters=(…)]
//	        size=N says that the record had so many bytes, more than are allowed; signed= as of commands
//	reply ID step=NAME attempt=N [undo] completed [output=JSON]
//	reply ID step=NAME attempt=N [undo] failed [code=] [permanent]
//	        written=12:00:05 gives the record another time than now, from=SOURCE says who answers,
//	        token repeats that of the request, token=TEXT is another
//	cancel, resubmit, skip-step, pause, resume, label, release, terminate, change, migrate, decide
//	        ID [step=NAME] [input=JSON] [output=JSON] [same-key] [new-key] [to=VERSION] [map=(OLD=NEW ...)] [discard] [by=NAME] [note=(…)] [id=ID]
//	        are an operator's commands; signed=12:00:05 says that an instance knew who gave it, then,
//	        by a key with the role operator, or with roles=(…); signed-by=ID that this key of the namespace says so
//	        times=N has an input of any kind come so often; of what is recorded the first and
//	        the last is shown
//	apply @NAME, delete @NAME  are those on a schedule, which stands below as JSON; it is paused and resumed as an order is
//	apply @/limit.NAME, delete @/limit.NAME  are those on a limit, in the same way
//	signal by-key NAME key=KEY [as below]
//	signal ID NAME [id=] [data=JSON] [keep-until=12:00:30] [reply-to=TOPIC] [from=SOURCE]
//	        is what the world tells the order; size=N has data of so many bytes, and an id that ends
//	        with % has a number of its own each time
//	unregister NAME, register NAME   has no version of a workflow be there, and all again
//	format N                   raises the partition to a format, or begins anew in an older one
//	curse ID                   has deciding on an order panic, whatever the input
//	brittle                    has deciding on any input with the payload "poison-pill" panic
//	heal                       ends both
//	mute, unmute               has what orders tell each other wait on its topic, or be read
//	clock-skew DURATION        is the allowance for it
//	advance DURATION           moves the clock
//	supervise                  has the supervisor look, as it does every second
//	refuse topic=T reason=(…)  has Kafka refuse records for a topic; limit=N only those of more bytes
//	away topic=T reason=(…)    has Kafka not take records for a topic now, though it may later
//	silent topic=T             has its agent give no sign while others wait for it
//	delivered topic=T [reason=(…)]  has Kafka acknowledge what steps give a topic, or refuse it for a reason
//	permit topic=T             ends all three
//	keys ID ... [others=off|watch|require] [AGENT=off|watch|require]
//	        are those of the namespace, and what replies need; - for none
//	retire, restore NAME@VERSION  has nothing new begin with a version, or ends that
//	claims on|off              says whether people decide who are not known
//	reply-topics PATTERN ...        says which topics submissions may name
//	undelivered topic=T reason=(…)  says that a caller's own topic does not take what it is owed
//	crash                      loses the instance and its store; the store is rebuilt from the journal
//	takeover instance=ID       gives the partition to an instance; it reads what waited
//	state ID, deadlines        show the store
func TestPlays(t *testing.T) {
	directories := []string{"testdata/plays", "../../examples/order-fulfilment/plays"}
	if *playsOf != "" {
		directories = []string{*playsOf}
	}
	for _, directory := range directories {
		datadriven.Walk(t, directory, func(t *testing.T, path string) {
			p := &play{stage: newStage(t), at: filepath.Dir(path)}
			defer func() { p.close() }() // of the last stage
			p.takeOver(t, "i-1")
			datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
				var out strings.Builder
				p.perform(t, d, &out)
				if p.stage != p.checked { // it began anew
					p.checked, p.inspector = p.stage, inspect.New()
				}
				p.check(t, p.inspector)
				return long.ReplaceAllStringFunc(out.String(), func(s string) string { return fmt.Sprintf("x(%d)", len(s)) })
			})
		})
	}
}

// long is what the results of a play do not spell out.
var long = regexp.MustCompile(`x{1000,}`)

var playsOf = flag.String("plays", "", "perform the plays of this directory, and no other")

type play struct {
	*stage
	at string // the directory of the play
	// What was checked after the directive before, and by whom.
	checked   *stage
	inspector *inspect.Inspector
}

func (p *play) perform(t *testing.T, d *datadriven.TestData, out *strings.Builder) {
	switch d.Cmd {
	case "workflow":
		flow, err := p.workflow(t, d)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		p.flows.Add(flow)
		fmt.Fprintf(out, "%s registered\n", flow.ID())
	case "retire", "restore":
		name, version, _ := strings.Cut(d.CmdArgs[0].Key, "@")
		number, err := strconv.Atoi(version)
		must(t, err)
		p.flows.Retire(name, number, d.Cmd == "retire")
		fmt.Fprintf(out, "%s is retired: %t\n", d.CmdArgs[0].Key, d.Cmd == "retire")
	case "unregister":
		p.gone[d.CmdArgs[0].Key] = true
		fmt.Fprintf(out, "%s is not registered any more\n", d.CmdArgs[0].Key)
	case "register":
		delete(p.gone, d.CmdArgs[0].Key)
		fmt.Fprintf(out, "%s is registered again\n", d.CmdArgs[0].Key)
	case "submit":
		p.orders = append(p.orders, slices.Repeat([]submission{p.submission(t, d)}, times(t, d))...)
		p.act(t, out)
	case "reply":
		p.replies = append(p.replies, slices.Repeat([]reply{p.reply(t, d)}, times(t, d))...)
		p.act(t, out)
	case "format":
		format, err := strconv.Atoi(d.CmdArgs[0].Key)
		must(t, err)
		if format < p.format {
			p.close()
			p.stage = newStage(t)
			p.format = format
			p.takeOver(t, "i-1")
		} else {
			p.records = append(p.records, p.laneRecord(&events.Event{Type: events.PartitionRaised, At: p.now, Format: format}))
			p.commit(t)
			p.state.Raise(format)
			p.format = format
		}
		fmt.Fprintf(out, "the partition is of format %d\n", format)
	case "signal":
		s := p.signal(t, d)
		numbered, ok := strings.CutSuffix(s.value.ID, "%")
		for i := range times(t, d) {
			if ok {
				s.value.ID = fmt.Sprint(numbered, i+1)
			}
			p.signals = append(p.signals, s)
		}
		p.act(t, out)
	case events.CommandCancel, events.CommandResubmit, events.CommandSkipStep, events.CommandPause, events.CommandResume, events.CommandLabel, events.CommandRelease, events.CommandTerminate, events.CommandChange, events.CommandMigrate, events.CommandDecide, events.CommandApply, events.CommandDelete, events.CommandBackfill, "command":
		p.commands = append(p.commands, slices.Repeat([]command{p.command(t, d)}, times(t, d))...)
		p.act(t, out)
	case "curse":
		p.cursed[d.CmdArgs[0].Key] = true
		fmt.Fprintf(out, "from now on deciding on %s panics\n", d.CmdArgs[0].Key)
	case "again": // what an order was told last is put back
		i := len(p.internal) - 1
		for ; string(p.internal[i].Key) != d.CmdArgs[0].Key; i-- {
		}
		p.internal = append(p.internal, p.internal[i])
		p.passOn(t, out)
	case "brittle":
		p.brittle = true
		fmt.Fprintf(out, "from now on deciding on %s panics\n", pill)
	case "heal":
		clear(p.cursed)
		p.brittle = false
		fmt.Fprintln(out, "nothing panics any more")
	case "mute":
		p.mute = true
		fmt.Fprintln(out, "what orders tell each other waits")
	case "unmute":
		p.mute = false
		p.passOn(t, out)
	case "clock-skew":
		var err error
		p.skew, err = time.ParseDuration(d.CmdArgs[0].Key)
		must(t, err)
		fmt.Fprintf(out, "attempts expire %v after their complete-by\n", p.skew)
	case "advance":
		by, err := time.ParseDuration(d.CmdArgs[0].Key)
		must(t, err)
		p.now = p.now.Add(by)
		fmt.Fprintf(out, "it is %s\n", inspect.Clock(p.now))
	case "supervise":
		p.supervise(t, page)
		p.print(out, p.commit(t))
		p.passOn(t, out)
	case "refuse":
		var topic, reason string
		var limit int
		d.ScanArgs(t, "topic", &topic)
		d.MaybeScanArgs(t, "reason", &reason)
		d.MaybeScanArgs(t, "limit", &limit)
		p.refused[topic] = refusal{reason, limit}
		fmt.Fprintf(out, "from now on Kafka refuses %s\n", topic)
	case "claims":
		p.claims = d.CmdArgs[0].Key == "on"
		fmt.Fprintf(out, "people decide who are not known: %t\n", p.claims)
	case "keys":
		var keys []proof.Key
		others, settings := proof.Watch, make(map[string]proof.Setting)
		for _, arg := range d.CmdArgs {
			switch {
			case len(arg.Vals) == 0 && arg.Key != "-":
				keys = append(keys, proof.Key{ID: arg.Key, Secret: []byte("of " + arg.Key)})
			case arg.Key == "others":
				others = proof.Setting(arg.Vals[0])
			case arg.Key != "-":
				settings[arg.Key] = proof.Setting(arg.Vals[0])
			}
		}
		p.keys = nil
		if keys != nil {
			p.keys = proof.New(keys, others, settings)
		}
		fmt.Fprintf(out, "the namespace has %d keys\n", len(keys))
	case "reply-topics":
		p.replyTopics = nil
		for _, arg := range d.CmdArgs {
			p.replyTopics = append(p.replyTopics, arg.Key)
		}
		fmt.Fprintf(out, "submissions may name %q\n", p.replyTopics)
	case "away":
		var topic, reason string
		d.ScanArgs(t, "topic", &topic)
		d.ScanArgs(t, "reason", &reason)
		p.away[topic] = refusal{why: reason}
		fmt.Fprintf(out, "Kafka cannot take %s now\n", topic)
	case "silent":
		var topic string
		d.ScanArgs(t, "topic", &topic)
		p.silent[topic] = true
		fmt.Fprintf(out, "who reads %s gives no sign, and others wait for it\n", topic)
	case "undelivered":
		var topic, reason string
		d.ScanArgs(t, "topic", &topic)
		d.ScanArgs(t, "reason", &reason)
		must(t, p.state.Flush())
		owed, err := p.state.Owed(topic, 0, p.end, 1_000)
		must(t, err)
		for _, o := range owed {
			fmt.Fprintf(out, "%s is told that order %s is %s\n", p.topics.Status, o.Order, o.Value)
			p.take(Undelivered(p.env(o.Order), p.of(t, o.Order), topic, reason))
		}
		p.print(out, p.commit(t))
	case "delivered":
		var topic, reason string
		d.ScanArgs(t, "topic", &topic)
		d.MaybeScanArgs(t, "reason", &reason)
		p.deliver(t, topic, reason)
		p.print(out, p.commit(t))
		p.passOn(t, out)
	case "permit":
		var topic string
		d.ScanArgs(t, "topic", &topic)
		delete(p.refused, topic)
		delete(p.away, topic)
		delete(p.silent, topic)
		fmt.Fprintf(out, "Kafka takes %s again\n", topic)
	case "crash":
		p.crash(t)
		fmt.Fprintf(out, "rebuilt from %d journal records: the same, key by key\n", len(p.journal))
	case "takeover":
		var instance string
		d.ScanArgs(t, "instance", &instance)
		p.print(out, []*kgo.Record{p.takeOver(t, instance)})
		p.act(t, out)
	case "state":
		must(t, p.state.Flush())
		o, _, err := p.store.Order(0, d.CmdArgs[0].Key)
		if errors.Is(err, projections.ErrNotFound) {
			fmt.Fprintln(out, "no such order")
			return
		}
		if errors.Is(err, projections.ErrForgotten) {
			fmt.Fprintln(out, err)
			return
		}
		must(t, err)
		printState(out, o, p.now)
	case "deadlines":
		must(t, p.state.Flush())
		due, err := p.state.Due(p.now.AddDate(1, 0, 0), 1000)
		must(t, err)
		p.state.Rescan()
		for _, due := range due {
			fmt.Fprintf(out, "%s %s %s\n", inspect.Clock(due.At), due.Order, due.Step)
		}
	default:
		d.Fatalf(t, "unknown command")
	}
	if out.Len() == 0 {
		out.WriteString("nothing\n")
	}
}

func (p *play) workflow(t *testing.T, d *datadriven.TestData) (*workflow.Workflow, error) {
	if !d.HasArg("file") {
		return workflow.Parse("workflow.yaml", []byte(d.Input))
	}
	var file string
	d.ScanArgs(t, "file", &file)
	text, err := os.ReadFile(filepath.Join(p.at, file))
	if err != nil {
		return nil, err
	}
	return workflow.Parse(file, text)
}

func (p *play) submission(t *testing.T, d *datadriven.TestData) submission {
	s := submission{id: d.CmdArgs[0].Key}
	var input, priority string
	d.MaybeScanArgs(t, "workflow", &s.value.Workflow)
	d.MaybeScanArgs(t, "version", &s.value.Version)
	d.MaybeScanArgs(t, "reply-to", &s.value.ReplyTo)
	d.MaybeScanArgs(t, "priority", &priority)
	if d.MaybeScanArgs(t, "input", &input) {
		s.value.Input = []byte(input)
	}
	s.value.Priority = events.Priority(priority)
	var deadline string
	if d.MaybeScanArgs(t, "deadline", &deadline) {
		s.value.Deadline = today(t, deadline)
	}
	var labels string
	if d.MaybeScanArgs(t, "labels", &labels) {
		must(t, json.Unmarshal([]byte(labels), &s.value.Labels))
	}
	d.MaybeScanArgs(t, "trace", &s.trace)
	d.MaybeScanArgs(t, "tracestate", &s.tracestate)
	d.MaybeScanArgs(t, "baggage", &s.baggage)
	d.MaybeScanArgs(t, "rerun-of", &s.value.RerunOf)
	d.MaybeScanArgs(t, "by", &s.value.By)
	for _, arg := range d.CmdArgs {
		if arg.Key == "submitters" {
			s.value.Submitters = strings.Fields(strings.Join(arg.Vals, " "))
		}
	}
	if d.HasArg("signed") {
		text, err := s.value.Encode()
		must(t, err)
		var signed string
		d.ScanArgs(t, "signed", &signed)
		s.actor = p.keys.Sign(p.topics.Namespace, s.id, text, &events.Actor{Method: "key", Roles: []string{"submitter"}, At: today(t, signed)})
	}
	var size int
	if d.MaybeScanArgs(t, "size", &size) { // what reading the record found
		s.problem = fmt.Errorf("the submission has %d bytes; at most %d are allowed", size, events.MaxValue)
		s.text = bytes.Repeat([]byte(" "), size)
		text, err := s.value.Encode()
		must(t, err)
		copy(s.text, text)
	}
	return s
}

func (p *play) reply(t *testing.T, d *datadriven.TestData) reply {
	r := reply{id: d.CmdArgs[0].Key, written: p.now}
	r.value.Order = r.id
	d.ScanArgs(t, "step", &r.value.Step)
	d.ScanArgs(t, "attempt", &r.value.Attempt)
	r.value.Undo = d.HasArg("undo")
	d.MaybeScanArgs(t, "from", &r.source)
	for _, arg := range d.CmdArgs {
		switch {
		case arg.Key != "token":
		case len(arg.Vals) > 0:
			r.value.Token = arg.Vals[0]
		default:
			r.value.Token = p.tokens[work{r.id, r.value.Step, r.value.Attempt, r.value.Undo}]
		}
	}
	switch {
	case d.HasArg("progress"):
		r.value.Status = events.ReplyProgress
	case d.HasArg("completed"):
		r.value.Status = events.ReplyCompleted
		var output string
		if d.MaybeScanArgs(t, "output", &output) {
			r.value.Output = []byte(output)
		}
	default:
		r.value.Status = events.ReplyFailed
		if d.HasArg("code") {
			r.value.Error = &events.Error{Permanent: d.HasArg("permanent")}
			d.ScanArgs(t, "code", &r.value.Error.Code)
		}
	}
	var written string
	if d.MaybeScanArgs(t, "written", &written) {
		r.written = today(t, written)
	}
	return r
}

func (p *play) signal(t *testing.T, d *datadriven.TestData) signal {
	s := signal{id: d.CmdArgs[0].Key}
	s.value.Signal = d.CmdArgs[1].Key
	var data, until string
	if d.MaybeScanArgs(t, "key", &s.value.Key) {
		s.id = events.CorrelationID(s.value.Signal, s.value.Key)
	}
	d.MaybeScanArgs(t, "id", &s.value.ID)
	if d.MaybeScanArgs(t, "data", &data) {
		s.value.Data = []byte(data)
	}
	var size int
	if d.MaybeScanArgs(t, "size", &size) {
		s.value.Data = []byte(`"` + strings.Repeat("x", size-len(`""`)) + `"`)
	}
	if d.MaybeScanArgs(t, "keep-until", &until) {
		s.value.KeepUntil = today(t, until)
	}
	d.MaybeScanArgs(t, "reply-to", &s.value.ReplyTo)
	d.MaybeScanArgs(t, "by", &s.value.By)
	d.MaybeScanArgs(t, "from", &s.source)
	return s
}

// today is a time of the day of the play.
func today(t *testing.T, text string) time.Time {
	at, err := time.Parse(time.TimeOnly, text)
	must(t, err)
	return inspect.Curtain.Truncate(24 * time.Hour).Add(at.Sub(at.Truncate(24 * time.Hour)))
}

func (p *play) command(t *testing.T, d *datadriven.TestData) command {
	c := command{id: d.CmdArgs[0].Key}
	c.value.Command = d.Cmd
	if d.Cmd == events.CommandApply && events.IsPlaces(c.id) && d.Input != "" {
		says, err := events.Decode[events.Limit]([]byte(d.Input))
		must(t, err)
		c.value.Limit = &says
	} else if d.Cmd == events.CommandApply && d.Input != "" {
		says, err := events.Decode[events.Schedule]([]byte(d.Input))
		must(t, err)
		c.value.Schedule = &says
	}
	signed, by, roles := time.Time{}, p.keys, []string{"operator"}
	for _, arg := range d.CmdArgs[1:] {
		value := strings.Join(arg.Vals, " ")
		switch arg.Key {
		case "command":
			c.value.Command = value
		case "step":
			c.value.Step = value
		case "at-once":
			n, err := strconv.Atoi(value)
			must(t, err)
			c.value.AtOnce = n
		case "from":
			c.value.From = today(t, value)
		case "until":
			c.value.To = today(t, value)
		case "outcome":
			c.value.Outcome = value
		case "roles":
			roles = strings.Fields(value)
		case "input":
			c.value.Input = []byte(value)
		case "output":
			c.value.Output = []byte(value)
		case "labels":
			must(t, json.Unmarshal([]byte(value), &c.value.Labels))
		case "same-key":
			c.value.SameKey = true
		case "new-key":
			c.value.NewKey = true
		case "to":
			c.value.ToVersion, _ = strconv.Atoi(value)
		case "map":
			c.value.Map = make(map[string]string)
			for pair := range strings.FieldsSeq(value) {
				old, name, _ := strings.Cut(pair, "=")
				c.value.Map[old] = name
			}
		case "discard":
			c.value.Discard = true
		case "priority":
			c.value.Priority = events.Priority(value)
		case "deadline":
			if c.value.NoDeadline = value == "none"; !c.value.NoDeadline {
				c.value.Deadline = today(t, value)
			}
		case "by":
			c.value.By = value
		case "note":
			c.value.Note = value
		case "id":
			c.value.ID = value
		case "signed":
			signed = today(t, value)
		case "signed-by":
			by = proof.New([]proof.Key{{ID: value, Secret: []byte("of " + value)}}, proof.Off, nil)
		}
	}
	if !signed.IsZero() {
		text, err := c.value.Encode()
		must(t, err)
		c.actor = by.Sign(p.topics.Namespace, c.id, text, &events.Actor{Method: "key", Roles: roles, At: signed})
	}
	return c
}

// times is how often an input comes.
func times(t *testing.T, d *datadriven.TestData) int {
	n := 1
	d.MaybeScanArgs(t, "times", &n)
	return n
}

// act has the owner, if there is one, read its inputs.
func (p *play) act(t *testing.T, out *strings.Builder) {
	if p.owner == "" {
		fmt.Fprintln(out, "it waits on its topic: nobody owns the partition")
		return
	}
	p.read(t)
	for _, id := range p.unknown {
		fmt.Fprintf(out, "    -> %s: input for %s, which is not there\n", p.topics.DeadLetters, id)
	}
	p.unknown = nil
	dropped := p.eventless
	written := p.commit(t)
	if many := 50; len(written) > many {
		p.print(out, written[:1])
		fmt.Fprintf(out, "... %d records\n", len(written)-2)
		written = written[len(written)-1:]
	}
	p.print(out, written)
	p.passOn(t, out)
	if dropped > 0 {
		fmt.Fprintf(out, "%d left no event\n", dropped)
	}
	must(t, p.state.Flush())
}

// passOn has orders hear what they were told, until all is quiet.
func (p *play) passOn(t *testing.T, out *strings.Builder) {
	for !p.mute && p.position.At(events.InputInternal) < int64(len(p.internal)) {
		p.listen(t)
		p.print(out, p.commit(t))
	}
}

func (p *play) print(out *strings.Builder, records []*kgo.Record) {
	for _, r := range records {
		if r.Topic == p.topics.DeadLetters {
			fmt.Fprintf(out, "    -> %s: %s (%s)\n", r.Topic, r.Value, events.Header(r, headerReason))
			continue
		}
		if r.Topic != p.topics.Journal {
			fmt.Fprintf(out, "    -> %s: %s\n", r.Topic, message(r)+passed(r))
			continue
		}
		e, err := events.Decode[events.Event](r.Value)
		if err != nil {
			fmt.Fprintln(out, err)
			continue
		}
		if e.Type == events.PartitionAdvanced {
			continue // an input was read that changed nothing
		}
		name := strings.TrimPrefix(string(e.Type), "waybill.")
		if e.Order != "" {
			name = fmt.Sprintf("%s/%d %s", e.Order, e.Seq, name)
		}
		fmt.Fprintln(out, name+inspect.Fields(&e))
	}
}

// passed shows what a record has of its order's submission.
func passed(r *kgo.Record) (all string) {
	for _, key := range []string{events.HeaderTracestate, events.HeaderBaggage} {
		if value := events.Header(r, key); value != "" {
			all += " " + key + "=" + value
		}
	}
	return all
}

// message shows a record that is not for the journal, as its reader sees it.
func message(r *kgo.Record) string {
	switch kind := events.Type(events.Header(r, events.HeaderType)); kind {
	case events.StepRequested:
		m, _ := events.Decode[events.Request](r.Value)
		s := fmt.Sprintf("%s #%d complete-by=%s key=%s", m.Operation, m.Attempt, inspect.Clock(m.CompleteBy), m.IdempotencyKey)
		if !m.ExtendTo.IsZero() {
			s += " extend-to=" + inspect.Clock(m.ExtendTo)
		}
		if m.Priority != "" {
			s += " priority=" + string(m.Priority)
		}
		if m.Token != "" {
			s += " token"
		}
		if m.Undo {
			s += " undo outcome=" + m.Outcome
		}
		if m.Input != nil {
			s += " input=" + string(m.Input)
		}
		if m.Output != nil {
			s += " output=" + string(m.Output)
		}
		return s
	case events.OrderStatus:
		m, _ := events.Decode[events.Status](r.Value)
		s := m.Status
		if d := m.Detail; d != nil {
			if d.Reason != "" {
				s += " (" + d.Reason + ")"
			}
			if d.Output != nil {
				s += " output=" + string(d.Output)
			}
			if d.Undone != nil {
				s += " undone=" + strings.Join(d.Undone, ",")
			}
			if d.NotUndone != nil {
				s += " not-undone=" + strings.Join(d.NotUndone, ",")
			}
			if d.FailedSteps != nil {
				s += " failed-steps=" + strings.Join(d.FailedSteps, ",")
			}
		}
		return s
	case events.ChildWanted:
		m, _ := events.Decode[events.Wish](r.Value)
		s := fmt.Sprintf("%s %s for step %s of %s", m.Wish, m.Child, m.Step, m.Parent)
		if m.Workflow != "" {
			s += fmt.Sprintf(" workflow=%s version=%d depth=%d input=%s", m.Workflow, m.Version, m.Depth, m.Input)
		}
		if !m.Deadline.IsZero() {
			s += " deadline=" + inspect.Clock(m.Deadline)
		}
		return s
	case events.ChildReported:
		m, _ := events.Decode[events.Report](r.Value)
		s := fmt.Sprintf("%s is %s, for step %s of %s", m.Child, m.State, m.Step, m.Parent)
		if m.Output != nil {
			s += " output=" + string(m.Output)
		}
		if m.Error != nil {
			s += " error=" + m.Error.Text()
		}
		if m.Left {
			s += " left"
		}
		return s
	case events.SignalWanted:
		m, _ := events.Decode[events.Want](r.Value)
		s := fmt.Sprintf("%s of wait %d of %s, step %s", m.Want, m.Wait, m.Order, m.Step)
		if m.SignalID != "" {
			s += fmt.Sprintf(": %s over=%t given=%d %s", m.SignalID, m.Over, m.Given, m.Reason)
		}
		return s
	case events.SignalPassed:
		m, _ := events.Decode[events.Pass](r.Value)
		if m.Refused != "" {
			return fmt.Sprintf("wait %d of step %s is refused", m.Wait, m.Step)
		}
		return fmt.Sprintf("%s %s for wait %d of step %s, given=%d data=%s", m.Signal, m.SignalID, m.Wait, m.Step, m.Given, m.Data)
	case events.PlaceWanted:
		m, _ := events.Decode[events.Bid](r.Value)
		if m.Step == "" {
			return strings.TrimSpace(fmt.Sprintf("%s of turn %d of %s %s", m.Bid, m.Wait, m.Order, m.OnConflict))
		}
		return fmt.Sprintf("%s of place %d of %s, step %s, key=%s", m.Bid, m.Wait, m.Order, m.Step, m.Key)
	case events.PlaceGiven:
		m, _ := events.Decode[events.Grant](r.Value)
		switch {
		case m.Step == "" && m.Error != nil:
			return fmt.Sprintf("no turn %d for %s: %s", m.Wait, m.Order, m.Error.Text())
		case m.Step == "":
			return fmt.Sprintf("turn %d for %s", m.Wait, m.Order)
		case m.Error != nil:
			return fmt.Sprintf("no place %d of %s, step %s: %s", m.Wait, m.Home, m.Step, m.Error.Text())
		}
		return fmt.Sprintf("place %d of %s, step %s", m.Wait, m.Home, m.Step)
	case events.AlertRaised:
		m, _ := events.Decode[events.Alert](r.Value)
		s := "alert"
		for i := range m.Errors {
			step := m.Errors[i].Step
			if m.Errors[i].Undo {
				step = "undo of " + step
			}
			s += " " + fmt.Sprintf("%s #%d %s", step, m.Errors[i].Attempt, inspect.Fault(&m.Errors[i]))
		}
		s += "\n       " + m.Action
		return s
	default:
		s := fmt.Sprintf("%s id=%s", kind, events.Header(r, "ce_id"))
		if subject := events.Header(r, "ce_subject"); string(r.Key) != subject {
			s += fmt.Sprintf(" key=%s of %s", r.Key, subject)
		}
		return fmt.Sprintf("%s: %s", s, r.Value)
	}
}

func printState(out *strings.Builder, o *projections.Order, now time.Time) {
	orNone := func(s string) string {
		if s == "" {
			return "nobody"
		}
		return s
	}
	if s := o.Schedule; s != nil {
		printSchedule(out, o, s)
		return
	}
	if s := o.Places; s != nil {
		fmt.Fprintf(out, "is there=%t taken=%d waiting=%d oldest=%s\n", s.Says != nil, s.Taken, s.Waiting, inspect.Clock(s.Oldest))
		return
	}
	completeBy := "none"
	if at := o.CompleteBy(now); !at.IsZero() {
		completeBy = inspect.Clock(at)
	}
	fmt.Fprintf(out, "processState=%s lockedBy=%s completeBy=%s failureCount=%d workflow=%s\n",
		o.State, orNone(o.LockedBy), completeBy, o.FailureCount, workflow.ID(o.Workflow, o.Version))
	if o.Paused {
		fmt.Fprintln(out, "  paused")
	}
	if len(o.Labels) > 0 {
		fmt.Fprintf(out, "  found by: %q\n", o.Labels)
	}
	if o.RerunOf != "" {
		fmt.Fprintf(out, "  rerun of: %s\n", o.RerunOf)
	}
	if c := o.Correlation; c != nil {
		for _, w := range c.Waits {
			fmt.Fprintf(out, "  wait %d of %s, step %s, given=%d\n", w.Number, w.Order, w.Step, w.Given)
		}
	}
	for i := range o.Steps {
		s := &o.Steps[i]
		fmt.Fprintf(out, "  %s:", s.Name)
		printWork(out, &s.Work)
		if s.Unknown {
			fmt.Fprint(out, " may-have-run")
		}
		if s.Leaves {
			fmt.Fprint(out, " leaves")
		}
		for _, child := range o.LeftBy(s) {
			fmt.Fprintf(out, " left-by=%s", child)
		}
		for _, key := range s.Earlier {
			fmt.Fprintf(out, " or-under=%s", events.IdempotencyKey(o.ID, s.Name, key.Resubmissions))
		}
		if s.Output != nil {
			fmt.Fprintf(out, " output=%s", s.Output)
		}
		if e := s.Each; e != nil {
			fmt.Fprintf(out, " items=%d completed=%d failed=%d undone=%d not-undone=%d running=%v", e.Count, e.Done, e.Failed, e.Undone, e.NotUndone, e.Running)
			if n := e.Leaving(); n > 0 {
				fmt.Fprintf(out, " leaving=%d", n)
			}
		}
		if s.Undo != nil {
			fmt.Fprint(out, "; undo:")
			printWork(out, s.Undo)
		}
		fmt.Fprintln(out)
	}
	if output := o.Output(); output != nil {
		fmt.Fprintf(out, "  output: %s\n", output)
	}
	if o.Reason != "" {
		fmt.Fprintf(out, "  reason: %s\n", o.Reason)
	}
	if o.Alert != nil {
		fmt.Fprintf(out, "  alert open since %s\n", inspect.Clock(o.Alert.At))
	}
	for i := range o.Signals {
		if s := &o.Signals[i]; s.Kept() && s.Under != nil && s.Under.Given > 0 {
			fmt.Fprintf(out, "  signal %s %s given by event %d\n", s.Name, s.ID, s.Under.Given)
		} else if s.Kept() {
			fmt.Fprintf(out, "  signal %s %s kept until %s: %s\n", s.Name, s.ID, inspect.Clock(s.Until), s.Data)
		} else {
			fmt.Fprintf(out, "  signal %s %s acted\n", s.Name, s.ID)
		}
	}
	if o.Hold != nil {
		fmt.Fprintf(out, "  held; it was %s\n", o.Hold.State)
	}
	for i := range o.Waiting {
		fmt.Fprintf(out, "  waiting: %s\n", o.Waiting[i].Source)
	}
}

func printSchedule(out *strings.Builder, o *projections.Order, s *projections.Schedule) {
	fmt.Fprintf(out, "incarnation=%d is there=%t paused=%t started=%d skipped=%d\n", s.Incarnation, s.Says != nil, o.Paused, s.Started, s.Skipped)
	if !s.Next.IsZero() {
		fmt.Fprintf(out, "  next=%s begins=%s last=%s\n", inspect.Clock(s.Next), inspect.Clock(s.Begins), inspect.Clock(s.Last))
	}
	for _, t := range s.Open {
		fmt.Fprintf(out, "  open: %s recalled=%t\n", t.Order, t.Recalled)
	}
	for _, b := range s.Backfills {
		fmt.Fprintf(out, "  backfill %d: next=%s last=%s left=%d open=%d of %d\n", b.Number, inspect.Clock(b.Next), inspect.Clock(b.Last), b.Left, len(b.Open), b.AtOnce)
	}
	if o.Hold != nil {
		fmt.Fprintf(out, "  held: %s\n", o.Reason)
	}
}

func printWork(out *strings.Builder, w *projections.Work) {
	fmt.Fprintf(out, " %s", w.State)
	if w.Attempt > 0 {
		fmt.Fprintf(out, " attempt=%d failureCount=%d", w.Attempt, w.FailureCount)
	}
	if w.Round > 0 {
		fmt.Fprintf(out, " round=%d", w.Round)
	}
	if w.State == projections.Running {
		fmt.Fprintf(out, " completeBy=%s", inspect.Clock(w.CompleteBy))
	}
	if w.Waits() {
		fmt.Fprintf(out, " waits for a place, asked with %d", w.Turn)
	}
	if !w.Due.IsZero() {
		fmt.Fprintf(out, " due=%s", inspect.Clock(w.Due))
	}
	if w.Error != nil {
		fmt.Fprintf(out, " error=%s", inspect.Fault(w.Error))
	}
}
