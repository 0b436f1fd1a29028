package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
)

// Orders are due at their rate from the beginning, whatever the one before took.
func TestArrivals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := arrivals{time.Now(), 100}
		if n := a.within(time.Second); n != 100 {
			t.Errorf("%d within a second", n)
		}
		if n := (arrivals{rate: 3}).within(100 * time.Millisecond); n != 1 {
			t.Errorf("%d within less than the time between two", n)
		}
		var due, began []time.Duration
		err := a.each(t.Context(), 100, func(at time.Time) bool {
			due, began = append(due, at.Sub(a.began)), append(began, time.Since(a.began))
			if len(due) == 20 { // the submitter stands still
				time.Sleep(305 * time.Millisecond)
			}
			return len(due) < 90
		})
		if err != nil || len(due) != 90 {
			t.Fatalf("%d orders: %v", len(due), err)
		}
		for n := range due {
			want := time.Duration(n) * 10 * time.Millisecond
			submitted := want
			if n > 19 {
				submitted = max(want, 495*time.Millisecond)
			}
			if due[n] != want || began[n] != submitted {
				t.Errorf("order %d was due after %s and submitted after %s", n, due[n], began[n])
			}
		}
	})
}

func TestArrivalsEndWithTheirContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 95*time.Millisecond)
		defer cancel()
		n := 0
		err := arrivals{time.Now(), 100}.each(ctx, 100, func(time.Time) bool { n++; return true })
		if n != 10 || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%d orders: %v", n, err)
		}
	})
}

// What stands still for a second, be it who submits or what is measured, took up to a
// second for each order that was due meanwhile.
func TestAStallIsLatencyOfAllThatWereDue(t *testing.T) {
	for _, who := range []string{"submitter", "system"} {
		synctest.Test(t, func(t *testing.T) {
			a := arrivals{time.Now(), 100}
			p := newPassages(a.began, a.began.Add(4*time.Second), 1000)
			stall := func(now time.Time) bool { return now.Sub(a.began) >= time.Second && now.Sub(a.began) < 2*time.Second }
			n := 0
			err := a.each(t.Context(), 400, func(due time.Time) bool {
				if who == "submitter" && stall(time.Now()) {
					time.Sleep(time.Until(a.began.Add(2 * time.Second)))
				}
				id := strconv.Itoa(n)
				n++
				p.begin(id, due, time.Now())
				go func() {
					time.Sleep(5 * time.Millisecond)
					if who == "system" && stall(time.Now()) {
						time.Sleep(time.Until(a.began.Add(2 * time.Second)))
					}
					p.end(id, events.StatusCompleted, time.Now())
				}()
				return true
			})
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			r := p.rung(a, time.Now())
			// A quarter of the orders was due in that second, evenly.
			if r.Orders != 400 || r.P50 != 5 || r.P90 < 590 || r.P90 > 610 || r.P99 < 950 || r.P99 > 970 || r.Max < 990 || r.Max > 1010 {
				t.Errorf("%s: %+v", who, r)
			}
			if late := r.Late > 900; late != (who == "submitter") {
				t.Errorf("%s: submitted %g ms late", who, r.Late)
			}
			if !r.Carried || r.Unfinished > 0 || r.Failed > 0 {
				t.Errorf("%s: %+v", who, r)
			}
		})
	}
}

