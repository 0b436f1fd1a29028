package integration

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/orchestrator"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/waybill"
)

// web is the HTTP server of an instance, until the test ends.
func (w *world) web(r *waybill.Instance) string {
	w.Helper()
	server := api.New(api.Config{})
	server.Attach(r.Instance)
	web := httptest.NewServer(server)
	w.Cleanup(func() {
		web.Close()
		server.Detach(errors.New("over"))
	})
	return web.URL
}

// asks asks for something, and returns the status, when to try again, and the body.
func (w *world) asks(method, url string) (status int, retry, body string) {
	w.Helper()
	status, header, body := w.asksFor(method, url)
	return status, header.Get("Retry-After"), body
}

// settled waits until the group has so many members, and all know what they got.
func (w *world) settled(r *waybill.Instance, n int) {
	w.Helper()
	w.until("the group is settled", func() error {
		now, err := r.Upgrade(w.Context())
		if err == nil && len(now.Members) != n {
			err = fmt.Errorf("%d members", len(now.Members))
		}
		return err
	})
}

// An empty instance that joins beside many orders gets no partition before it is close to
// the end of its journal. Until then it does not know the orders, and says so; whoever
// has the partitions serves them on, and no answer is ever that there is no such order.
func TestANewcomerTakesNothingThatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	for _, mode := range []orchestrator.Standby{orchestrator.StandbyAll, orchestrator.StandbyOwned} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, kafka.Embedded(t))
			settings := func(cfg *orchestrator.Config) { cfg.Standby, cfg.Close = mode, 20 }
			one := w.Run("one", t.TempDir(), settings)
			w.Register(one, fulfilment)
			w.serveFulfilment()
			const before = 500
			w.complete(one, "before", before)

			unreadable := w.forgets()
			unreadable.Store(true)
			two := w.Begin("two", t.TempDir(), settings)
			w.settled(one, 2)
			w.complete(one, "meanwhile", 20)
			if n := two.Owned(); n > 0 {
				t.Errorf("two knows nothing, and serves %d partitions", n)
			}
			if err := ownsAll(one); err != nil {
				t.Errorf("one serves %v", err)
			}
			first, second := w.web(one), w.web(two)
			unknown, why := http.StatusServiceUnavailable, "not known yet"
			if mode == orchestrator.StandbyOwned {
				unknown, why = http.StatusMisdirectedRequest, "owned by another instance"
			}
			for _, of := range []struct{ method, path string }{
				{http.MethodGet, "/api/v1/orders/before-0"},
				{http.MethodGet, "/api/v1/orders/before-0/history"},
				{http.MethodGet, "/api/v1/orders/nobodys"},
				{http.MethodPost, "/api/v1/orders/before-0/cancel"},
				{http.MethodGet, "/api/v1/orders"},
				{http.MethodGet, "/api/v1/alerts"},
			} {
				want, says := unknown, why
				if mode == orchestrator.StandbyOwned && (strings.HasSuffix(of.path, "orders") || strings.HasSuffix(of.path, "alerts")) {
					want, says = http.StatusOK, `"elsewhere":[0,1,2]`
				}
				status, retry, body := w.asks(of.method, second+of.path)
				if status != want || !strings.Contains(body, says) || (retry != "") != (status == http.StatusServiceUnavailable) {
					t.Errorf("two answers %s with %d, retry after %q: %s", of.path, status, retry, body)
				}
			}
			if err := two.Ready(); !errors.Is(err, orchestrator.ErrUnknownYet) {
				t.Errorf("two knows nothing of its share, and says to whether it is ready: %v", err)
			}
			if status, _, body := w.asks(http.MethodGet, first+"/api/v1/orders/nobodys"); status != http.StatusNotFound {
				t.Errorf("one answers for an order that is not there with %d: %s", status, body)
			}

			unreadable.Store(false)
			asked, statuses := 0, make(map[int]int)
			w.until("two has its share", func() error {
				for _, of := range []string{first, second} {
					asked++
					status, _, body := w.asks(http.MethodGet, fmt.Sprintf("%s/api/v1/orders/before-%d", of, asked%before))
					if statuses[status]++; status != http.StatusOK && status != http.StatusServiceUnavailable && (mode == orchestrator.StandbyAll || status != http.StatusMisdirectedRequest) {
						t.Fatalf("while it joins an answer is %d: %s", status, body)
					}
				}
				if one.Owned()+two.Owned() < partitions || two.Owned() == 0 {
					return fmt.Errorf("%d and %d partitions; answered %v", one.Owned(), two.Owned(), statuses)
				}
				return two.Ready()
			})
			w.completeBoth(one, two, "after", 20)
			for k := range before {
				id := fmt.Sprintf("before-%d", k)
				if _, _, err := two.Order(id); err != nil && (mode == orchestrator.StandbyAll || !errors.Is(err, orchestrator.ErrElsewhere)) {
					t.Errorf("order %s: %v", id, err)
				}
			}
		})
	}
}

