package orchestrator

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/lane"
	"github.com/waybill-dev/waybill/test/kafka"
)

// newBooks is a directory without Kafka, whose clock goes as it is told.
func newBooks(t *testing.T) (d *directory, pass func(time.Duration)) {
	t.Helper()
	topics, err := events.NewTopics("waybill")
	must(t, err)
	now := time.UnixMilli(0)
	d = newDirectory(nil, &topics, 2, slog.New(slog.DiscardHandler))
	d.now = func() time.Time { return now }
	return d, func(by time.Duration) { now = now.Add(by) }
}

const queue = "waybill.requests.phone"

func at(topic string) lane.TopicPartition { return lane.TopicPartition{Topic: topic, Partition: 1} }

// expects says what the directory must make of a record.
func (d *directory) expects(t *testing.T, topic string, size int, refuses, away string) {
	t.Helper()
	for _, c := range []struct{ what, got, want string }{
		{"refuses", d.Refuses(topic, size), refuses}, {"is away", d.Away(at(topic), "", size), away},
	} {
		if (c.got == "") != (c.want == "") || !strings.Contains(c.got, c.want) {
			t.Errorf("%s, %d bytes: it %s because %q, not %q", topic, size, c.what, c.got, c.want)
		}
	}
}

// led are so many partitions that have a leader.
func led(n int32) kadm.PartitionDetails {
	all := make(kadm.PartitionDetails)
	for p := range n {
		all[p] = kadm.PartitionDetail{Partition: p, Replicas: []int32{0, 1}, ISR: []int32{0, 1}}
	}
	return all
}

// How many partitions a topic has is not forgotten when Kafka cannot say.
func TestHowManyPartitions(t *testing.T) {
	d, _ := newBooks(t)
	for n, c := range []struct {
		said said
		want int32
	}{
		{said{err: kerr.LeaderNotAvailable}, 0}, {said{partitions: led(2)}, 2}, {said{err: kerr.LeaderNotAvailable}, 2}, {said{partitions: led(3)}, 3},
	} {
		d.know("waybill.status", c.said)
		if got := d.Partitions("waybill.status"); got != c.want {
			t.Errorf("answer %d: %d partitions, not %d", n+1, got, c.want)
		}
	}
	if n := d.Partitions("waybill.alerts"); n != 0 {
		t.Errorf("of a topic that nobody asked about there are %d", n)
	}
}

// What Kafka says once is no proof, nor is what it says twice at a time. Of Waybill's
// own topics it can say what it likes; and an agent without a topic will have one.
func TestOneAnswerIsNoProof(t *testing.T) {
	for _, c := range []struct {
		says               error
		caller, agent, own string // why it is refused for good, in the end
	}{
		{kerr.UnknownTopicOrPartition, "does not exist", "", ""},
		{kerr.TopicAuthorizationFailed, "not authorised", "not authorised", ""},
		{kerr.LeaderNotAvailable, "", "", ""},
	} {
		for topic, refusal := range map[string]string{"shop.status": c.caller, queue: c.agent, "waybill.journal": c.own, "waybill.status": c.own} {
			d, pass := newBooks(t)
			if d.know(topic, said{err: c.says}); d.Refuses(topic, 1) != "" {
				t.Errorf("%v of %s, said once, is believed", c.says, topic)
			}
			if topic == queue && d.Away(at(topic), "", 1) == "" {
				t.Errorf("%v: the agent is not away", c.says)
			}
			pass(proving)
			if d.know(topic, said{err: c.says}); d.Refuses(topic, 1) != "" {
				t.Errorf("%v of %s, said again at once, is believed", c.says, topic)
			}
			pass(time.Millisecond)
			d.know(topic, said{err: c.says})
			if got := d.Refuses(topic, 1); (got == "") != (refusal == "") || !strings.Contains(got, refusal) {
				t.Errorf("%v of %s: %q, not %q", c.says, topic, got, refusal)
			}
			d.know(topic, said{partitions: led(2)})
			d.expects(t, topic, 1, "", "")
			// That was the end of it: it begins anew.
			if d.know(topic, said{err: c.says}); d.Refuses(topic, 1) != "" {
				t.Errorf("%v of %s, said once more, is believed", c.says, topic)
			}
		}
	}
}

