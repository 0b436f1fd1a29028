//go:build unix

package chaos

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/test/audit"
	"github.com/waybill-dev/waybill/test/office"
	"github.com/waybill-dev/waybill/test/oracle"
)

// findings are what a run was, and what was wrong with it.
type findings struct {
	books                    *audit.Books
	claims, events, requests int
	clocks                   map[int32][]claim // of each partition, in turn

	lost, doubled, stuck, broken []string

	written map[int32][]time.Time // when each partition's orders had events

	takeovers                       []takeover
	fences, totals                  []time.Duration
	afterKill, kafkaUp              []time.Duration // until all partitions of the dead are served
	afterFreeze, afterTerm, afterUp []time.Duration
	quiet                           map[kind][]time.Duration // the longest silence of any partition around a broker's fault
	woken, reached                  zombies
	early                           int            // attempts that expired early by a clock beyond the allowance
	zeros                           int            // batches that nobody could read
	overtook                        int            // signals that came before their order, from another partition
	garbled, mended                 int            // submissions that were put aside, and how often they were put back
	ticked, begun                   int            // ticks of schedules, and those that began an order
	granted, awaited                int            // places of the limit, and attempts that waited for one
	skipped                         map[string]int // the others, by why
	diverted                        int            // orders whose caller's topic was given up
	undone                          map[int32]bool // partitions of which something was decided again
	unknown                         int            // commits whose outcome was unknown
	said                            map[string]int // messages in the instances' logs
}

// zombies are instances that came back to partitions that others own.
type zombies struct{ instances, partitions int }

// takeover is one that an instance logged.
type takeover struct {
	at        time.Time
	partition int
	instance  string
}

// finish lets all come to an end: the services are well, and operators let go
// what waits for them.
func (r *run) finish(ctx context.Context, f *findings) {
	r.service.Recover()
	ending := &office.Ending{Client: r.instances[0].client, Office: r.office, Open: r.load.IDs()}
	for deadline := time.Now().Add(endPatience); ; hold(ctx, 100*time.Millisecond) {
		err := r.unmended()
		if err == nil {
			err = ending.Look(ctx)
		} else {
			r.putBack(ctx, ending.Client, time.Time{}, false)
		}
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			r.Error(err)
			break
		}
	}
	r.pauseSchedules(ctx)
	for _, id := range ending.Open {
		f.stuck = append(f.stuck, "order "+id+" has not ended")
	}
	r.Logf("the last order ended %s after the faults were over", time.Since(r.calm).Round(100*time.Millisecond))
}

// recorder notes what checks of others say.
type recorder struct {
	testing.TB
	mu   sync.Mutex
	said []string
}

func (c *recorder) Errorf(format string, args ...any) { c.Error(fmt.Sprintf(format, args...)) }

func (c *recorder) Error(args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.said = append(c.said, fmt.Sprint(args...))
}

