package integration

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/orchestrator"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/waybill"
	kit "github.com/waybill-dev/waybill/test/world"
)

// lowestFetch notes from which offset on a partition of the journal is read.
func (w *world) lowestFetch(partition int32) *atomic.Int64 {
	w.Helper()
	lowest := &atomic.Int64{}
	lowest.Store(-1)
	journal, err := w.Admin.Metadata(w.Context(), w.Topics.Journal)
	if err != nil {
		w.Fatal(err)
	}
	id := journal.Topics[w.Topics.Journal].ID
	w.Broker.Fake.ControlKey(int16(kmsg.Fetch), func(r kmsg.Request) (kmsg.Response, error, bool) {
		w.Broker.Fake.KeepControl()
		fetch, ok := r.(*kmsg.FetchRequest)
		if !ok {
			return nil, nil, false
		}
		for _, topic := range fetch.Topics {
			if topic.Topic != w.Topics.Journal && topic.TopicID != [16]byte(id) {
				continue
			}
			for _, p := range topic.Partitions {
				if at := lowest.Load(); p.Partition == partition && (at < 0 || p.FetchOffset < at) {
					lowest.Store(p.FetchOffset)
				}
			}
		}
		return nil, nil, false
	})
	return lowest
}

// head is how far an instance has folded a partition.
func (w *world) head(r *waybill.Instance, partition int32) int64 {
	w.Helper()
	heads, err := r.Store().Heads(partitions)
	if err != nil {
		w.Fatal(err)
	}
	return heads[partition].Offset
}

func standby(s orchestrator.Standby) func(*orchestrator.Config) {
	return func(cfg *orchestrator.Config) { cfg.Standby = s }
}

// complete runs n orders to their end.
func (w *world) complete(r *waybill.Instance, name string, n int) {
	w.Helper()
	for k := range n {
		w.Submit(fmt.Sprintf("%s-%d", name, k), `{"workflow":"fulfilment"}`)
	}
	for k := range n {
		w.order(r, fmt.Sprintf("%s-%d", name, k), in(projections.Processed))
	}
}

// Whoever follows a partition takes it over by reading what it did not follow
// yet, and of what it did the last record only: it must be there still.
func TestATakeoverReadsTheTailOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kafka.Embedded(t))
	one, two := w.pair()
	w.complete(one, "followed", 30)
	var lowest [partitions]*atomic.Int64
	var followed [partitions]int64
	w.followed(one, two)
	for p := range int32(partitions) {
		followed[p], lowest[p] = w.head(two, p), w.lowestFetch(p)
	}
	moves, moved := one.Owned(), 0
	one.Stop()
	w.until("two owns all", func() error { return ownsAll(two) })
	for p := range partitions {
		switch at := lowest[p].Load(); {
		case at == followed[p]-1:
			moved++
		case at >= 0 && at < followed[p]:
			t.Errorf("partition %d was followed up to %d, and read from %d", p, followed[p], at)
		}
	}
	if moved != moves {
		t.Errorf("the last record that was folded of a partition was read of %d, and %d moved", moved, moves)
	}
	w.complete(two, "after", 10)
}

// A broker that has just come back may not know the topics yet. Whoever follows a
// partition there goes on where it was.
func TestAStandbyOutlastsABrokerThatDoesNotKnowTheTopics(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kafka.Embedded(t))
	said := &kit.Log{}
	logged := func(cfg *orchestrator.Config) { cfg.Logger = slog.New(slog.NewTextHandler(said, nil)) }
	one, two := w.pair(logged)
	w.complete(one, "before", 30)
	w.followed(one, two)

	forgetful := w.forgets()
	w.until("a standby cannot read", func() error {
		if !strings.Contains(said.String(), "cannot read the journal; trying on") {
			return errors.New("it says nothing")
		}
		return nil
	})
	forgetful.Store(false)
	w.complete(one, "after", 30)
	w.followed(one, two)
	if strings.Contains(said.String(), "folded again") {
		t.Errorf("a standby began again:\n%s", said)
	}
}

