//go:build unix

package chaos

import (
	"math/rand/v2"
	"time"
)

// kind is a kind of fault.
type kind string

const (
	kill     kind = "kill -9 of an instance"
	freeze   kind = "instance stopped (SIGSTOP) past its session, then woken up"
	doze     kind = "instance stopped (SIGSTOP) within its session, while replies wait"
	handOver kind = "instance restarted in good order (SIGTERM)"
	cut      kind = "network of an instance cut"
	deafen   kind = "network of an instance: Kafka's answers held back"
	mute     kind = "network of an instance: its requests held back"
	slow     kind = "network of an instance: 50 to 400 ms slower each way"
	swallow  kind = "network of an instance: Kafka's answers to commits swallowed"
	wipe     kind = "state store deleted while the instance is down"
	flip     kind = "bytes of the state store flipped while the instance is down"
	fill     kind = "disk of the state store full"

	kafkaKill    kind = "kill -9 of Kafka"
	kafkaRestart kind = "Kafka restarted in good order"

	// Of one broker of several.
	part          kind = "network between an instance and one broker cut"
	brokerKill    kind = "kill -9 of a broker"
	brokerRestart kind = "broker restarted in good order"
	brokerPause   kind = "broker paused"
	rolling       kind = "all brokers restarted, one after the other"
	onlyReplica   kind = "kill -9 of the broker that alone has an agent's and a caller's topic"

	abandon kind = "transaction of a caller left open on the inputs"
	zeros   kind = "a batch of zeros on an input that takes more memory than one may"

	forget kind = "an agent's topic deleted, and made again"
	narrow kind = "a caller's topic takes next to nothing (max.message.bytes)"
	widen  kind = "a partition added to each input"
)

// kinds are all of them, in the order of the report.
var kinds = []kind{
	kill, freeze, doze, handOver, cut, part, deafen, mute, slow, swallow, wipe, flip, fill,
	kafkaKill, kafkaRestart, brokerKill, brokerRestart, brokerPause, rolling, onlyReplica, abandon, zeros, forget, narrow, widen,
}

// fault is one that was drawn.
type fault struct {
	Kind   kind
	At     time.Duration // since the start
	Hold   time.Duration // how long it lasts, once it is there
	Detail uint64        // for what else there is to draw
}

// deck is what is drawn from: each kind as often as its weight says.
type deck []struct {
	kind   kind
	weight int
}

// Targets are Kafka, the instances by their numbers, those who submit, and topics.
const (
	ofKafka   = 0
	ofCallers = instances + 1
	ofTopics  = instances + 2
	targets   = instances + 3
)

// deckOf is that of a target.
func deckOf(target, brokers int) deck {
	switch {
	case target == ofCallers:
		return deck{{abandon, 2}, {zeros, 1}}
	case target == ofTopics && brokers == 1:
		return deck{{forget, 3}, {narrow, 2}, {widen, 1}}
	case target == ofTopics:
		return deck{{narrow, 2}, {widen, 1}}
	case target == ofKafka && brokers == 1:
		return deck{{kafkaKill, 3}, {kafkaRestart, 2}, {brokerPause, 2}}
	case target == ofKafka:
		return deck{{onlyReplica, 8}, {brokerKill, 8}, {brokerRestart, 5}, {brokerPause, 5}, {rolling, 3}, {kafkaKill, 2}}
	}
	d := deck{{kill, 30}, {freeze, 18}, {doze, 10}, {handOver, 14}, {cut, 7}, {deafen, 7}, {mute, 7}, {swallow, 7}, {slow, 5}, {wipe, 4}, {flip, 4}, {fill, 4}}
	if brokers > 1 {
		d = append(d, deck{{part, 10}}...)
	}
	return d
}

func (d deck) draw(by *rand.Rand) kind {
	sum := 0
	for _, c := range d {
		sum += c.weight
	}
	n := by.IntN(sum)
	for _, c := range d {
		if n -= c.weight; n < 0 {
			return c.kind
		}
	}
	panic("unreachable: n is less than the sum")
}

// schedule draws the faults of one target. Each has its own, so faults come alone
// and on top of others.
func schedule(seed uint64, target, brokers int, duration, session time.Duration) []fault {
	by := rand.New(rand.NewPCG(seed, uint64(target)))
	between := func(low, high time.Duration) time.Duration { return low + time.Duration(by.Int64N(int64(high-low))) }
	cards, gap, longest := deckOf(target, brokers), 9*time.Second, 20*time.Second
	switch target {
	case ofKafka:
		gap, longest = 25*time.Second, 50*time.Second
	case ofTopics:
		gap, longest = 12*time.Second, 30*time.Second
	}
	var all []fault
	for at := between(gap/2, longest); at < duration; at += between(gap, longest) {
		f := fault{Kind: cards.draw(by), At: at, Detail: by.Uint64()}
		switch f.Kind {
		case freeze:
			f.Hold = between(session*3/2, session*3)
		case doze:
			f.Hold = between(session/4, session*3/4)
		case cut, part, deafen, mute:
			f.Hold = between(session/2, session*3)
		case slow, swallow, fill, abandon, forget:
			f.Hold = between(5*time.Second, 12*time.Second)
		case kafkaKill, kafkaRestart, brokerRestart, rolling:
			f.Hold = between(0, 5*time.Second)
		case brokerKill, brokerPause:
			f.Hold = between(0, 20*time.Second) // others take over after nine
		case onlyReplica, narrow:
			f.Hold = between(10*time.Second, 30*time.Second) // refusals are proven after five
		case zeros, widen:
		default:
			f.Hold = between(0, session*3/2) // down for so long
			if by.IntN(2) == 0 {
				f.Hold = 0
			}
		}
		all = append(all, f)
		at += f.Hold
	}
	return all
}