// What was heard long ago is no proof either.
func TestOldRefusalsAreForgotten(t *testing.T) {
	d, pass := newBooks(t)
	for range 2 {
		d.know("shop.status", said{err: kerr.UnknownTopicOrPartition})
		pass(proving + time.Millisecond)
	}
	d.expects(t, "shop.status", 1, "does not exist", "")
	pass(2 * factsLast)
	d.expects(t, "shop.status", 1, "", "not said yet")
}

// A request that cannot be written now waits, as long as that is so.
func TestAgentsThatAreAway(t *testing.T) {
	behind := led(2)
	behind[1] = kadm.PartitionDetail{Partition: 1, Replicas: []int32{0, 1}, ISR: []int32{0}}
	leaderless := led(2)
	leaderless[1] = kadm.PartitionDetail{Partition: 1, Leader: -1, Err: kerr.LeaderNotAvailable}
	elsewhere := led(2)
	elsewhere[0] = kadm.PartitionDetail{Partition: 0, Leader: -1}
	for name, c := range map[string]struct {
		said said
		away string
	}{
		"there":                        {said{partitions: led(2)}, ""},
		"wider":                        {said{partitions: led(4)}, ""},
		"narrower":                     {said{partitions: led(1)}, "1 partitions, and needs 2"},
		"without a leader":             {said{partitions: leaderless}, "LEADER_NOT_AVAILABLE"},
		"without one elsewhere":        {said{partitions: elsewhere}, ""},
		"without enough replicas":      {said{partitions: behind, config: config{insync: 2}}, "min.insync.replicas is 2"},
		"with enough replicas":         {said{partitions: behind, config: config{insync: 1}}, ""},
		"with more asked than it has":  {said{partitions: led(2), config: config{insync: 3}}, ""},
		"not to be seen by any broker": {said{err: kerr.UnknownTopicID}, "does not exist"},
	} {
		t.Run(name, func(t *testing.T) {
			d, _ := newBooks(t)
			d.know(queue, c.said)
			d.expects(t, queue, 1, "", c.away)
			if soon := d.topics[queue].until.Sub(d.now()) == awayLast; soon != (c.away != "" || name == "without one elsewhere") {
				t.Errorf("it is asked again after %v", d.topics[queue].until.Sub(d.now()))
			}
			d.know(queue, said{partitions: led(2)})
			d.expects(t, queue, 1, "", "")
		})
	}
}

// What is forwarded waits for a partition of an input that cannot be written now. Nothing
// else that is Waybill's own does, and a commit that did not get through has it asked.
func TestInputsThatAreAway(t *testing.T) {
	d, _ := newBooks(t)
	leaderless := led(2)
	leaderless[1] = kadm.PartitionDetail{Partition: 1, Leader: -1}
	for _, topic := range []string{d.own.Orders, d.own.Replies, d.own.Commands, d.own.Journal, d.own.Status, d.own.Alerts} {
		_, input := d.own.Input(topic)
		d.know(topic, said{partitions: led(2)})
		if d.Refused(at(topic), "o-1", 0, false, lane.ErrLate); d.topics[topic].until.After(d.now()) {
			t.Errorf("%s is not asked about again", topic)
		}
		for p, want := range map[int32]bool{0: false, 1: input} {
			d.know(topic, said{partitions: leaderless})
			if got := d.Away(lane.TopicPartition{Topic: topic, Partition: p}, "", 1) != ""; got != want {
				t.Errorf("partition %d of %s is away: %t", p, topic, got)
			}
		}
		d.know(topic, said{partitions: led(2)})
		if why := d.Away(lane.TopicPartition{Topic: topic, Partition: 1}, "", 1); why != "" {
			t.Errorf("%s does not come back: %s", topic, why)
		}
	}
}

// outage is a topic of an agent that takes nothing in time.
type outage struct {
	*testing.T
	*directory
	pass func(time.Duration)
}