// What ends is counted where it ends, what took how long where it was due.
func TestPassages(t *testing.T) {
	began := time.Now()
	at := func(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }
	p := newPassages(at(1000), at(2000), 10)
	for id, ms := range map[string]int{"early": 990, "first": 1000, "middle": 1500, "bad": 1600, "last": 1999, "behind": 2000, "undone": 1400} {
		if !p.begin(id, at(ms), at(ms+1)) {
			t.Fatal("too many are open")
		}
	}
	for id, ms := range map[string]int{"early": 1010, "first": 1020, "behind": 2010, "middle": 2100} {
		if !p.end(id, events.StatusCompleted, at(ms)) {
			t.Errorf("%s is not open", id)
		}
	}
	if p.end("first", events.StatusCompleted, at(2200)) || !p.end("bad", events.StatusFailed, at(1700)) || !p.end("undone", events.StatusCompensated, at(1500)) {
		t.Error("an order ends once")
	}
	r := p.rung(arrivals{began, 4}, at(3000))
	// Took 20 ms, 100 ms, 600 ms, and 1001 ms until now.
	if r.Seconds != 1 || r.Orders != 5 || r.Reached != 4 || r.Compensated != 1 || r.Failed != 1 || r.Unfinished != 1 || r.P50 != 100 || r.Max != 1001 || r.Late != 1 || r.Carried || r.BacklogBefore != 1 || r.Backlog != 2 {
		t.Errorf("%+v", r)
	}
}

// What arrives in a second may be open, before and after.
func TestCarried(t *testing.T) {
	for _, c := range []struct {
		before, after int
		carried       bool
	}{{0, 0, true}, {100, 0, true}, {101, 0, false}, {0, 100, true}, {0, 101, false}} {
		began := time.Now()
		a := arrivals{began, 100}
		from, to := began.Add(3*time.Second), began.Add(6*time.Second)
		p := newPassages(from, to, 1000)
		for n := range 600 {
			id, due := strconv.Itoa(n), a.due(n)
			p.begin(id, due, due)
			end := due.Add(time.Millisecond)
			if n < c.before {
				end = from
			} else if n >= 600-c.after {
				end = to
			}
			p.end(id, events.StatusCompleted, end)
		}
		r := p.rung(a, began.Add(7*time.Second))
		if r.Carried != c.carried || r.BacklogBefore != c.before || r.Backlog != c.after || r.Reached != float64(300+c.before-c.after)/3 {
			t.Errorf("%+v: %+v", c, r)
		}
	}
}

// No more are open than may be, and what is measured ends there.
func TestTooManyOpen(t *testing.T) {
	began := time.Now()
	a := arrivals{began, 10}
	p := newPassages(began, began.Add(10*time.Second), 5)
	for n := range 5 {
		p.begin(strconv.Itoa(n), a.due(n), a.due(n))
	}
	if p.begin("5", a.due(5), a.due(5)) || p.begin("6", a.due(6), a.due(6)) {
		t.Error("a sixth may be open")
	}
	for n := range 5 {
		p.end(strconv.Itoa(n), events.StatusCompleted, a.due(4)) // all of them in the measured time
	}
	if r := p.rung(a, a.due(21)); !r.Cut || r.Carried || r.Orders != 5 || r.Seconds != 0.5 || r.Unfinished != 0 {
		t.Errorf("%+v", r)
	}
}

// Behind what has not ended nothing is measured; what ended late is in nobody's way.
func TestClimb(t *testing.T) {
	rungs, leftOut, err := climb([]float64{10, 20, 40, 80, 160}, func(rate float64) (*Rung, error) {
		r := &Rung{Rate: rate, Carried: rate < 20}
		if rate >= 40 {
			r.Unfinished = 1
		}
		return r, nil
	})
	if err != nil || len(rungs) != 3 || rungs[2].Rate != 40 || !slices.Equal(leftOut, []float64{80, 160}) {
		t.Errorf("%+v, %v, %v", rungs, leftOut, err)
	}
}

// What of the topics' offsets is no record is a marker, if Kafka has said how many there are.
func TestMarkers(t *testing.T) {
	before := &used{orders: 10, offsets: 1000, records: 700}
	for _, u := range []*used{{orders: 30, offsets: 1600, records: 1120}, {orders: 30, offsets: -1, records: 1120}} {
		var r Rung
		u.since(before, &r)
		if want := map[bool]float64{true: 9}[u.offsets > 0]; r.MarkersAnOrder != want {
			t.Errorf("%+v: %v markers an order, not %v", u, r.MarkersAnOrder, want)
		}
		var none Rung
		if before.since(u, &none); u.offsets < 0 && none.MarkersAnOrder != 0 {
			t.Errorf("of what is not known %v markers an order", none.MarkersAnOrder)
		}
	}
}

