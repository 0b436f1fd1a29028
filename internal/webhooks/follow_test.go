package webhooks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/lane"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/oracle"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// topic is the alerts of an instance that serves two partitions.
type topic struct {
	mu     sync.Mutex
	all    map[int32][]*kgo.Record
	marks  map[string]map[int32]int64
	served []int32
	begin  int64 // where it was when the sender began
	// trimmed is where it begins in partition 0.
	trimmed int64
	fails   map[string]int // how many more times Kafka does not answer, by what it is asked
}

// failure is that of what is asked, if it is to fail once more. The topic is locked.
func (s *topic) failure(asked string) error {
	if s.fails[asked] == 0 {
		return nil
	}
	s.fails[asked]--
	return errors.New(asked + " are not answered")
}

func (s *topic) Topics() *events.Topics {
	topics, err := events.NewTopics("shop")
	if err != nil {
		panic(err)
	}
	return &topics
}

func (s *topic) Partition(order string) int32 { return int32(order[len(order)-1]-'0') % 2 }
func (s *topic) Partitions() int32            { return 2 }

func (s *topic) Served() []int32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.served
}

func (s *topic) serves(all ...int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.served = all
}

func (s *topic) Order(id string) (*projections.Order, []int64, error) {
	if strings.HasPrefix(id, "ended") {
		return &projections.Order{ID: id, Workflow: "w"}, nil, projections.ErrForgotten
	}
	if strings.HasPrefix(id, "forgotten") {
		return nil, nil, projections.ErrNotFound
	}
	return &projections.Order{ID: id, Workflow: "w", Version: 3}, nil, nil
}

func (s *topic) AlertMarks(_ context.Context, group string) (map[int32]int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.marks[group]), s.failure("marks")
}

func (s *topic) AlertsSince(_ context.Context, at time.Time) (map[int32]int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.failure("beginnings"); err != nil {
		return nil, err
	}
	if time.Since(at) > time.Hour {
		return map[int32]int64{0: s.trimmed, 1: 0}, nil
	}
	return map[int32]int64{0: s.begin, 1: s.begin}, nil
}

func (s *topic) AlertEnds(context.Context) (map[int32]int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return map[int32]int64{0: int64(len(s.all[0])), 1: int64(len(s.all[1]))}, nil
}

func (s *topic) MarkAlerts(_ context.Context, group string, marks map[int32]int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.marks[group] == nil {
		s.marks[group] = make(map[int32]int64)
	}
	maps.Copy(s.marks[group], marks)
	return nil
}

// marked is up to where the first receiver was told.
func (s *topic) marked() map[int32]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.marks["webhooks.a"])
}

func (s *topic) AlertReader() (lane.Journals, error) {
	return &reading{topic: s, at: make(map[int32]int64)}, nil
}

// raise adds an alert of an order.
func (s *topic) raise(order string, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.Partition(order)
	r := record(order+"/2/alert", order, &events.Alert{Order: order, Reason: "why of " + order, Errors: []events.Error{}, Action: "do", At: at})
	r.Partition, r.Offset = p, int64(len(s.all[p]))
	s.all[p] = append(s.all[p], r)
}

type reading struct {
	*topic
	at map[int32]int64
}

func (r *reading) Read(p int32, from int64) { r.at[p] = from }
func (r *reading) Drop(p int32)             { delete(r.at, p) }
func (r *reading) Close()                   {}

func (r *reading) Poll(ctx context.Context) (fetches kgo.Fetches) {
	rest(ctx, time.Millisecond)
	r.mu.Lock()
	defer r.mu.Unlock()
	t := kgo.FetchTopic{Topic: "shop.alerts"}
	for p, at := range r.at {
		if p == 0 && at < r.trimmed {
			t.Partitions = append(t.Partitions, kgo.FetchPartition{Partition: p, Err: kerr.OffsetOutOfRange})
			delete(r.at, p)
			continue
		}
		if records := r.all[p][at:]; len(records) > 0 {
			t.Partitions = append(t.Partitions, kgo.FetchPartition{Partition: p, Records: slices.Clone(records)})
			r.at[p] = int64(len(r.all[p]))
		}
	}
	if len(t.Partitions) == 0 {
		return kgo.NewErrFetch(context.DeadlineExceeded) // as the client says that its time is over
	}
	return kgo.Fetches{{Topics: []kgo.FetchTopic{t}}}
}