func newOutage(t *testing.T) *outage {
	t.Helper()
	d, pass := newBooks(t)
	o := &outage{t, d, pass}
	o.says()
	return o
}

func (o *outage) of(partition int32) lane.TopicPartition {
	return lane.TopicPartition{Topic: queue, Partition: partition}
}

// says that all is well, which Kafka does.
func (o *outage) says() { o.know(queue, said{partitions: led(2)}) }

func (o *outage) late(partitions ...int32) {
	for _, p := range partitions {
		o.Refused(o.of(p), "", 0, false, fmt.Errorf("flush: %w", lane.ErrLate))
	}
	o.says()
}

func (o *outage) away(partition int32, order string, want bool) {
	o.Helper()
	if why := o.Away(o.of(partition), order, 1); (why != "") != want || want && !strings.Contains(why, "in time") {
		o.Errorf("partition %d is away for order %q because %q", partition, order, why)
	}
}

// Partitions that took nothing in time are left alone, in each round for longer, whatever Kafka
// says of them: then one of them is tried, by one lane, until one takes something.
func TestAPartitionThatIsLate(t *testing.T) {
	o := newOutage(t)
	o.late(1)
	o.away(1, "o-1", true)
	o.away(0, "o-2", false)
	o.late(0)
	rests := lateLast
	for range 12 {
		for p := range int32(2) {
			o.pass(rests - 1)
			o.away(p, "o-1", true)
			o.pass(1)
			o.away(p, "", false)
			o.away(p, "o-1", false)
			o.away(p, "o-3", false) // the same lane holds itself up
			o.away(1-p, "o-2", true)
			o.pass(lane.CommitTimeout)
			o.away(1-p, "o-2", true)
			if p == 1 {
				rests = min(2*rests, lateLongest)
			}
			o.late(p)
		}
	}
	if rests != lateLongest {
		t.Errorf("it is left alone for %s", rests)
	}
	o.pass(rests)
	o.away(0, "o-2", false)
	o.pass(trialLast) // nothing is heard of that
	o.away(1, "o-1", false)
	o.Took(o.of(2)) // which was never late
	o.away(0, "o-2", true)
	o.Took(o.of(1))
	o.away(0, "o-2", false)
	o.late(0)
	o.pass(lateLast)
	o.away(0, "o-2", false)

	o.Refused(at("waybill.journal"), "o-1", 0, false, lane.ErrLate)
	o.expects(t, "waybill.journal", 1, "", "")
}

// A busy lane of a partition that takes nothing is not tried again before the others were.
func TestEachLatePartitionIsTried(t *testing.T) {
	o := newOutage(t)
	o.late(0, 1, 2)
	o.pass(lateLast)
	o.away(1, "busy", false)
	o.late(1)
	o.pass(lateLast)
	o.away(1, "busy", true)
	o.away(2, "o-2", false)
	o.late(2)
	o.pass(lateLast)
	o.away(1, "busy", true)
	o.pass(othersFirst) // the other has nothing to do
	o.away(1, "busy", false)
	o.late(1)
	o.pass(lateLast)
	o.away(0, "o-0", false)
	o.late(0)
	o.pass(lateLast)
	o.away(1, "busy", true)
	o.pass(lateLast)
	o.away(1, "busy", false)
}

// All lanes of an instance hear of the same outage, which counts once, and of one of long ago
// nothing is left, whoever has the partition by now.
func TestAnOutageCountsOnce(t *testing.T) {
	o := newOutage(t)
	for range 3 {
		o.late(1)
		o.pass(lateLongest)
		o.away(1, "o-1", false)
	}
	o.pass(lateForgotten)
	o.late(0, 2, 3, 4, 5)
	o.away(1, "o-1", false) // another instance has it
	o.pass(lateLast - 1)
	o.away(0, "o-2", true)
	o.pass(1)
	o.away(0, "o-2", false)
	o.pass(lateForgotten + 1)
	if o.Took(o.of(7)); len(o.directory.late) > 0 || o.troubles.Load() != 0 {
		t.Errorf("it remembers %v, and counts %d", o.directory.late, o.troubles.Load())
	}
}