// forgets has the broker not know the journal for those who follow it, until it is told
// to know it again. By how much they ask for at a time they are known.
func (w *world) forgets() *atomic.Bool {
	w.Helper()
	journal, err := w.Admin.Metadata(w.Context(), w.Topics.Journal)
	if err != nil {
		w.Fatal(err)
	}
	id := journal.Topics[w.Topics.Journal].ID
	forgetful := &atomic.Bool{}
	forgetful.Store(true)
	w.Broker.Fake.ControlKey(int16(kmsg.Fetch), func(r kmsg.Request) (kmsg.Response, error, bool) {
		w.Broker.Fake.KeepControl()
		fetch, ok := r.(*kmsg.FetchRequest)
		if !ok || !forgetful.Load() || fetch.MaxBytes != 16<<20 {
			return nil, nil, false
		}
		answer := fetch.ResponseKind().(*kmsg.FetchResponse)
		if len(fetch.Topics) == 0 {
			answer.ErrorCode = kerr.FetchSessionIDNotFound.Code // so that it names the topics again
			return answer, nil, true
		}
		for _, topic := range fetch.Topics {
			if topic.TopicID != [16]byte(id) {
				return nil, nil, false
			}
			unknown := kmsg.NewFetchResponseTopic()
			unknown.TopicID = topic.TopicID
			for _, p := range topic.Partitions {
				of := kmsg.NewFetchResponseTopicPartition()
				of.Partition, of.ErrorCode = p.Partition, kerr.UnknownTopicID.Code
				unknown.Partitions = append(unknown.Partitions, of)
			}
			answer.Topics = append(answer.Topics, unknown)
		}
		return answer, nil, true
	})
	return forgetful
}

// followed waits until both instances have folded the same.
func (w *world) followed(one, two *waybill.Instance) {
	w.Helper()
	for p := range int32(partitions) {
		w.until("both have folded all", func() error {
			if a, b := w.head(one, p), w.head(two, p); a != b || a == 0 {
				return fmt.Errorf("partition %d: %d and %d", p, a, b)
			}
			return nil
		})
	}
}

// pair runs two instances that share the partitions, and serves the workflow fulfilment.
func (w *world) pair(settings ...func(*orchestrator.Config)) (one, two *waybill.Instance) {
	w.Helper()
	one = w.Run("one", w.TempDir(), settings...)
	w.Register(one, fulfilment)
	w.serveFulfilment()
	two = w.Run("two", w.TempDir(), settings...)
	w.share(one, two)
	return one, two
}

// share waits until two instances serve all partitions between them.
func (w *world) share(one, two *waybill.Instance) {
	w.Helper()
	w.until("both instances serve", func() error {
		if one.Owned() == 0 || two.Owned() == 0 || one.Owned()+two.Owned() < partitions {
			return fmt.Errorf("%d and %d partitions", one.Owned(), two.Owned())
		}
		return nil
	})
}

// ownsAll says what an instance lacks of serving all partitions.
func ownsAll(r *waybill.Instance) error {
	if have := r.Owned(); have != partitions {
		return fmt.Errorf("%d of %d", have, partitions)
	}
	return r.Ready()
}

