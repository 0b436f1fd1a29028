package lane

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// has says whether it is the lane's turn.
func (turn *Turn) has() bool {
	synctest.Wait()
	select {
	case <-turn.granted:
		return true
	default:
		return false
	}
}

// As many lanes commit at a time as may. The one that asked first goes next, and who ends
// without its turn is in nobody's way.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turns Turns
		a, b, c, d, e := turns.Ask(), turns.Ask(), turns.Ask(), turns.Ask(), turns.Ask()
		want := func(what string, has ...bool) {
			t.Helper()
			for i, turn := range []*Turn{a, b, c, d, e} {
				if turn.has() != has[i] {
					t.Errorf("%s: the turn of %d: %t", what, i, turn.has())
				}
			}
		}
		want("at once", true, true, false, false, false)
		c.End(false)
		want("one that waited stops", true, true, false, false, false)
		b.End(true)
		want("one has committed", true, true, false, true, false)
		b.End(true)
		want("and ends twice", true, true, false, true, false)
		a.End(false)
		want("one stops that has its turn", true, true, false, true, true)
		d.End(true)
		e.End(true)
		if f := turns.Ask(); !f.has() || turns.under != 1 {
			t.Errorf("one has its turn: %t, counted are %d", f.has(), turns.under)
		}
		(*Turn)(nil).End(true)
	})
}

// Nobody waits for long where others' commits end, whatever was found out. Where none ends, half as many go beside those that may.
func TestATurnComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turns Turns
		crowd(&turns, 10*time.Second, 8, quick(time.Second)) // so none is lent out for seconds
		turns.forget()
		have := []*Turn{turns.Ask(), turns.Ask()}
		turns.most = leastTurns
		began := time.Now()
		var wait []*Turn
		for range 100 {
			wait = append(wait, turns.Ask())
		}
		<-wait[0].granted
		synctest.Wait()
		if waited := time.Since(began); waited != tooLong || turns.most != 0 || turns.under != startTurns {
			t.Errorf("the first waited for %s, and then %d may, %d have their turn", waited, turns.most, turns.under)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if turns.under != startTurns || len(turns.beside) != startTurns/2 {
			t.Errorf("later %d have their turn, and %d beside them", turns.under, len(turns.beside))
		}
		for _, turn := range append(have, wait...) {
			<-turn.granted
			turn.End(true)
		}
		if next := turns.Ask(); !next.has() || turns.under != 1 || len(turns.beside) != 0 {
			t.Errorf("then one has its turn: %t, of %d and %d", next.has(), turns.under, len(turns.beside))
		}
	})
}

// Where one waits for long although many may, as many may as before: so many are no reason.
func TestATurnComesBesideMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turns Turns
		crowd(&turns, 10*time.Second, 64, quick(time.Second)) // so none is lent out for seconds
		turns.forget()
		turns.most = 2 * startTurns
		var all []*Turn
		for range 64 {
			all = append(all, turns.Ask())
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if turns.under != 2*startTurns || len(turns.beside) != startTurns || turns.most != 2*startTurns {
			t.Errorf("%d have their turn, %d beside them, and %d may", turns.under, len(turns.beside), turns.most)
		}
		for _, turn := range all {
			<-turn.granted
			turn.End(true)
		}
	})
}

// What is found out stands for a while, however long lanes wait, and so does what is counted until then.
func TestWhatIsFoundOutStands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := Turns{most: startTurns / 2, found: time.Now(), needed: time.Now()}
		turns.counts[0].commits = countTurns - 1
		var all []*Turn
		for range 64 {
			all = append(all, turns.Ask())
		}
		for _, c := range []struct {
			sleep         time.Duration
			most, commits int
		}{
			{2*tooLong - time.Millisecond, startTurns / 2, countTurns - 1},
			{tooLong, 0, 0},
		} {
			time.Sleep(c.sleep)
			synctest.Wait()
			if turns.most != c.most || turns.counts[0].commits != c.commits {
				t.Errorf("after %s %d may, and %d are counted", c.sleep, turns.most, turns.counts[0].commits)
			}
		}
		turns.counts[0].commits = countTurns - 1
		time.Sleep(time.Minute)
		synctest.Wait()
		if turns.counts[0].commits != countTurns-1 {
			t.Errorf("while nothing is found out %d are counted", turns.counts[0].commits)
		}
		for _, turn := range all {
			<-turn.granted
			turn.End(true)
		}
	})
}

// However many partitions hang, others wait for no longer than it takes to lend their turns out: they are overtaken.
func TestTurnsBesideOnesThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := Turns{most: leastTurns, found: time.Now(), needed: time.Now(), usual: time.Millisecond}
		var hang []*Turn
		for range 20 {
			for range leastTurns {
				hang = append(hang, turns.Ask())
			}
			began, turn := time.Now(), turns.Ask()
			select {
			case <-turn.granted:
			case <-time.After(time.Minute):
			}
			if waited := time.Since(began); waited > 2*lentLeast {
				t.Errorf("beside %d that hang one waited for %s", len(hang), waited)
			}
			turn.End(true)
		}
		for _, turn := range hang {
			turn.End(false)
		}
		if turns.under != 0 || len(turns.beside) != 0 {
			t.Errorf("then %d have their turn, and %d beside them", turns.under, len(turns.beside))
		}
	})
}