// What Kafka says first of how much a topic takes is one answer as any other: batches go by it, and
// what is larger waits until Kafka says it again, a while later.
func TestOneAnswerIsNoLimit(t *testing.T) {
	d, pass := newBooks(t)
	for topic, waits := range map[string]string{queue: "said once that it takes 1000", "waybill.journal": ""} { // its lane tries
		says := func(limit int) { d.know(topic, said{partitions: led(2), config: config{limit: limit}}) }
		says(1000)
		d.expects(t, topic, 1001, "", waits)
		d.expects(t, topic, 1000, "", "")
		if limit, alone := d.Batch(topic); limit != 1000 || alone {
			t.Errorf("a batch has %d bytes, one record: %t", limit, alone)
		}
		if again := d.topics[topic].until.Sub(d.now()); again != awayLast {
			t.Errorf("it is asked again after %s", again)
		}
		pass(proving - 1)
		says(1000)
		d.expects(t, topic, 1001, "", waits)
		pass(1)
		d.know(topic, said{partitions: led(2), silent: true}) // no answer is none
		d.expects(t, topic, 1001, "", waits)
		says(3000) // it was one of long ago
		d.expects(t, topic, 3000, "", "")
		if d.expects(t, topic, 3001, "", strings.Replace(waits, "1000", "3000", 1)); t.Failed() {
			t.Fatal(topic)
		}
		pass(proving)
		says(3000)
		d.expects(t, topic, 3001, "3001 bytes are more than the 3000", "")
		says(4000)
		d.expects(t, topic, 4001, "4001 bytes are more than the 4000", "")
	}
}

// How much a topic takes Kafka says itself, or it shows by refusals: of a record that
// was alone, and twice. Until then records go alone.
func TestHowMuchATopicTakes(t *testing.T) {
	for _, err := range []error{kerr.MessageTooLarge, fmt.Errorf("produce: %w", kerr.RecordListTooLarge)} {
		for _, topic := range []string{queue, "shop.status", "waybill.journal"} {
			d, pass := newBooks(t)
			d.know(topic, said{partitions: led(2), config: config{limit: 1000}})
			pass(proving)
			d.know(topic, said{partitions: led(2), config: config{limit: 1000}})
			d.expects(t, topic, 1000, "", "")
			d.expects(t, topic, 1001, "1001 bytes are more than the 1000", "")
			if limit, alone := d.Batch(topic); limit != 1000 || alone {
				t.Errorf("a batch has %d bytes, one record: %t", limit, alone)
			}
			d.know(topic, said{partitions: led(2)})
			d.expects(t, topic, 1<<20, "", "")
			d.Refused(at(topic), "o-1", 500, false, err)
			d.expects(t, topic, 500, "", "")
			d.know(topic, said{partitions: led(2)})
			if _, alone := d.Batch(topic); !alone {
				t.Error("after a batch was refused the next has several records")
			}
			wait := "TOO_LARGE"
			if topic == "waybill.journal" {
				wait = ""
			}
			d.Refused(at(topic), "o-1", 500, true, err)
			d.expects(t, topic, 500, "", wait)
			d.expects(t, topic, 499, "", "")
			d.know(topic, said{partitions: led(2)})
			pass(proving + time.Millisecond)
			d.expects(t, topic, 500, "", "") // it is tried once more
			d.Refused(at(topic), "o-1", 500, true, err)
			d.know(topic, said{partitions: led(2)})
			d.expects(t, topic, 500, "500 bytes are more than the 499", "")
			d.expects(t, topic, 499, "", "")
			pass(learntLast)
			d.know(topic, said{partitions: led(2)})
			d.expects(t, topic, 500, "", "")
		}
	}
}