// Where Kafka does not say how long its topics are, it is logged, and all else is measured.
func TestMarkersAreNotCounted(t *testing.T) {
	client, err := kgo.NewClient(kgo.SeedBrokers("127.0.0.1:1"))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var said bytes.Buffer
	l := &ladder{load: &load{topics: new(events.Topics)}, Options: &Options{Logger: slog.New(slog.NewTextHandler(&said, nil))}, admin: kadm.NewClient(client)}
	if n := l.offsets(ctx); n != -1 || !strings.Contains(said.String(), "the markers of transactions are not counted") {
		t.Errorf("%d offsets are known, and it says %q", n, &said)
	}
}

func TestRunRates(t *testing.T) {
	r, err := Run(t.Context(), Options{Partitions: 2, Rates: []float64{20, 50}, Consoles: 20, WarmUp: 200 * time.Millisecond, Duration: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Rungs) != 2 || len(r.LeftOut) > 0 {
		t.Fatalf("%+v", r)
	}
	for n, g := range r.Rungs {
		// 8 produce requests, if none is shared: a submission, 3 replies, 4 transactions. These are in the journal, three of
		// them in an agent's requests, and two in the status, so have 9 markers, or fewer if some are shared.
		if g.Orders != []int{20, 50}[n] || g.Failed > 0 || g.Unfinished > 0 || g.P50 <= 0 || g.P99 < g.P90 || g.Max < g.P99 ||
			g.CPUPerOrder <= 0 || g.TransactionsAnOrder <= 0 || g.RequestsAnOrder <= g.TransactionsAnOrder || g.Pages == nil ||
			g.MarkersAnOrder < 1.5*g.TransactionsAnOrder || g.MarkersAnOrder > 6*g.TransactionsAnOrder {
			t.Errorf("%+v", g)
		}
	}
}

// docker answers for a container k, which has used 5 ms more of the processor with each question.
func docker(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "docker.sock")
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int64
	docker := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/containers/k/stats":
			fmt.Fprintf(w, `{"read":%q,"cpu_stats":{"cpu_usage":{"total_usage":%d}},
				"memory_stats":{"usage":9437184,"stats":{"inactive_file":1048576,"total_inactive_file":1048576}}}`,
				time.Now().Format(time.RFC3339Nano), 5_000_000*asked.Add(1))
		case "/containers/stopped/stats":
			_, _ = w.Write([]byte(`{}`))
		default:
			w.WriteHeader(http.StatusNotFound)
			_ = json.NewEncoder(w).Encode(map[string]string{"message": "No such container"})
		}
	})}
	var serving sync.WaitGroup
	serving.Go(func() { _ = docker.Serve(listener) }) // it ends when it is closed
	t.Cleanup(func() {
		_ = docker.Close() // nobody waits for an answer
		serving.Wait()
	})
	t.Setenv("DOCKER_HOST", "unix://"+socket)
}

func TestContainer(t *testing.T) {
	docker(t)
	for name, wrong := range map[string]string{"k": "", "stopped": "does it run?", "other": "404 Not Found: No such container"} {
		c, err := newContainer(name)
		if err != nil {
			t.Fatal(err)
		}
		said, err := c.read(t.Context())
		c.close()
		switch {
		case wrong == "" && (err != nil || said.cpu != 5*time.Millisecond || said.memory != 8):
			t.Errorf("%+v, %v", said, err)
		case wrong != "" && (err == nil || !strings.Contains(err.Error(), wrong)):
			t.Errorf("%s: %v", name, err)
		}
	}
	t.Setenv("DOCKER_HOST", "tcp://far:2375")
	if _, err := newContainer("k"); err == nil || !strings.Contains(err.Error(), "unix:///path") {
		t.Errorf("a Docker elsewhere: %v", err)
	}
}