// receiver is told of alerts.
type receiver struct {
	*httptest.Server
	t       *testing.T
	mu      sync.Mutex
	ids     []string // in turn
	told    []string // orders
	bodies  map[string]string
	answers []http.HandlerFunc // the first of these come first, and the last stays; none is 204
}

func newReceiver(t *testing.T, answers ...http.HandlerFunc) *receiver {
	t.Helper()
	r := &receiver{t: t, answers: answers, bodies: make(map[string]string)}
	r.Server = httptest.NewServer(http.HandlerFunc(r.take))
	t.Cleanup(func() {
		r.CloseClientConnections()
		r.Close()
	})
	return r
}

func (r *receiver) take(w http.ResponseWriter, q *http.Request) {
	body, err := io.ReadAll(q.Body)
	if err != nil {
		return // who sent it has gone
	}
	secrets, err := parseSecrets(secretText)
	if err != nil {
		r.t.Error(err)
	}
	var at int64
	id := q.Header.Get("Webhook-Id")
	_, err = fmt.Sscan(q.Header.Get("Webhook-Timestamp"), &at)
	if err != nil || time.Since(time.Unix(at, 0)).Abs() > time.Minute || q.Header.Get("Webhook-Signature") != sign(secrets, id, time.Unix(at, 0), body) {
		r.t.Errorf("it is not signed: %v, %v", q.Header, err)
	}
	var m message
	if err := json.Unmarshal(body, &m); err != nil || q.Method != http.MethodPost || q.Header.Get("Content-Type") != "application/json" || m.Data.ID != id {
		r.t.Errorf("%s: %v", body, err)
	}
	r.mu.Lock()
	if before, again := r.bodies[id]; again && before != string(body) {
		r.t.Errorf("it is told %s, and before that %s, under the same id", body, before)
	}
	r.bodies[id] = string(body)
	r.ids, r.told = append(r.ids, id), append(r.told, m.Data.Order)
	answer := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }
	if len(r.answers) > 0 {
		answer = r.answers[0]
		r.answers = r.answers[min(1, len(r.answers)-1):]
	}
	r.mu.Unlock()
	answer(w, q)
}

// recovers has it take all from now on.
func (r *receiver) recovers() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answers = nil
}

func (r *receiver) orders() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.told)
}

func with(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
}

// hangs never answers.
func hangs(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// stage is a sender at work.
type stage struct {
	*testing.T
	topic
	*Sender
	metrics *prometheus.Registry
	said    logged
	stop    func()
}

// logged is what a log was told.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// newStage has a webhook for each receiver, called a, b and so on.
func newStage(t *testing.T, receivers ...string) *stage {
	t.Helper()
	s := &stage{T: t, topic: topic{all: make(map[int32][]*kgo.Record), marks: make(map[string]map[int32]int64), served: []int32{0, 1}}}
	source := "webhooks:\n"
	for i, to := range receivers {
		source += fmt.Sprintf("  %c: {url: %q, secret: '${SECRET}', headers: {X-Token: '${TOKEN}'}}\n", 'a'+i, to)
	}
	all, err := Read("w.yaml", []byte(source), environment)
	if err != nil {
		t.Fatal(err)
	}
	s.metrics = prometheus.NewRegistry()
	s.Sender = NewSender(all, "https://waybill.example", "waybill/1", s.metrics, slog.New(slog.NewTextHandler(&s.said, nil)))
	s.lookUp, s.pause, s.longest = time.Millisecond, time.Millisecond, 2*time.Millisecond
	return s
}

// run tells until stop is called.
func (s *stage) run() {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Sender.Run(ctx, &s.topic) }()
	s.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			s.Error(err)
		}
	})
	s.Cleanup(s.stop)
}