// A partition without a live owner is taken by whoever is there, also if it has to be
// folded from its beginning.
func TestWhatNobodyHasAColdInstanceTakes(t *testing.T) {
	t.Parallel()
	for _, mode := range []orchestrator.Standby{orchestrator.StandbyAll, orchestrator.StandbyOwned} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, kafka.Embedded(t))
			settings := func(cfg *orchestrator.Config) { cfg.Standby, cfg.Close = mode, 1 }
			one := w.Run("one", t.TempDir(), settings)
			w.Register(one, fulfilment)
			w.serveFulfilment()
			w.complete(one, "before", 50)
			unreadable := w.forgets()
			unreadable.Store(true)
			two := w.Begin("two", t.TempDir(), settings)
			w.settled(one, 2)
			one.Stop()
			unreadable.Store(false)
			w.until("two owns all", func() error { return ownsAll(two) })
			w.complete(two, "after", 10)
			for k := range 50 {
				if _, _, err := two.Order(fmt.Sprintf("before-%d", k)); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// One partition that cannot be read is no reason to tell nothing of all others. Its orders
// are told as they stood before, and of no other it is said that it is not there.
func TestOnePartitionThatCannotBeRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kafka.Embedded(t))
	dir := t.TempDir()
	one := w.Run("one", dir)
	w.Register(one, fulfilment)
	w.serveFulfilment()
	const orders, torn = 30, 1
	w.complete(one, "before", orders)
	of := func(name string) string { // an order of the partition
		k := 0
		for one.Partition(fmt.Sprint(name, k)) != torn {
			k++
		}
		return fmt.Sprint(name, k)
	}
	stood, missing := of("before-"), of("nobodys-")
	one.Stop()
	w.LastAudit("what is written next nobody may write")
	client := w.Broker.Client(w, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err := client.ProduceSync(w.Context(), &kgo.Record{Topic: w.Topics.Journal, Partition: torn, Value: []byte(`{"type":"waybill.partition.reinvented","at":"2026-01-02T15:04:05.000Z"}`)}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	for called, mode := range []orchestrator.Standby{orchestrator.StandbyAll, orchestrator.StandbyOwned} {
		one = w.Begin("one", dir, standby(mode))
		web := w.web(one)
		w.until("the others are served, and it is known why that one is not", func() error {
			// Before it calls an operator it folds the journal once more from its beginning, and knows nothing meanwhile.
			if n := len(w.read(w.Topics.Alerts)); n <= called {
				return fmt.Errorf("an operator was called %d times", n)
			}
			err := one.Ready()
			if one.Owned() != partitions-1 || !errors.Is(err, projections.ErrGap) {
				return fmt.Errorf("%d: %w", one.Owned(), err)
			}
			_, _, err = one.Order(stood)
			return err
		})
		for _, path := range []string{"orders", "orders?state=Error", "alerts"} {
			if status, _, body := w.asks(http.MethodGet, web+"/api/v1/"+path); status != http.StatusOK || !strings.Contains(body, fmt.Sprintf(`"unknown":[%d]`, torn)) {
				t.Errorf("--standby %s: %s: %d %s", mode, path, status, body)
			}
		}
		for k := range orders {
			for _, of := range []string{"", "/history"} {
				if status, _, body := w.asks(http.MethodGet, fmt.Sprintf("%s/api/v1/orders/before-%d%s", web, k, of)); status != http.StatusOK {
					t.Errorf("--standby %s: before-%d%s: %d %s", mode, k, of, status, body)
				}
			}
		}
		if status, _, body := w.asks(http.MethodGet, web+"/api/v1/orders/"+missing); status != http.StatusServiceUnavailable || !strings.Contains(body, projections.ErrGap.Error()) {
			t.Errorf("--standby %s: %s: %d %s", mode, missing, status, body)
		}
		one.Stop()
	}
}

// An instance whose follower comes to a standstill once it was caught up does not go on
// saying that there are no orders but those that it knew then.
func TestAStandbyThatStandsStillSaysSo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kafka.Embedded(t))
	_, two := w.pair()
	w.until("two knows all", two.Ready)
	unreadable := w.forgets()
	const orders = 30
	for k := range orders {
		w.Submit(fmt.Sprintf("after-%d", k), `{"workflow":"fulfilment"}`)
	}
	web := w.web(two)
	answers := func(allowed ...int) error {
		for k := range orders {
			if status, _, body := w.asks(http.MethodGet, fmt.Sprintf("%s/api/v1/orders/after-%d", web, k)); !slices.Contains(allowed, status) {
				return fmt.Errorf("order after-%d: %d %s", k, status, body)
			}
		}
		return nil
	}
	w.until("two denies no order that is there", func() error { return answers(http.StatusOK, http.StatusServiceUnavailable) })
	if err := two.Ready(); !errors.Is(err, orchestrator.ErrUnknownYet) {
		t.Errorf("two stands still, and says to whether it is ready: %v", err)
	}
	unreadable.Store(false)
	w.until("two knows all again", func() error { return answers(http.StatusOK) })
	w.until("two is ready again", two.Ready)
}