// check holds everything against everything.
func (r *run) check(f *findings) {
	rules := &recorder{TB: r.T}
	brokers := r.kafka.addresses()
	r.owners(f, brokers)
	f.readLogs(r)
	f.books = r.audit(f).Namespace(rules, brokers, &r.topics)
	for _, m := range f.books.Repeated {
		if p := r.partition(string(m.Key)); !f.undone[p] {
			rules.Errorf("%s: event %s of order %s is told twice, and nobody aborted a transaction of its partition %d that was acknowledged",
				m.Topic, events.Header(m, "ce_id"), m.Key, p)
		}
	}
	if r.without == nil && r.duration >= time.Minute {
		for _, wrong := range spared(r.faults) {
			rules.Error(wrong)
		}
	}
	if a := f.books.Accounts; a.Rejected > 0 || a.Panicked > 0 {
		rules.Errorf("%d orders were rejected, and deciding panicked %d times", a.Rejected, a.Panicked)
	}
	for _, wrong := range f.books.Unearned() {
		rules.Error(wrong)
	}
	first := f.placed(r, brokers)
	for _, dead := range oracle.Read(r.T, brokers, r.topics.DeadLetters) {
		why := events.Header(dead, "waybill_reason")
		submission, known := first[string(dead.Key)]
		switch source := cmp.Or(events.Header(dead, "waybill_forwarded_from"), events.Header(dead, "waybill_source")); {
		case strings.HasPrefix(why, "the batch with the offsets "):
			f.zeros++
		case strings.HasPrefix(source, r.topics.Orders+"/") && r.mended[string(dead.Key)] && events.Header(dead, "waybill_replayed_from") == "":
			f.garbled++
		case strings.HasPrefix(source, r.topics.Signals+"/") && known && overtook(source, submission):
			f.overtook++
		default:
			rules.Errorf("a dead letter, because %s: %s, %s %s", why, events.Header(dead, "waybill_source"), dead.Key, dead.Value)
		}
	}
	if f.garbled*f.mended == 0 {
		rules.Errorf("%d submissions were put aside, and put back %d times", f.garbled, f.mended)
	}
	if f.zeros > r.zeroed {
		rules.Errorf("%d batches were put aside, and %d were of zeros", f.zeros, r.zeroed)
	}
	f.broken = append(f.broken, rules.said...)

	submitted := make(map[string]bool)
	for _, id := range r.load.IDs() {
		submitted[id] = true
		switch n := f.books.Count(id, func(e *events.Event) bool { return e.Type == events.OrderAccepted }); {
		case n == 0:
			f.lost = append(f.lost, "order "+id+" was acknowledged, and not accepted")
		case n > 1:
			f.doubled = append(f.doubled, fmt.Sprintf("order %s was accepted %d times", id, n))
		}
	}
	for id := range f.books.Histories {
		f.diverted += f.books.Count(id, func(e *events.Event) bool { return e.Type == events.StatusRefused })
		if !submitted[id] && f.books.Histories[id][0].Parent == "" && events.ScheduleOf(id) == "" && !events.IsPlaces(id) && !events.IsCorrelation(id) { // whose wishes the audit knows
			f.doubled = append(f.doubled, "order "+id+" was submitted by nobody")
		}
	}
	for order, commands := range r.office.Sent() {
		for _, id := range commands {
			switch n := f.books.Commands(order, id); {
			case n == 0:
				f.lost = append(f.lost, fmt.Sprintf("order %s: command %s was not acted on", order, id))
			case n > 1:
				f.doubled = append(f.doubled, fmt.Sprintf("order %s: command %s was acted on %d times", order, id, n))
			}
		}
	}
	r.ticks(f)
	r.places(f)
	lost, doubled := r.service.Compare(f.books)
	f.lost, f.doubled = append(f.lost, lost...), append(f.doubled, doubled...)
	for _, m := range f.books.Messages {
		f.requests += len(m.Requests)
	}
}

// spared says which targets had no fault, and which faults, of those that need nothing of the machine, were left out each time. In a
// minute each target has one.
func spared(faults []done) (wrong []string) {
	hurt, left := make(map[string]int), make(map[kind]int)
	for _, d := range faults {
		switch {
		case d.Left == "":
			hurt[d.Target]++
			hurt[string(d.Kind)]++
		case d.Kind != fill:
			left[d.Kind]++
		}
	}
	if n := hurt["kafka"]; n == 0 {
		wrong = append(wrong, "Kafka was spared")
	}
	for _, target := range []string{"caller", "topics", "i1", "i2", "i3"} {
		if hurt[target] == 0 {
			wrong = append(wrong, target+" was spared")
		}
	}
	for _, k := range kinds {
		if left[k] > 1 && hurt[string(k)] == 0 {
			wrong = append(wrong, fmt.Sprintf("left out all %d times: %s", left[k], k))
		}
	}
	return wrong
}

// fail says what was wrong, at the end, where who reads what failed begins.
func (f *findings) fail(r *run) {
	for what, all := range map[string][]string{"lost": f.lost, "doubled": f.doubled, "stuck": f.stuck, "a rule is broken": f.broken} {
		for n, said := range all {
			if n == 20 {
				r.Errorf("%s: and %d more", what, len(all)-n)
				break
			}
			r.Errorf("%s: %s", what, said)
		}
	}
}

// placed is the partition into which its submitter put each order. It counts what was put back.
func (f *findings) placed(r *run, brokers []string) map[string]int32 {
	first := make(map[string]int32)
	for _, record := range oracle.Read(r.T, brokers, r.topics.Orders) {
		switch {
		case !audit.Copied(record):
			first[string(record.Key)] = record.Partition
		case !audit.Forwarded(record):
			f.mended++
		}
	}
	return first
}

// overtook says whether what stood there may have come before the submission of its order, which stood in
// a partition that is read by another lane, or was added.
func overtook(source string, submission int32) bool {
	parts := strings.Split(source, "/")
	return submission >= partitions || parts[len(parts)-2] != strconv.Itoa(int(submission))
}