func (s *stage) until(what string, yes func() bool) {
	s.Helper()
	oracle.Until(s, what, func() error {
		if !yes() {
			return fmt.Errorf("not yet:\n%s", &s.said)
		}
		return nil
	})
}

// counts says what became of the alerts of the first receiver; of how many attempts that failed is not asked if that is negative.
func (s *stage) counts(sent, failed, givenUp float64) {
	s.Helper()
	a, b, c := testutil.ToFloat64(s.sent.WithLabelValues("a")), testutil.ToFloat64(s.failed.WithLabelValues("a")), testutil.ToFloat64(s.givenUp.WithLabelValues("a"))
	if a != sent || failed >= 0 && b != failed || c != givenUp {
		s.Errorf("%v were sent, %v attempts failed, and %v were given up, instead of %v, %v and %v:\n%s", a, b, c, sent, failed, givenUp, &s.said)
	}
}

// Whatever a receiver answers that is not 2xx has it told again, as the same, until it takes it.
func TestAReceiverIsToldUntilItTakesIt(t *testing.T) {
	trap := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a redirect was followed") }))
	defer trap.Close()
	huge := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(status)
			for r.Context().Err() == nil { // it never ends
				if _, err := w.Write(make([]byte, 64<<10)); err != nil {
					return
				}
			}
		}
	}
	r := newReceiver(t, with(http.StatusInternalServerError), with(http.StatusTooManyRequests), with(http.StatusForbidden),
		func(w http.ResponseWriter, q *http.Request) {
			http.Redirect(w, q, trap.URL, http.StatusTemporaryRedirect)
		},
		func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, hangs, huge(http.StatusBadGateway), huge(http.StatusOK), with(http.StatusNoContent))
	s := newStage(t, r.URL)
	s.webhooks[0].timeout = 200 * time.Millisecond
	s.raise("o-1", time.Now())
	s.raise("o-3", time.Now())
	s.run()
	s.until("both were told", func() bool { return s.sentTo() == 2 })
	s.stop()
	if got := r.orders(); !slices.Equal(got, []string{"o-1", "o-1", "o-1", "o-1", "o-1", "o-1", "o-1", "o-1", "o-3"}) || len(r.bodies) != 2 {
		t.Errorf("it was told of %v", got)
	}
	s.counts(2, 7, 0)
	const want = `"namespace":"shop","reason":"error","order":"o-1","workflow":"w","version":3,"partition":1,"seq":2,"message":"why of o-1","action":"do","url":"https://waybill.example/orders/o-1"}`
	if body := r.bodies[r.ids[0]]; !strings.HasSuffix(body, want+"}") {
		t.Errorf("%s", body)
	}
}

// A receiver that says when it wants to be asked again is left alone until then, within bounds; any other ever longer.
func TestRetryAfterIsHeeded(t *testing.T) {
	now := time.Date(2026, 11, 27, 3, 0, 0, 0, time.UTC)
	for said, want := range map[string]time.Duration{
		"": 0, "7": 7 * time.Second, " 7 ": 7 * time.Second, "-7": 0, "soon": 0, "99999999999999999999999": longestAfter, "86400": longestAfter,
		"Fri, 27 Nov 2026 03:00:09 GMT": 9 * time.Second, "Fri, 27 Nov 2026 02:00:00 GMT": 0, "Fri, 27 Nov 2099 03:00:09 GMT": longestAfter,
	} {
		if got := retryAfter(http.Header{"Retry-After": {said}}, now); got != want {
			t.Errorf("Retry-After: %s is %s, want %s", said, got, want)
		}
	}
	pause := func(err error) (all []time.Duration) {
		attempts, ctx := 0, t.Context()
		// With a unit of a nanosecond nobody waits.
		_ = pauses(time.Nanosecond*100, time.Nanosecond*800, func(_ int, d time.Duration, _ error) { all = append(all, d) }, func(error) bool { attempts++; return attempts > 6 }).
			WithContext(ctx).Run(func() error { return err })
		return all
	}
	for range 100 {
		all := pause(errors.New("away"))
		for i, around := range []time.Duration{100, 200, 400, 800, 800, 800} {
			if d := all[i]; d < around*8/10 || d > around*12/10 {
				t.Fatalf("%v", all)
			}
		}
		if d := pause(&refusal{429, time.Microsecond})[0]; d < time.Microsecond || d > 1500 {
			t.Fatalf("it is asked again after %s", d)
		}
	}
}