// With --standby owned an instance reads nothing of what others own, goes on
// from where it was when it owns it again, and says of the orders there that it
// does not know them.
func TestStandbyOwned(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kafka.Embedded(t))
	dir := t.TempDir()
	one := w.Run("one", dir, standby(orchestrator.StandbyOwned))
	w.Register(one, fulfilment)
	w.serveFulfilment()
	w.complete(one, "first", 20)
	one.Stop()

	two := w.Run("two", t.TempDir(), standby(orchestrator.StandbyOwned))
	w.complete(two, "second", 20)
	one = w.Run("one", dir, standby(orchestrator.StandbyOwned))
	w.share(one, two)
	elsewhere := one.Elsewhere()
	if len(elsewhere) != partitions-one.Owned() {
		t.Fatalf("one owns %d, and knows nothing of %v", one.Owned(), elsewhere)
	}
	away := elsewhere[0]
	w.saysWhatIsElsewhere(one, elsewhere)

	before, lowest := w.head(one, away), w.lowestFetch(away)
	w.completeBoth(one, two, "third", 20)
	if now := w.head(one, away); now != before {
		t.Errorf("one has folded partition %d from %d to %d, though it is not its own", away, before, now)
	}
	if before == 0 || w.head(two, away) <= before {
		t.Fatalf("partition %d: one stands at %d, two at %d", away, before, w.head(two, away))
	}
	lowest.Store(-1)
	two.Stop()
	w.until("one owns all", func() error { return ownsAll(one) })
	if at := lowest.Load(); at != before-1 { // the last record that one has folded must be there still
		t.Errorf("the takeover read partition %d from %d; one stood at %d", away, at, before)
	}
	if still := one.Elsewhere(); len(still) > 0 {
		t.Errorf("one owns all, and knows nothing of %v", still)
	}
	for k := range 20 {
		w.order(one, fmt.Sprintf("third-%d", k), in(projections.Processed))
	}
}

// completeBoth runs n orders to their end, each as its owner tells.
func (w *world) completeBoth(one, two *waybill.Instance, name string, n int) {
	w.Helper()
	for k := range n {
		w.Submit(fmt.Sprintf("%s-%d", name, k), `{"workflow":"fulfilment"}`)
	}
	for k := range n {
		id := fmt.Sprintf("%s-%d", name, k)
		w.until("order "+id, func() error {
			o, _, err := one.Order(id)
			if errors.Is(err, orchestrator.ErrElsewhere) {
				o, _, err = two.Order(id)
			}
			if err == nil && o.State != projections.Processed {
				err = fmt.Errorf("it is %s", o.State)
			}
			return err
		})
	}
}

// saysWhatIsElsewhere asks over HTTP for what the instance does not know.
func (w *world) saysWhatIsElsewhere(r *waybill.Instance, elsewhere []int32) {
	w.Helper()
	server := api.New(api.Config{})
	server.Attach(r.Instance)
	defer server.Detach(errors.New("over"))
	web := httptest.NewServer(server)
	defer web.Close()
	client, err := api.NewClient(web.URL)
	if err != nil {
		w.Fatal(err)
	}
	defer client.Close()
	away := make(map[int32]bool)
	for _, p := range elsewhere {
		away[p] = true
	}
	here := 0
	for k := range 20 {
		id := fmt.Sprintf("second-%d", k)
		want := http.StatusOK
		if p := r.Partition(id); away[p] {
			want = http.StatusMisdirectedRequest
		} else {
			here++
		}
		for _, path := range []string{"", "/history"} {
			status, _, body := w.asks(http.MethodGet, web.URL+"/api/v1/orders/"+id+path)
			if status != want || want != http.StatusOK && !strings.Contains(body, "owned by another instance") {
				w.Errorf("%s%s of partition %d: %d %s", id, path, r.Partition(id), status, body)
			}
		}
		if want == http.StatusMisdirectedRequest {
			if status, _, body := w.asks(http.MethodPost, web.URL+"/api/v1/orders/"+id+"/cancel"); status != want {
				w.Errorf("cancel %s: %d %s", id, status, body)
			}
		}
	}
	page, err := client.Orders(w.Context(), api.Filter{}, 1000, "")
	if err != nil {
		w.Fatal(err)
	}
	listed := 0
	for _, o := range page.Orders {
		if away[o.Partition] {
			w.Errorf("order %s of partition %d is listed", o.OrderID, o.Partition)
		}
		if strings.HasPrefix(o.OrderID, "second-") {
			listed++
		}
	}
	if listed != here || fmt.Sprint(page.Elsewhere) != fmt.Sprint(elsewhere) {
		w.Errorf("%d of %d orders are listed, and %v said to be elsewhere", listed, here, page.Elsewhere)
	}
	all, err := client.Partitions(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	for _, p := range all {
		if p.Elsewhere != away[p.Partition] {
			w.Errorf("partition %d: elsewhere is %t", p.Partition, p.Elsewhere)
		}
	}
}
