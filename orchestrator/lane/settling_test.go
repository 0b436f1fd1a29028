package lane

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// arriving is a load of so many inputs a second on some lanes, which each commits as a lane does:
// what has come until its turn is in one batch.
type arriving struct {
	turns *Turns
	lanes int
	kafka turnsKafka

	mu      sync.Mutex
	seconds []came
}

// came is what became of the inputs that came within a second.
type came struct {
	n   int
	sum time.Duration // until they were committed
}

// goes has inputs come for some time, and returns how long they take once that has settled, and
// after how long it had: from when on those of no second take more than twice as long.
func (a *arriving) goes(rate float64, during time.Duration) (latency, settled time.Duration) {
	var running sync.WaitGroup
	began := time.Now()
	a.seconds = make([]came, during/time.Second)
	each := time.Duration(float64(a.lanes) / rate * float64(time.Second))
	for lane := range a.lanes {
		running.Go(func() {
			due := jitter(each)
			for due < during {
				time.Sleep(due - time.Since(began))
				turn := a.turns.Ask()
				<-turn.granted
				first, now := due, time.Since(began)
				for ; due <= now; due += each {
				}
				a.kafka(lane)
				turn.End(true)
				end := time.Since(began)
				a.mu.Lock()
				for at := first; at < due && at < during; at += each {
					a.seconds[at/time.Second].n++
					a.seconds[at/time.Second].sum += end - at
				}
				a.mu.Unlock()
			}
		})
	}
	running.Wait()
	synctest.Wait()
	var all came
	for _, l := range a.seconds[2*len(a.seconds)/3:] {
		all.n, all.sum = all.n+l.n, all.sum+l.sum
	}
	latency = all.sum / time.Duration(all.n)
	for n, l := range a.seconds {
		if l.n > 0 && l.sum/time.Duration(l.n) > 2*latency {
			settled = time.Duration(n+1) * time.Second
		}
	}
	return latency, settled
}

// warms works on one commit after the other until it has worked for so long, as a Kafka that
// has just started, and then as another.
func warms(cold time.Duration, then turnsKafka) turnsKafka {
	began, one := time.Now(), make(chan struct{}, 1)
	return func(lane int) {
		one <- struct{}{}
		if left := cold - time.Since(began); left > 0 {
			time.Sleep(min(left, 20*time.Millisecond+jitter(40*time.Millisecond)))
		}
		<-one
		then(lane)
	}
}

// jammed takes the longer for each commit the more there are, and longer for all of them, as a
// machine does that is full.
func jammed() turnsKafka {
	var under atomic.Int64
	return func(int) {
		n := float64(under.Add(1))
		time.Sleep(time.Duration((n+n*n/10)*float64(time.Millisecond)) + jitter(time.Millisecond))
		under.Add(-1)
	}
}

// An instance has found within two seconds how many lanes may commit at a time, when it has been idle
// and 4,000 inputs a second come, when hardly any come any more, so that each takes what its commit
// takes, and when Kafka has been slow for the first of many, from when it is quick. Only 64 lanes that make each other slower need longer:
// ADR 0023 says why.
func TestTurnsSettle(t *testing.T) {
	for name, c := range map[string]struct {
		kafka  func() turnsKafka
		lanes  int
		within time.Duration
		takes  time.Duration // an input, once that is found
		alone  time.Duration // one that hardly any are beside
	}{
		"Kafka takes as long for many":            {func() turnsKafka { return quick(10 * time.Millisecond) }, 8, 2 * time.Second, 22 * time.Millisecond, 12 * time.Millisecond},
		"of many lanes":                           {func() turnsKafka { return quick(10 * time.Millisecond) }, 64, 2 * time.Second, 13 * time.Millisecond, 12 * time.Millisecond},
		"as long, and longer":                     {func() turnsKafka { return quick(30 * time.Millisecond) }, 64, 2 * time.Second, 60 * time.Millisecond, 36 * time.Millisecond},
		"each commit makes the others slower":     {jammed, 8, 2 * time.Second, 16 * time.Millisecond, 2 * time.Millisecond},
		"each of many lanes' makes others slower": {jammed, 64, 4 * time.Second, 70 * time.Millisecond, 2 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &arriving{turns: new(Turns), lanes: c.lanes, kafka: c.kafka()}
				busy := func(cold time.Duration) {
					a.kafka = warms(cold, c.kafka())
					if latency, settled := a.goes(4000, 18*time.Second); settled > cold+c.within || latency > c.takes {
						t.Errorf("after %s in which Kafka was slow it takes %s, from %s on", cold, latency, settled)
					}
				}
				idle := func(when string) {
					if latency, settled := a.goes(20, 10*time.Second); settled > c.within || latency > c.alone {
						t.Errorf("idle %s it takes %s, from %s on", when, latency, settled)
					}
				}
				idle("before")
				busy(0)
				idle("between")
				busy(time.Second)
				busy(3 * time.Second)
				idle("after")
			})
		})
	}
}