// Who is slow, or away, delays nobody else, and is told once it is back; and how much that is is measured.
func TestReceiversDoNotWaitForEachOther(t *testing.T) {
	slow, good := newReceiver(t, hangs), newReceiver(t)
	s := newStage(t, slow.URL, good.URL)
	s.webhooks[0].timeout = 50 * time.Millisecond
	var want []string
	for i := range 1000 {
		want = append(want, fmt.Sprint("o-", i))
		s.raise(want[i], time.Now())
	}
	s.run()
	s.until("the good one was told of all", func() bool { return len(good.orders()) == 1000 })
	if got := good.orders(); len(got) != 1000 || len(good.bodies) != 1000 {
		t.Errorf("%d were told", len(got))
	}
	s.until("the slow one was asked again", func() bool { return len(slow.orders()) > 2 })
	s.until("it is known how far behind it is", func() bool {
		return testutil.ToFloat64(s.behind.WithLabelValues("a")) >= 500 && s.age("a") > 0 && s.age("b") == 0
	})
	if all := slices.Compact(slow.orders()); len(all) != 1 || s.marked()[0] > 0 && s.marked()[1] > 0 {
		t.Errorf("it passes over what it has not told: %q, %v", all, s.marked())
	}
	s.counts(0, -1, 0)
	slow.recovers()
	s.until("the slow one was told of all", func() bool { return s.sentTo() == 1000 })
	s.stop()
	if len(slow.bodies) != 1000 || s.marked()[0] != 500 || s.marked()[1] != 500 {
		t.Errorf("%d, %v", len(slow.bodies), s.marked())
	}
}

// While a receiver is left alone it is known how much there is to tell, and a partition that comes is told at once, unless the receiver
// asked for the time.
func TestAPauseOfAReceiver(t *testing.T) {
	later := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "86400")
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	r := newReceiver(t, with(http.StatusInternalServerError), later)
	s := newStage(t, r.URL)
	s.pause, s.longest = time.Hour, 2*time.Hour
	behind := func() float64 { return testutil.ToFloat64(s.behind.WithLabelValues("a")) }
	s.serves(0)
	s.raise("o-0", time.Now())
	s.run()
	s.until("it is refused", func() bool { return len(r.orders()) == 1 })
	s.raise("o-2", time.Now())
	s.until("it is known that there is more", func() bool { return behind() == 2 })
	s.raise("o-1", time.Now())
	s.serves(0, 1)
	s.until("it is asked again", func() bool { return len(r.orders()) == 2 })
	s.until("it is known that there is more in the other partition", func() bool { return behind() == 3 })
	s.raise("o-4", time.Now())
	s.serves(1, 0)
	s.until("it is left alone, and there is more", func() bool { return behind() == 4 })
	r.recovers()
	other, more := int32(1), 1
	if r.orders()[1] == "o-1" {
		other, more = 0, 3
	}
	s.serves(other)
	s.until("what others do not serve is told", func() bool { return s.sentTo() == float64(more) })
	s.stop()
	if got := r.orders(); len(got) != 2+more {
		t.Errorf("it was told of %q", got)
	}
}

// sentTo is how many alerts the first receiver took.
func (s *stage) sentTo() float64 { return testutil.ToFloat64(s.sent.WithLabelValues("a")) }

// age is what the metric says of the alert that is told for longest.
func (s *stage) age(webhook string) float64 {
	s.Helper()
	families, err := s.metrics.Gather()
	if err != nil {
		s.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "waybill_webhook_oldest_seconds" && m.GetLabel()[0].GetValue() == webhook {
				return m.GetGauge().GetValue()
			}
		}
	}
	s.Fatal("it is not measured")
	return 0
}

