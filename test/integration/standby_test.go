package integration

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/internal/console"
	"github.com/waybill-dev/waybill/orchestrator"
	"github.com/waybill-dev/waybill/orchestrator/proof"
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

// Where an instance keeps its own partitions alone, what it is asked of others goes on to their owners: as programs, the
// commands and people ask. Once a partition has moved so does that, and an instance that tells no address is found by nobody.
func TestReadsGoToTheOwner(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kafka.Embedded(t))
	keys := proof.New([]proof.Key{{ID: "k", Secret: []byte("secret")}}, proof.Off, nil)
	type at struct {
		*waybill.Instance
		client *api.Client
		url    string
	}
	shared := "" // an address that all advertise
	begin := func(id string, tells bool) *at {
		server := api.New(api.Config{Console: func(server http.Handler) http.Handler { return console.New(server, console.Config{}) }})
		web := httptest.NewServer(server)
		client, err := api.NewClient(web.URL)
		if err != nil {
			t.Fatal(err)
		}
		i := w.Run(id, t.TempDir(), standby(orchestrator.StandbyOwned), func(cfg *orchestrator.Config) {
			if cfg.Keys = func() *proof.Keys { return keys }; tells {
				cfg.AdvertiseURL = cmp.Or(shared, web.URL)
			}
		})
		server.Attach(i.Instance)
		t.Cleanup(func() {
			client.Close()
			web.Close()
			server.Detach(errors.New("over"))
		})
		return &at{i, client, web.URL}
	}
	one := begin("one", true)
	w.Register(one.Instance, fulfilment)
	w.serveFulfilment()
	w.complete(one.Instance, "first", 20)
	two := begin("two", true)
	w.share(one.Instance, two.Instance)
	of := func(i *at) string { // an order of a partition that is not of the instance
		for k := range 20 {
			if id := fmt.Sprintf("first-%d", k); slices.Contains(i.Elsewhere(), i.Partition(id)) {
				return id
			}
		}
		t.Fatal("it keeps all of them")
		return ""
	}
	knows := func(i *at, id, url string) {
		t.Helper()
		w.until("it is known where "+id+" is", func() error {
			if now := i.OwnerAddress(i.Partition(id)); now != url {
				return fmt.Errorf("it is at %q, and must be at %q", now, url)
			}
			return nil
		})
	}
	for _, c := range []struct{ here, there *at }{{one, two}, {two, one}} {
		id := of(c.here)
		knows(c.here, id, c.there.url)
		status, header, body := w.asksFor(http.MethodGet, c.here.url+"/api/v1/orders/"+id+"?wait=1")
		var p api.Problem
		if err := json.Unmarshal([]byte(body), &p); err != nil || status != http.StatusMisdirectedRequest || p.Owner != c.there.url || p.Type != "urn:waybill:problem:elsewhere" || !strings.Contains(p.Detail, c.there.url) {
			t.Errorf("%d %s", status, body)
		}
		if link := header.Get("Link"); link != "<"+c.there.url+"/api/v1/orders/"+id+`?wait=1>; rel="alternate"` || header.Get("Location") != "" {
			t.Errorf("it leads to %q", link)
		}
		for _, path := range []string{"/history", "/events"} {
			if status, _, body := w.asksFor(http.MethodGet, c.here.url+"/api/v1/orders/"+id+path); status != http.StatusMisdirectedRequest || !strings.Contains(body, `"owner":"`+c.there.url+`"`) {
				t.Errorf("%s: %d %s", path, status, body)
			}
		}
		skip := fmt.Sprintf("%s/api/v1/partitions/%d/skip-lost", c.here.url, c.here.Partition(id))
		if status, _, body := w.asksFor(http.MethodPost, skip); status != http.StatusMisdirectedRequest || !strings.Contains(body, `"owner":"`+c.there.url+`"`) {
			t.Errorf("an act on a partition: %d %s", status, body)
		}
		if o, err := c.here.client.Order(t.Context(), id); err != nil || o.OrderID != id {
			t.Errorf("who asks the other one for %s is not led on: %v", id, err)
		}
		if h, err := c.here.client.History(t.Context(), id); err != nil || len(h.Events) == 0 {
			t.Errorf("who asks the other one for what happened is not led on: %v", err)
		}
		if status, _, body := w.asksFor(http.MethodGet, c.here.url+"/orders/"+id); status != http.StatusMisdirectedRequest || !strings.Contains(body, `href="`+c.there.url+"/orders/"+id+`"`) {
			t.Errorf("the page of %s: %d %s", id, status, body)
		}
		_, _, page := w.asksFor(http.MethodGet, c.here.url+"/partitions")
		partitions, instances, _ := strings.Cut(page, "<h2>Instances")
		if led := `href="` + c.there.url + `/partitions"`; !strings.Contains(partitions, led) || strings.Contains(partitions, c.here.url) || !strings.Contains(instances, led) || !strings.Contains(instances, c.here.url) {
			t.Errorf("the page of partitions: %s", page)
		}
		all, err := c.here.client.Partitions(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range all {
			if (p.OwnerURL == c.there.url) != p.Elsewhere {
				t.Errorf("partition %d is elsewhere: %t, and at %q", p.Partition, p.Elsewhere, p.OwnerURL)
			}
		}
		receipt, err := http.Post(c.here.url+"/api/v1/orders?wait=30", "application/json", strings.NewReader(`{"id":"`+id+`","workflow":"fulfilment"}`))
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(receipt.Body)
		_ = receipt.Body.Close()
		if receipt.StatusCode != http.StatusAccepted || !strings.Contains(string(text), `"owner":"`+c.there.url+`"`) {
			t.Errorf("who submits what is elsewhere: %d %s", receipt.StatusCode, text)
		}
	}
	told, err := one.client.Upgrade(t.Context())
	if err != nil || len(told.Members) != 2 || told.Members[0].URL == "" || told.Members[1].URL == "" {
		t.Errorf("the members are %+v, %v", told, err)
	}

	id := of(one)
	two.Stop()
	w.until("one owns all", func() error { return ownsAll(one.Instance) })
	knows(one, id, "")
	three := begin("three", false)
	w.share(one.Instance, three.Instance)
	id = of(one)
	knows(one, id, "")
	status, header, body := w.asksFor(http.MethodGet, one.url+"/api/v1/orders/"+id)
	if status != http.StatusMisdirectedRequest || !strings.Contains(body, "--advertise-url") || strings.Contains(body, `"owner"`) || header.Get("Link") != "" {
		t.Errorf("of an instance that tells no address: %d %s", status, body)
	}
	id = of(three)
	knows(three, id, one.url)
	if o, err := three.client.Order(t.Context(), id); err != nil || o.OrderID != id {
		t.Errorf("who tells nothing is not told either: %v", err)
	}

	three.Stop()
	w.until("one owns all again", func() error { return ownsAll(one.Instance) })
	shared = one.url
	four := begin("four", true)
	w.share(one.Instance, four.Instance)
	for _, i := range []*at{one, four} {
		id = of(i)
		w.until("it is known that the address is of both", func() error {
			if !i.SharesAddress(i.Partition(id)) {
				return errors.New("it is not")
			}
			return nil
		})
		if status, _, body := w.asksFor(http.MethodGet, i.url+"/api/v1/orders/"+id); status != http.StatusMisdirectedRequest || !strings.Contains(body, "advertises the address of this one, "+shared) || strings.Contains(body, `"owner"`) {
			t.Errorf("of an order elsewhere, at the address of both: %d %s", status, body)
		}
		if _, _, body := w.asksFor(http.MethodGet, i.url+"/partitions"); !strings.Contains(body, "advertised as that of this instance") {
			t.Errorf("the page of partitions: %s", body)
		}
		all, err := i.client.Partitions(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range all {
			if p.SharesURL != p.Elsewhere || p.OwnerURL != "" {
				t.Errorf("of partition %d, which is elsewhere: %t, the address is said to be of both: %t, and %q", p.Partition, p.Elsewhere, p.SharesURL, p.OwnerURL)
			}
		}
	}
}

// asksFor asks for something, and returns the status, what stands in front of the body, and that.
func (w *world) asksFor(method, url string) (status int, header http.Header, body string) {
	w.Helper()
	request, err := http.NewRequestWithContext(context.WithoutCancel(w.Context()), method, url, nil)
	if err != nil {
		w.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		w.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		w.Fatal(err)
	}
	return response.StatusCode, response.Header, string(text)
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

// An instance that does not hear from Kafka is not ready, and does not say of orders that it
// does not have that there are none, be it of partitions that were its own: others may have
// them by now. Those that it has it tells, and it goes on by itself.
func TestAnInstanceThatDoesNotHearFromKafka(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what string
		cut  func(w *world, wire *cable, two *waybill.Instance) (mend func())
	}{
		{"its connections are dead", func(w *world, wire *cable, two *waybill.Instance) func() {
			wire.pull()
			w.complete(two, "after", 20)
			return wire.plug
		}},
		{"it gets no answers", func(w *world, _ *cable, _ *waybill.Instance) func() {
			held := make(chan struct{})
			w.Broker.Fake.ControlKey(int16(kmsg.ListOffsets), func(kmsg.Request) (kmsg.Response, error, bool) {
				w.Broker.Fake.KeepControl()
				w.Broker.Fake.SleepControl(func() { <-held })
				return nil, nil, false
			})
			return func() { close(held) }
		}},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, kafka.Embedded(t))
			wire := &cable{}
			one := w.Run("one", t.TempDir(), through(wire), briefly)
			two := w.Run("two", t.TempDir(), briefly)
			w.share(one, two)
			w.Register(two, fulfilment)
			w.serveFulfilment()
			w.complete(one, "before", 20)
			server := api.New(api.Config{})
			server.Attach(one.Instance)
			t.Cleanup(func() { server.Detach(errors.New("over")) })
			web := httptest.NewServer(server)
			t.Cleanup(web.Close)
			expect := func(path string, want int, says string) {
				t.Helper()
				if status, _, body := w.asks(http.MethodGet, web.URL+path); status != want || !strings.Contains(body, says) {
					t.Errorf("%s: %d %s", path, status, body)
				}
			}
			mend := sync.OnceFunc(c.cut(w, wire, two))
			t.Cleanup(mend)
			const silent = "Kafka has not said to this instance for "
			w.until("it says that it does not hear from Kafka", func() error {
				if status, _, body := w.asks(http.MethodGet, web.URL+"/readyz"); status != http.StatusServiceUnavailable || !strings.Contains(body, silent) {
					return fmt.Errorf("%d %s", status, body)
				}
				return nil
			})
			expect("/healthz", http.StatusOK, "ok")
			for k := range 20 {
				expect(fmt.Sprintf("/api/v1/orders/before-%d", k), http.StatusOK, `"processState":"Processed"`)
				expect(fmt.Sprintf("/api/v1/orders/after-%d", k), http.StatusServiceUnavailable, silent)
			}
			expect("/api/v1/orders", http.StatusServiceUnavailable, silent)
			if _, _, body := w.asks(http.MethodGet, web.URL+"/api/v1/partitions"); strings.Contains(body, `"known":true`) {
				t.Errorf("it knows: %s", body)
			}
			mend()
			w.complete(two, "after", 20)
			w.until("it is ready again", one.Ready)
			for k := range 20 {
				w.order(one, fmt.Sprintf("after-%d", k), in(projections.Processed))
			}
			w.Audit() // while both read: in one case the submissions came twice
		})
	}
}