// A partition whose commit hangs keeps nobody waiting for long, and less where commits are
// quick.
func TestTurnsAreLentOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turns Turns
		commits := func(lanes int) int {
			n, _ := crowd(&turns, time.Second, lanes, quick(4*time.Millisecond))
			return n
		}
		alone := commits(1)
		hangs, too, next := turns.Ask(), turns.Ask(), turns.Ask()
		began := time.Now()
		if <-next.granted; time.Since(began) != lentLeast {
			t.Errorf("lent out after %s", time.Since(began))
		}
		next.End(true)
		if n := commits(1); n < alone*3/4 {
			t.Errorf("%d commits beside them instead of %d", n, alone)
		}
		hangs.End(true)
		too.End(true)
		synctest.Wait()
		if turns.under != 0 {
			t.Errorf("then %d have their turn", turns.under)
		}
		crowd(&turns, time.Minute, 2, quick(200*time.Millisecond))
		a, b, next := turns.Ask(), turns.Ask(), turns.Ask()
		began = time.Now()
		if <-next.granted; time.Since(began) < 400*time.Millisecond {
			t.Errorf("where commits take a fifth of a second, lent out after %s", time.Since(began))
		}
		for _, turn := range []*Turn{a, b, next} {
			turn.End(true)
		}
	})
}

// As many commit at a time as are the quicker for it: nearly all lanes where Kafka takes
// as long for one as for many, also if it is nearer to some of them, and two or three
// where it works on one commit after the other.
func TestTurnsAreTriedOut(t *testing.T) {
	for name, c := range map[string]struct {
		kafka func() turnsKafka
		lanes int
		least int // commits a second
		most  int // at a time, on average
	}{
		"Kafka takes as long for many": {func() turnsKafka { return quick(10 * time.Millisecond) }, 64, 4_300, 100},
		"some lanes are nearer":        {func() turnsKafka { return nearSome }, 64, 5_000, 100},
		"of many lanes, though slowly": {func() turnsKafka { return quick(200 * time.Millisecond) }, 128, 350, 130},
		"few lanes":                    {func() turnsKafka { return quick(10 * time.Millisecond) }, 8, 400, 100},
		"one commit after the other":   {oneByOne, 64, 450, 4},
		"of few lanes":                 {oneByOne, 8, 450, 4},
		"many choke it":                {choked, 128, 350, 8},
		"very many choke it":           {choked, 256, 350, 8},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var turns Turns
				kafka := c.kafka()
				began, within := time.Now(), make([]atomic.Int64, 70)
				crowd(&turns, 60*time.Second, c.lanes, func(lane int) {
					if stands := 23*time.Second - time.Since(began); stands <= 3*time.Second { // Kafka answers nobody
						time.Sleep(stands)
					}
					kafka(lane)
					within[min(time.Since(began)/time.Second, 69)].Add(1)
				})
				for from, when := range map[int]string{10: "has been met", 50: "has stood still"} {
					var commits int64
					for second := range within[from : from+10] {
						commits += within[from+second].Load()
					}
					if commits /= 10; commits < int64(c.least) {
						t.Errorf("once Kafka %s %d commits a second", when, commits)
					}
				}
				commits, most := crowd(&turns, 20*time.Second, c.lanes, kafka)
				if commits /= 20; commits < c.least || most > c.most {
					t.Errorf("%d commits a second, %d at a time", commits, most)
				}
			})
		})
	}
}

// A third of the lanes whose commits take long, as with one broker of three that is in trouble,
// hold the others up no longer than one such commit that is lent out.
func TestTurnsBesideSlowOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turns Turns
		crowd(&turns, 10*time.Second, 64, quick(6*time.Millisecond))
		var (
			running sync.WaitGroup
			longest atomic.Int64
		)
		began := time.Now()
		for lane := range 64 {
			running.Go(func() {
				for time.Since(began) < time.Minute {
					asked, turn := time.Now(), turns.Ask()
					<-turn.granted
					waited := time.Since(asked)
					if lane%3 == 0 { // always has something to commit
						time.Sleep(400*time.Millisecond + jitter(200*time.Millisecond))
						turn.End(true)
						continue
					}
					quick(6 * time.Millisecond)(lane)
					turn.End(true)
					if since := time.Since(began); since > 10*time.Second && int64(waited) > longest.Load() {
						longest.Store(int64(waited))
					}
					time.Sleep(jitter(2 * time.Second))
				}
			})
		}
		running.Wait()
		synctest.Wait()
		if waited := time.Duration(longest.Load()); waited > tooLong/2 || turns.usual > 50*time.Millisecond {
			t.Errorf("one waited for %s, and commits are taken to take %s", waited, turns.usual)
		}
	})
}