// What is marked is not told again, and what is not is, under the same ids.
func TestWhatIsNotMarkedIsToldAgain(t *testing.T) {
	r := newReceiver(t)
	s := newStage(t, r.URL)
	for i := range 6 {
		s.raise(fmt.Sprint("o-", i), time.Now())
	}
	s.run()
	s.until("all were told", func() bool { return s.sentTo() == 6 })
	s.stop()
	s.raise("o-7", time.Now())
	s.run()
	s.until("the next is told", func() bool { return s.sentTo() == 7 })
	s.stop()
	if s.said.String() != "" {
		t.Errorf("the log says %s", &s.said)
	}
	if err := s.MarkAlerts(t.Context(), "webhooks.a", map[int32]int64{0: 2}); err != nil {
		t.Fatal(err)
	}
	s.run()
	s.until("the last is told again", func() bool { return s.sentTo() == 8 })
	s.stop()
	if got := r.orders(); got[7] != "o-4" || len(r.bodies) != 7 {
		t.Errorf("%q under %d ids", got, len(r.bodies))
	}
}

// Nobody is told for ever: what a receiver refuses is given up after an hour, and what it never took after a day.
func TestAlertsAreGivenUp(t *testing.T) {
	for _, c := range []struct {
		status int
		age    time.Duration
		gone   bool
	}{
		{http.StatusBadRequest, 59 * time.Minute, false},
		{http.StatusBadRequest, 61 * time.Minute, true},
		{http.StatusGone, 61 * time.Minute, true},
		{http.StatusTooManyRequests, 23 * time.Hour, false},
		{http.StatusRequestTimeout, 23 * time.Hour, false},
		{http.StatusInternalServerError, 23 * time.Hour, false},
		{http.StatusFound, 23 * time.Hour, false},
		{http.StatusInternalServerError, 25 * time.Hour, true},
		{http.StatusTooManyRequests, 25 * time.Hour, true},
		{http.StatusInternalServerError, -25 * time.Hour, false},
	} {
		t.Run(fmt.Sprint(c.status, " after ", c.age), func(t *testing.T) {
			r := newReceiver(t, with(c.status))
			s := newStage(t, r.URL)
			s.raise("o-1", time.Now().Add(-c.age))
			s.run()
			if c.gone {
				s.until("it is given up", func() bool { return s.marked()[1] == 1 })
				r.recovers()
				s.raise("o-3", time.Now())
				s.until("the next is told", func() bool { return s.sentTo() == 1 })
				s.stop()
				s.counts(1, 1, 1)
				if !strings.Contains(s.said.String(), "an alert is given up") {
					t.Errorf("%s", &s.said)
				}
				return
			}
			s.until("it is tried on", func() bool { return len(r.orders()) > 3 })
			if s.age("a") < 0 {
				t.Error("it is of a time to come")
			}
			r.recovers()
			s.until("it is told", func() bool { return s.sentTo() == 1 })
			s.stop()
			s.counts(1, -1, 0)
		})
	}
}

// What another instance serves is not told from here any more, and not marked; and what is served anew is.
func TestAPartitionThatMoves(t *testing.T) {
	r := newReceiver(t, with(http.StatusInternalServerError))
	s := newStage(t, r.URL)
	s.raise("o-1", time.Now())
	s.run()
	s.until("it is tried", func() bool { return len(r.orders()) > 1 })
	s.serves(0)
	s.raise("o-2", time.Now())
	s.until("that of the other partition is tried", func() bool { return slices.Contains(r.orders(), "o-2") })
	r.recovers()
	s.until("it is told", func() bool { return s.sentTo() == 1 })
	if at := s.marked()[1]; at != 0 {
		t.Errorf("it is marked as told up to %d", at)
	}
	s.counts(1, -1, 0)
	s.serves(0, 1)
	s.until("it is told once it is back", func() bool { return s.sentTo() == 2 })
}