// That a topic takes less than it did counts once Kafka says it again, a while later: a broker that
// starts may say what was so long ago, and orders would end by it.
func TestATopicThatTakesLess(t *testing.T) {
	for _, topic := range []string{queue, "waybill.journal"} {
		d, pass := newBooks(t)
		says := func(limit int) { d.know(topic, said{partitions: led(2), config: config{limit: limit}}) }
		says(2000)
		says(1000)
		d.expects(t, topic, 2000, "", "")
		if again := d.topics[topic].until.Sub(d.now()); again != awayLast {
			t.Errorf("it is asked again after %s", again)
		}
		pass(proving - time.Millisecond)
		says(1000)
		d.know(topic, said{partitions: led(2), silent: true}) // no answer is none
		d.expects(t, topic, 2000, "", "")
		says(2000)
		pass(time.Millisecond)
		says(1000) // once more, after it said something else
		d.expects(t, topic, 2000, "", "")
		pass(proving)
		d.know(topic, said{partitions: led(2), silent: true})
		says(1000)
		d.expects(t, topic, 1001, "1001 bytes are more than the 1000", "")
		says(3000)
		d.expects(t, topic, 3000, "", "")
	}
}

// Once a topic takes more than it did, what its refusals said of sizes counts no more.
func TestATopicThatTakesMoreAgain(t *testing.T) {
	for _, topic := range []string{queue, "waybill.journal"} {
		d, pass := newBooks(t)
		says := func(limit int) { d.know(topic, said{partitions: led(2), config: config{limit: limit}}) }
		says(1000)
		for range 3 {
			d.Refused(at(topic), "o-1", 500, true, kerr.MessageTooLarge)
			pass(proving)
		}
		says(1000)
		d.expects(t, topic, 500, "500 bytes are more than the 499", "")
		says(2000)
		d.expects(t, topic, 1500, "", "")
		d.Refused(at(topic), "o-1", 500, true, kerr.MessageTooLarge) // once, which counts for nothing then
		says(3000)
		pass(proving + time.Millisecond)
		d.Refused(at(topic), "o-1", 2500, true, kerr.MessageTooLarge)
		says(2000)
		says(3000)
		d.expects(t, topic, 1500, "", "")
		says(2000)
		pass(proving)
		says(2000)
		if limit, alone := d.Batch(topic); limit != 2000 || alone {
			t.Errorf("a batch has %d bytes, one record: %t", limit, alone)
		}
	}
}

// The right to write is missing only if two records, or two answers, say so.
func TestTheRightToWrite(t *testing.T) {
	d, pass := newBooks(t)
	err := kerr.TopicAuthorizationFailed
	d.Refused(at(queue), "o-1", 1, false, err)
	d.expects(t, queue, 1, "", "waybill.requests.phone")
	d.know(queue, said{partitions: led(2)}) // which tells nothing of records
	d.expects(t, queue, 1, "", "waybill.requests.phone")
	pass(proving + time.Millisecond)
	d.expects(t, queue, 1, "", "")
	d.Refused(at(queue), "o-1", 1, false, err)
	d.expects(t, queue, 1, "waybill.requests.phone", "")
	d.Refused(at("waybill.journal"), "o-1", 1, false, err)
	pass(proving + time.Millisecond)
	d.Refused(at("waybill.journal"), "o-1", 1, false, err)
	d.expects(t, "waybill.journal", 1, "", "")
}

// That Kafka refuses a record for what it is, however often, says nothing of the others
// for the same agent: the lane finds the one.
func TestARecordThatIsRefused(t *testing.T) {
	for _, err := range []error{kerr.InvalidRecord, kerr.PolicyViolation, kerr.InvalidTimestamp} {
		d, pass := newBooks(t)
		d.know(queue, said{partitions: led(2)})
		for range 3 {
			d.Refused(at(queue), "o-1", 1, true, err)
			d.expects(t, queue, 1, "", "")
			pass(proving + time.Millisecond)
		}
	}
}

// An agent whose topic refuses the records of several orders, and takes none in between, is
// away. One order at a time is tried, after ever longer, and the agent is back with the first
// record that is taken.
func TestATopicThatRefusesEveryRecord(t *testing.T) {
	for _, why := range []error{kerr.InvalidRecord, kerr.InvalidTimestamp} {
		t.Run(why.Error(), func(t *testing.T) { refusesEveryRecord(t, why) })
	}
}