// Where Kafka takes as long for one as for many, an instance with many lanes has found that out
// within seconds.
func TestTurnsAreFoundOutSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turns Turns
		crowd(&turns, 2*time.Second, 64, quick(30*time.Millisecond))
		if most := turns.now(); most < 40 {
			t.Errorf("after two seconds %d at a time", most)
		}
	})
}

func TestWhatPays(t *testing.T) {
	for _, c := range []struct {
		most, wanted int
		now, tried   float64 // commits a second, with as many as now and with half as many more
		then         int     // that may
	}{
		{0, 64, 100, 150, 24},
		{0, 64, 100, 100, 8},
		{36, 64, 100, 150, 42}, // one waits where all want to, also while more may
		{4, 64, 100, 136, 6},
		{4, 64, 100, 134, 4},
		{4, 64, 100, 121, 4},
		{4, 64, 100, 119, 2},
		{2, 64, 100, 50, 2},
		{0, 1, 100, 150, 2},
	} {
		turns := Turns{most: c.most, wanted: c.wanted}
		if turns.decide(c.tried, c.now); turns.may() != c.then {
			t.Errorf("%+v: %d may", c, turns.may())
		}
	}
}

// Where Kafka becomes as slow as many commit at a time, fewer do.
func TestTurnsWhereKafkaBecomesSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turns Turns
		crowd(&turns, 20*time.Second, 64, quick(10*time.Millisecond))
		before := turns.now()
		kafka := oneByOne()
		crowd(&turns, 20*time.Second, 64, kafka)
		if _, most := crowd(&turns, 20*time.Second, 64, kafka); before < 32 || most > 4 {
			t.Errorf("%d at a time, after %d", most, before)
		}
	})
}

// What was found out while many had much to commit is forgotten once nobody waits.
func TestTurnsThatNobodyNeeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turns Turns
		crowd(&turns, 20*time.Second, 32, oneByOne())
		found := turns.most
		if turns.Ask().End(true); found == 0 || turns.most != found {
			t.Fatalf("%d at a time, after %d", turns.most, found)
		}
		time.Sleep(turnsRest + time.Second)
		if turns.Ask().End(true); turns.most != 0 {
			t.Errorf("at rest it knows of %d", turns.most)
		}
	})
}

// jitter is less than so much, drawn as in every other run.
var jitter = func() func(time.Duration) time.Duration {
	var one sync.Mutex
	by := rand.New(rand.NewPCG(1, 1))
	return func(below time.Duration) time.Duration {
		one.Lock()
		defer one.Unlock()
		return time.Duration(by.Int64N(int64(below)))
	}
}()

// turnsKafka takes a commit of a lane.
type turnsKafka func(lane int)

// quick takes about as long for each, however many there are.
func quick(usual time.Duration) turnsKafka {
	return func(int) { time.Sleep(usual/2 + jitter(usual)) }
}

// nearSome takes a millisecond for a third of the lanes, and about ten for the others.
func nearSome(lane int) {
	if lane%3 == 0 {
		time.Sleep(time.Millisecond)
		return
	}
	time.Sleep(8*time.Millisecond + jitter(4*time.Millisecond))
}

// oneByOne works on one commit at a time, for about two milliseconds.
func oneByOne() turnsKafka {
	one := make(chan struct{}, 1)
	return func(int) {
		time.Sleep(time.Millisecond)
		one <- struct{}{}
		time.Sleep(time.Millisecond + jitter(2*time.Millisecond))
		<-one
	}
}

// choked works on one commit at a time, and the longer the more there are: with a hundred it ends
// five in a second, and with two of them almost 500.
func choked() turnsKafka {
	var under atomic.Int64
	one := make(chan struct{}, 1)
	return func(int) {
		n := under.Add(1)
		one <- struct{}{}
		time.Sleep(2*time.Millisecond + time.Duration(n*n)*20*time.Microsecond)
		<-one
		under.Add(-1)
	}
}

// crowd has lanes commit for some time that always have something to, and says how often they
// did, and how many could at a time on average.
func crowd(turns *Turns, during time.Duration, lanes int, kafka turnsKafka) (commits, most int) {
	var (
		running sync.WaitGroup
		ended   atomic.Int64
	)
	began := time.Now()
	for lane := range lanes {
		running.Go(func() {
			for time.Since(began) < during {
				turn := turns.Ask()
				<-turn.granted
				kafka(lane)
				turn.End(true)
				ended.Add(1)
			}
		})
	}
	const looks = 100
	for range looks {
		time.Sleep(during / looks)
		turns.mu.Lock()
		most += turns.now()
		turns.mu.Unlock()
	}
	running.Wait()
	synctest.Wait() // nobody is lending out what has ended
	return int(ended.Load()), most / looks
}