// A look that fails for what is to be told from a partition that was taken over is made again, and what others told is not told again.
func TestALookThatFailsAfterATakeover(t *testing.T) {
	for _, asked := range []string{"beginnings", "marks"} {
		t.Run(asked, func(t *testing.T) {
			r := newReceiver(t)
			s := newStage(t, r.URL)
			s.serves(0)
			s.run()
			s.raise("o-2", time.Now())
			s.until("its own is told", func() bool { return s.sentTo() == 1 })
			s.raise("told-1", time.Now())
			s.raise("o-1", time.Now())
			s.mu.Lock()
			s.marks["webhooks.a"][1] = 1 // as the owner of before said
			s.fails = map[string]int{asked: 3}
			s.mu.Unlock()
			s.serves(0, 1)
			s.until("what was not told is told", func() bool { return s.sentTo() == 2 })
			s.raise("o-4", time.Now())
			s.until("its own is told on", func() bool { return s.sentTo() == 3 })
			if got := r.orders(); !slices.Equal(got, []string{"o-2", "o-1", "o-4"}) {
				t.Errorf("it was told of %q", got)
			}
			if !strings.Contains(s.said.String(), "no alerts are told from some partitions yet") || !strings.Contains(s.said.String(), asked+" are not answered") {
				t.Errorf("it is not said that the look failed: %s", &s.said)
			}
		})
	}
}

// From when a webhook is there its alerts are owed, also in partitions that nobody serves yet.
func TestAlertsAreOwedFromTheBeginning(t *testing.T) {
	r := newReceiver(t)
	s := newStage(t, r.URL)
	s.serves()
	s.run()
	s.until("it is said", func() bool { return len(s.marked()) == 2 })
	s.stop()
	s.raise("o-1", time.Now())
	s.begin = 1 // where the topic is when the next begins
	s.serves(0, 1)
	s.run()
	s.until("it is told", func() bool { return len(r.orders()) == 1 })
}

// Where what was marked is not on the topic any more, what is left of the last day is told.
func TestATopicThatWasTrimmed(t *testing.T) {
	r := newReceiver(t)
	s := newStage(t, r.URL)
	at := time.Now()
	for range 5 { // of the same id, and so the same
		s.raise("o-2", at)
	}
	s.trimmed, s.begin = 3, 5
	s.marks["webhooks.a"] = map[int32]int64{0: 1, 1: 0}
	s.run()
	s.until("the rest is told", func() bool { return len(r.orders()) == 2 && s.marked()[0] == 5 })
}

// What cannot be read, and of what nobody knows the workflow, stops nothing.
func TestOddAlerts(t *testing.T) {
	r := newReceiver(t)
	s := newStage(t, r.URL)
	s.webhooks[0].workflows.Workflows = []string{"other*"}
	s.raise("o-1", time.Now())
	s.all[1][0].Value = []byte("{")
	s.raise("o-3", time.Now())     // of another workflow
	s.raise("ended-7", time.Now()) // the same
	s.raise("forgotten-5", time.Now())
	s.run()
	s.until("the last is told", func() bool { return s.marked()[1] == 4 })
	if got := r.orders(); len(got) > 0 || !strings.Contains(s.said.String(), "order=forgotten-5") {
		t.Errorf("%q\n%s", got, &s.said)
	}
}

// Neither the log nor a metric has a secret, nor an address, which may be one.
func TestNoSecretIsLogged(t *testing.T) {
	r := newReceiver(t)
	away := r.URL
	r.Close()
	s := newStage(t, away+"/hush/hush?hush=hush")
	s.raise("o-1", time.Now())
	s.run()
	s.until("it is tried", func() bool {
		return strings.Contains(s.said.String(), "the receiver does not take an alert; trying again")
	})
	u, err := url.Parse(away)
	if err != nil {
		t.Fatal(err)
	}
	if said := s.said.String(); strings.Contains(said, "hush") || strings.Contains(said, secretText) || !strings.Contains(said, "host="+u.Host) || !strings.Contains(said, "webhook=a") {
		t.Errorf("%s", said)
	}
	hurried := *s.webhooks[0]
	hurried.timeout = time.Nanosecond
	if _, _, err := hurried.post(t.Context(), "msg_1", nil, ""); err == nil || strings.Contains(err.Error(), "hush") {
		t.Error(err)
	}
}