func refusesEveryRecord(t *testing.T, why error) {
	d, pass := newBooks(t)
	d.know(queue, said{partitions: led(2)})
	refused := func(order string) { d.Refused(at(queue), order, 1, true, why) }
	away := func(order string, want bool) {
		t.Helper()
		if why := d.Away(at(queue), order, 1); (why != "") != want || want && !strings.Contains(why, "every record") {
			t.Errorf("for order %q it is away because %q", order, why)
		}
	}
	refused("a")
	refused("b")
	refused("a")
	away("", false)
	d.Took(at("waybill.requests.fax"))
	d.Took(at(queue))
	refused("c")
	refused("a")
	away("c", false)
	refused("b")
	away("c", true)
	away("", true)
	away("x", true)
	if why := d.Away(at("waybill.requests.fax"), "x", 1); strings.Contains(why, "every record") {
		t.Errorf("so is another: %s", why)
	}
	d.know(queue, said{partitions: led(2)}) // which tells nothing of records
	away("", true)

	rests := refusingRests
	for n := range 7 {
		pass(rests - 1)
		refused("late") // which was on its way
		away("", true)
		pass(1)
		away("", false)
		away("a", true) // others first
		tried := fmt.Sprint("x-", n)
		away(tried, false)
		away(tried, false) // it has more steps
		away("y", true)
		away("", true)
		refused("z")
		away(tried, false)
		refused(tried)
		away(tried, true)
		rests = min(2*rests, refusingLongest)
	}
	if rests != refusingLongest {
		t.Errorf("it is left alone for %s", rests)
	}

	pass(rests + othersFirst) // there is no other
	away("a", false)
	pass(trialLast - 1)
	away("y", true)
	pass(1) // nobody hears of it any more
	away("y", false)
	away("a", true)
	d.Took(at(queue))
	away("a", false)
	away("z", false)
	refused("a")
	refused("b")
	away("a", false)
}

// Callers' and Waybill's own topics that do so are no agents that are away.
func TestWhoRefusesEveryRecord(t *testing.T) {
	for _, topic := range []string{"shop.status", "waybill.journal", "waybill.orders"} {
		d, _ := newBooks(t)
		d.know(topic, said{partitions: led(2)})
		for n := range 2 * refusingAll {
			d.Refused(at(topic), fmt.Sprint(n), 1, true, kerr.PolicyViolation)
		}
		d.expects(t, topic, 1, "", "")
	}
}

// What a topic takes is what Kafka says of it, also that there is none.
func TestDirectoryAsksKafka(t *testing.T) {
	b := kafka.Embedded(t)
	topics := onePartition(t, b)
	d := newDirectory(b.Client(t), &topics, 1, slog.New(slog.DiscardHandler))
	now := time.Now()
	d.now = func() time.Time { return now }
	must(t, d.ask(t.Context(), []string{topics.Journal, "gone", topics.Requests("phone")}))
	d.expects(t, topics.Journal, 1, "", "")
	d.expects(t, topics.Requests("phone"), 1, "", "does not exist")
	now = now.Add(proving + time.Millisecond)
	must(t, d.ask(t.Context(), []string{topics.Journal, "gone"}))
	d.expects(t, topics.Journal, 1<<30, "max.message.bytes", "")
	d.expects(t, "gone", 1, "topic gone does not exist", "")
}

// Submissions with made-up topics do not fill the memory.
func TestDirectoryIsBounded(t *testing.T) {
	d, pass := newBooks(t)
	d.know(queue, said{partitions: led(2)})
	for range 2 {
		d.know("waybill.journal", said{partitions: led(2), config: config{limit: 1000}})
		pass(proving)
	}
	for i := range 2 * directorySize {
		d.put(fmt.Sprint("t-", i), topicFacts{})
		if len(d.topics) > directorySize {
			t.Fatalf("%d topics", len(d.topics))
		}
	}
	d.expects(t, queue, 1, "", "")
	d.expects(t, "waybill.journal", 1001, "1001 bytes are more", "")
}