// owners reads how often partitions were claimed, and wants that every attempt
// was begun by the instance that had claimed the partition last, and that none
// expired early but by a clock beyond the allowance.
func (r *run) owners(f *findings, brokers []string) {
	owner := make(map[int32]string)
	clocks := &clocks{completeBy: make(map[attempt]time.Time), owner: make(map[int32]time.Duration)}
	f.written, f.clocks = make(map[int32][]time.Time), make(map[int32][]claim)
	for _, record := range oracle.Read(r.T, brokers, r.topics.Journal) {
		e, err := events.Decode[events.Event](record.Value)
		if err != nil {
			f.broken = append(f.broken, err.Error())
			continue
		}
		f.events++
		if !clocks.take(r, record, &e) {
			f.broken = append(f.broken, fmt.Sprintf("journal %d/%d: order %s: step %s expired early", record.Partition, record.Offset, e.Order, e.Step))
		}
		switch {
		case e.Type == events.PartitionClaimed:
			f.claims++
			owner[record.Partition] = e.Instance
			f.clocks[record.Partition] = append(f.clocks[record.Partition], claim{record.Offset, clocks.owner[record.Partition]})
			continue
		case e.LockedBy != "" && e.LockedBy != owner[record.Partition]:
			f.broken = append(f.broken, fmt.Sprintf("journal %d/%d: written by %s, and the partition is claimed by %s", record.Partition, record.Offset, e.LockedBy, owner[record.Partition]))
		}
		f.written[record.Partition] = append(f.written[record.Partition], record.Timestamp)
	}
	f.early = clocks.early
}

// claim is where an owner begins in the journal, and how wrong its clock is.
type claim struct {
	offset int64
	wrong  time.Duration
}

// audit says what the run knows of the namespace.
func (r *run) audit(f *findings) audit.Audit {
	a := audit.Audit{Rest: true, Callers: r.callers(), Twice: true, Refusing: []string{r.narrow}, Wrong: f.wrong}
	if r.brokers == 1 {
		a.Forgetful = []string{r.topics.Requests(troubled)}
	} else { // a reply may stand on a leader long before its followers have it, and it can be read
		a.Wrong = func(*audit.Expiry) time.Duration { return furthest }
	}
	return a
}

// wrong is how wrong the clocks were of who began an attempt, and of who let it expire.
func (f *findings) wrong(x *audit.Expiry) (wrong time.Duration) {
	for _, at := range []int64{x.Started, x.Expired} {
		var owner claim
		for _, c := range f.clocks[x.Partition] {
			if c.offset <= at {
				owner = c
			}
		}
		wrong = max(wrong, owner.wrong.Abs())
	}
	return wrong
}

// partition is that of an order.
func (r *run) partition(order string) int32 {
	return int32(kgo.StickyKeyPartitioner(nil).ForTopic("").Partition(&kgo.Record{Key: []byte(order)}, partitions))
}

// hungAndEnded is what an instance says of a transaction that hung.
const hungAndEnded = "ended a transaction that hung"

// aborted is what it says if that was acknowledged, or may have been, and its events
// are gone: they are decided on again, and of what stood on other topics nothing is.
var aborted = regexp.MustCompile(`(?m)^time=.* msg="` + hungAndEnded + `".* commit=false topic=(\S+) on=(\d+) `)

var (
	numbers  = regexp.MustCompile(`\d+`)
	logged   = regexp.MustCompile(`(?m)^(?:time=\S+ level=(?:INFO|WARN|ERROR) msg="([^"]*)"|(waybill: .*))`) // or its last words
	tookOver = regexp.MustCompile(`(?m)^time=(\S+) .*msg="took the partition over" .*partition=(\d+) fence=(\S+).* total=(\S+)`)
	// fatal is what no instance may ever say, whatever is done to it. It may say that
	// it puts aside replies to orders that it does not know: a zombie does, whose
	// successor knows them, and it cannot commit that.
	fatal = regexp.MustCompile(`(?m)^(?:panic:|fatal error:|.*the partition is stopped|.*deciding panicked|.*is not a workflow of its key).*`)
	// noRoom is what Pebble says for itself where it has no room for a file of its log: nobody can take that up.
	noRoom = regexp.MustCompile(`(?s)^panic: .*unlock of unlocked mutex.*pebble/v2\.\(\*DB\)\.rotateWAL`)
)

// decidedAgain notes of which partitions a log says so.
func decidedAgain(log, journal string, partitions map[int32]bool) {
	for _, m := range aborted.FindAllStringSubmatch(log, -1) {
		if p, err := strconv.ParseInt(m[2], 10, 32); err == nil && m[1] == journal {
			partitions[int32(p)] = true
		}
	}
}

// readLogs reads what the instances said.
func (f *findings) readLogs(r *run) {
	f.said, f.undone = make(map[string]int), make(map[int32]bool)
	for _, i := range r.instances {
		log, err := os.ReadFile(i.log)
		if err != nil {
			r.Error(err)
			continue
		}
		for _, m := range logged.FindAllStringSubmatch(string(log), -1) {
			f.said[numbers.ReplaceAllString(m[1]+m[2], "N")]++
		}
		f.unknown += strings.Count(string(log), "its outcome is unknown")
		decidedAgain(string(log), r.topics.Journal, f.undone)
		for _, at := range fatal.FindAllIndex(log, -1) {
			if trace := log[at[0]:min(len(log), at[1]+1000)]; i.full && noRoom.Match(trace) {
				continue
			}
			f.broken = append(f.broken, i.name+" said: "+string(log[at[0]:at[1]]))
		}
		for _, m := range tookOver.FindAllStringSubmatch(string(log), -1) {
			at, err1 := time.Parse(time.RFC3339Nano, m[1])
			p, err2 := strconv.Atoi(m[2])
			fence, err3 := time.ParseDuration(m[3])
			total, err4 := time.ParseDuration(m[4])
			if err := cmp.Or(err1, err2, err3, err4); err != nil {
				r.Errorf("%s: %s: %v", i.name, m[0], err)
				continue
			}
			f.takeovers = append(f.takeovers, takeover{at, p, i.name})
			f.fences, f.totals = append(f.fences, fence), append(f.totals, total)
		}
	}
	slices.SortFunc(f.takeovers, func(a, b takeover) int { return a.at.Compare(b.at) })
}

// measure says how long it took to get over the faults.
func (f *findings) measure(r *run) {
	f.quiet = make(map[kind][]time.Duration)
	for _, d := range r.faults {
		switch served, ok := f.servedAgain(d.Target, d.Began, r.ended); d.Kind {
		case kafkaKill, kafkaRestart:
			f.afterUp = append(f.afterUp, f.writtenAgain(d.Ended, r.ended).Sub(d.Ended))
		case brokerKill, brokerRestart, brokerPause, rolling:
			f.quiet[d.Kind] = append(f.quiet[d.Kind], f.silence(d.Began, d.Ended))
		case handOver:
			if ok {
				f.afterTerm = append(f.afterTerm, served.Sub(d.Began))
			}
		case kill, wipe, flip:
			if !ok {
				continue
			}
			f.afterKill = append(f.afterKill, served.Sub(d.Began))
			if !slices.ContainsFunc(r.faults, func(o done) bool {
				return o.Target == "kafka" && o.Began.Before(served) && o.Ended.After(d.Began.Add(-10*time.Second))
			}) {
				f.kafkaUp = append(f.kafkaUp, served.Sub(d.Began))
			}
		case freeze:
			f.awake(&f.woken, d)
			if ok && served.Before(d.Ended) {
				f.afterFreeze = append(f.afterFreeze, served.Sub(d.Began))
			}
		case cut, part, deafen, mute:
			f.awake(&f.reached, d)
		}
	}
}

// awake counts what others took over while an instance was not of this world.
func (f *findings) awake(z *zombies, d done) {
	taken := 0
	for _, p := range f.serving(d.Target, d.Began) {
		if slices.ContainsFunc(f.takeovers, func(o takeover) bool {
			return o.partition == p && o.instance != d.Target && o.at.After(d.Began) && o.at.Before(d.Ended)
		}) {
			taken++
		}
	}
	if z.partitions += taken; taken > 0 {
		z.instances++
	}
}

// writtenAgain is when the last partition had an event of an order after a time.
func (f *findings) writtenAgain(at, end time.Time) (last time.Time) {
	for p := range int32(partitions) {
		again := end
		for _, w := range f.written[p] { // not quite in order: clients retry
			if w.After(at) && w.Before(again) {
				again = w
			}
		}
		if again.After(last) {
			last = again
		}
	}
	return last
}

// silence is the longest time that any partition had no new event, from the
// beginning of a fault until it was over.
func (f *findings) silence(from, to time.Time) (longest time.Duration) {
	for p := range int32(partitions) {
		last := from
		for _, w := range f.written[p] { // not quite in order: clients retry
			if w.After(last) {
				if last.Before(to) {
					longest = max(longest, w.Sub(last))
				}
				last = w
			}
		}
	}
	return longest
}

// serving are the partitions that an instance took over last before a time.
func (f *findings) serving(instance string, at time.Time) []int {
	owner := make(map[int]string)
	for _, o := range f.takeovers {
		if o.at.Before(at) {
			owner[o.partition] = o.instance
		}
	}
	var all []int
	for p, o := range owner {
		if o == instance {
			all = append(all, p)
		}
	}
	return all
}

// servedAgain is when the last of the partitions that an instance served at a
// time was taken over after it.
func (f *findings) servedAgain(instance string, at, end time.Time) (served time.Time, ok bool) {
	for _, p := range f.serving(instance, at) {
		again := end
		for _, o := range f.takeovers {
			if o.partition == p && o.at.After(at) {
				again = o.at
				break
			}
		}
		if again.After(served) {
			served = again
		}
		ok = true
	}
	return served, ok
}
