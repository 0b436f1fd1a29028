package webhooks

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/lane"
	"github.com/waybill-dev/waybill/projections"
)

// Sender tells receivers of alerts, for one instance after the other. See docs/adr/0044.
type Sender struct {
	webhooks []*Webhook
	console  string
	agent    string
	log      *slog.Logger
	since    time.Time // where nobody said up to where alerts were told, they are told from here on
	meters

	lookUp         time.Duration // for an order that is not known: a lane folds what it committed behind that
	pause, longest time.Duration // between attempts: the first, and the longest
	refused, away  time.Duration // how old an alert is given up that its receiver refuses, and any
}

const (
	// group is that whose offsets say up to where a webhook's receiver was told, behind the namespace and before its name.
	group = "webhooks."
	// markEvery is how often that is said, and lookEvery how often it is asked how much there is to tell.
	markEvery, lookEvery = time.Second, 5 * time.Second
	// moveEvery is how often it is looked, while a receiver is left alone, whether partitions have moved.
	moveEvery = time.Second
	// askEvery is how often it is looked up which partitions there are, if nothing else changes.
	askEvery    = time.Minute
	stopTimeout = 5 * time.Second
	// lookUpPause is between two looks for an order that is not known.
	lookUpPause = 200 * time.Millisecond
)

// NewSender returns what tells receivers of alerts, with links to the console at an address, which may be empty. Without receivers it
// is nil. Agent is how the program names itself.
func NewSender(webhooks []*Webhook, console, agent string, metrics prometheus.Registerer, log *slog.Logger) *Sender {
	if len(webhooks) == 0 {
		return nil
	}
	s := &Sender{
		webhooks: webhooks, console: console, agent: agent, log: log, since: time.Now(), meters: newMeters(),
		lookUp: 10 * time.Second, pause: time.Second, longest: 5 * time.Minute, refused: time.Hour, away: 24 * time.Hour,
	}
	metrics.MustRegister(s.sent, s.failed, s.givenUp, s.behind, s.waiting)
	for _, w := range webhooks {
		for _, c := range []*prometheus.CounterVec{s.sent, s.failed, s.givenUp} {
			c.WithLabelValues(w.Name)
		}
		s.behind.WithLabelValues(w.Name)
		s.waiting.set(w.Name, time.Time{})
	}
	return s
}

// Instance is what a [Sender] needs of one.
type Instance interface {
	Topics() *events.Topics
	Partition(order string) int32
	Partitions() int32
	Served() []int32
	Order(id string) (*projections.Order, []int64, error)
	AlertReader() (lane.Journals, error)
	AlertMarks(ctx context.Context, group string) (map[int32]int64, error)
	AlertsSince(ctx context.Context, at time.Time) (map[int32]int64, error)
	AlertEnds(ctx context.Context) (map[int32]int64, error)
	MarkAlerts(ctx context.Context, group string, marks map[int32]int64) error
}

// Run tells receivers of the alerts in the partitions that the instance serves, each by itself, until ctx ends. The instance must not be
// closed before that. Where a receiver was told of an alert is marked behind that, so that what is not marked is told again, with the same
// id. A nil Sender tells nobody.
func (s *Sender) Run(ctx context.Context, instance Instance) error {
	if s == nil {
		return nil
	}
	errs := make([]error, len(s.webhooks))
	var all sync.WaitGroup
	for i, w := range s.webhooks {
		all.Go(func() { errs[i] = s.follow(ctx, instance, w) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// follower tells one receiver, for one instance.
type follower struct {
	*Sender
	*Webhook
	instance Instance
	log      *slog.Logger
	reader   lane.Journals
	reads    map[int32]int64 // from where each partition is read on; what is before was told
	marked   map[int32]int64
	at       time.Time // when that was said
	served   []int32   // by the instance, when it was looked up last what is to be read
	asked    time.Time // when that was known; zero if it is to be looked up
	looked   time.Time
	gone     map[int32]bool // what was marked there is not on the topic any more
	warned   time.Time
}

func (s *Sender) follow(ctx context.Context, instance Instance, w *Webhook) (err error) {
	f := &follower{
		Sender: s, Webhook: w, instance: instance, log: s.log.With("webhook", w.Name, "host", w.url.Host),
		reads: make(map[int32]int64), marked: make(map[int32]int64), gone: make(map[int32]bool),
	}
	defer w.client.CloseIdleConnections()
	if f.reader, err = instance.AlertReader(); err != nil {
		return err
	}
	defer func() {
		for p := range f.reads { // kgo does not expect that a client is closed which fetches
			f.reader.Drop(p)
		}
		f.reader.Close()
	}()
	for ctx.Err() == nil {
		f.assign(ctx)
		f.look(ctx)
		f.take(ctx, f.reader.Poll(ctx))
		f.mark(ctx, markEvery)
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	f.mark(last, 0)
	s.behind.WithLabelValues(w.Name).Set(0)
	s.waiting.set(w.Name, time.Time{})
	return nil
}

// ours says whether alerts of a partition of their topic are told from here. The topic may have more of them than the namespace.
func (f *follower) ours(p int32) bool {
	return slices.Contains(f.instance.Served(), p%f.instance.Partitions())
}

// assign reads what is told from here, and nothing else.
func (f *follower) assign(ctx context.Context) {
	for p := range f.reads {
		if !f.ours(p) {
			f.drop(p)
		}
	}
	served := f.instance.Served()
	if slices.Equal(served, f.served) && time.Since(f.asked) < askEvery {
		return
	}
	f.served, f.asked = served, time.Time{}
	since, err := f.instance.AlertsSince(ctx, f.since)
	var marks map[int32]int64
	if err == nil {
		marks, err = f.instance.AlertMarks(ctx, group+f.Name)
	}
	var recent map[int32]int64
	if err == nil && len(f.gone) > 0 {
		recent, err = f.instance.AlertsSince(ctx, time.Now().Add(-f.away))
	}
	if err != nil {
		f.warn("no alerts are told from some partitions yet", "error", err)
		return
	}
	// From where on alerts are owed is said at once, also of partitions that others are about to serve: else what is raised
	// before they say so would be lost if they are killed.
	unsaid := maps.Clone(since)
	maps.DeleteFunc(unsaid, func(p int32, _ int64) bool { _, said := marks[p]; return said })
	if len(unsaid) > 0 {
		if err := f.instance.MarkAlerts(ctx, group+f.Name, unsaid); err != nil {
			f.warn("no alerts are told from some partitions yet", "error", err)
			return
		}
	}
	for p, begin := range since {
		if _, reading := f.reads[p]; reading || !f.ours(p) {
			continue
		}
		if at, said := marks[p]; f.gone[p] {
			begin = recent[p]
		} else if said {
			begin = at
		}
		delete(f.gone, p)
		f.reads[p] = begin
		f.reader.Read(p, begin)
	}
	f.asked = time.Now()
}

func (f *follower) drop(p int32) {
	f.asked = time.Time{}
	f.reader.Drop(p)
	delete(f.reads, p)
	delete(f.marked, p)
}

// take tells of what was read.
func (f *follower) take(ctx context.Context, fetches kgo.Fetches) {
	var again []int32
	failed := false
	fetches.EachPartition(func(fetched kgo.FetchTopicPartition) {
		p := fetched.Partition
		if _, reads := f.reads[p]; !reads { // it was dropped, or the poll's time was over
			return
		}
		if fetched.Err != nil && ctx.Err() == nil {
			f.warn("cannot read alerts; trying again", "partition", p, "error", fetched.Err)
			again, failed = append(again, p), true
			if errors.Is(fetched.Err, kerr.OffsetOutOfRange) {
				f.gone[p] = true
			}
		}
		for _, r := range fetched.Records {
			if r.Offset < f.reads[p] {
				continue
			}
			if err := f.one(ctx, r); err != nil { // it stops, or the partition is somebody else's now
				again = append(again, p)
				return
			}
			f.reads[p] = r.Offset + 1
			f.mark(ctx, markEvery)
		}
	})
	if len(again) == 0 || ctx.Err() != nil {
		return
	}
	f.mark(ctx, 0)
	for _, p := range again { // assign has it read anew
		f.drop(p)
	}
	if failed {
		rest(ctx, f.pause)
	}
}

// errMoved says that an alert is another instance's to tell, or that others wait that became this one's.
var errMoved = errors.New("partitions are served by other instances than before")

// one tells of an alert, and returns once that was taken, or given up.
func (f *follower) one(ctx context.Context, r *kgo.Record) error {
	if r.Attrs.IsControl() {
		return nil
	}
	a, err := events.Decode[events.Alert](r.Value)
	if err != nil {
		f.warn("a record of the alerts cannot be read, and is passed over", "partition", r.Partition, "offset", r.Offset, "error", err)
		return nil
	}
	m := newMessage(f.instance.Topics().Namespace, r, &a)
	if a.Order != "" {
		p := f.instance.Partition(a.Order)
		m.Data.Partition, m.Data.URL = &p, page(f.console, a.Order)
		m.Data.Workflow, m.Data.Version = f.workflow(ctx, a.Order)
	}
	if ctx.Err() != nil { // it may not have been looked for
		return ctx.Err()
	}
	if !f.wants(&m.Data) {
		if m.Data.Order != "" && m.Data.Workflow == "" {
			f.log.Warn("an alert is not told to a receiver of some workflows, because nobody knows that of its order any more", "order", a.Order)
		}
		return nil
	}
	body, err := m.body()
	if err != nil {
		f.warn("an alert cannot be told, and is passed over", "order", a.Order, "error", err)
		return nil
	}
	raised := a.At
	if now := time.Now(); raised.After(now) { // somebody else's clock
		raised = now
	}
	givenUp := func(err error) bool {
		age := time.Since(raised)
		refused, answered := errors.AsType[*refusal](err)
		return age >= f.away || answered && refused.final() && age >= f.refused
	}
	defer f.waiting.set(f.Name, time.Time{})
	told, leave := context.WithCancelCause(ctx)
	resume := func() {}
	err = pauses(f.pause, f.longest, func(attempt int, pause time.Duration, err error) {
		f.waiting.set(f.Name, raised)
		f.mark(ctx, 0)
		f.look(ctx)
		f.warn("the receiver does not take an alert; trying again", "id", m.Data.ID, "order", a.Order, "attempt", attempt, "in", pause.Round(time.Millisecond), "error", err)
		refused, answered := errors.AsType[*refusal](err)
		wants := answered && refused.after > 0 // to be left alone for so long
		resume = f.meanwhile(told, func() bool {
			return !f.ours(r.Partition) || !wants && (f.asked.IsZero() || !slices.Equal(f.instance.Served(), f.served)) // or what has moved was not read yet
		}, leave)
	}, func(err error) bool { return errors.Is(err, errMoved) || givenUp(err) }).WithContext(told).Run(func() error {
		resume()
		if !f.ours(r.Partition) {
			return errMoved
		}
		_, _, err := f.post(ctx, m.Data.ID, body, f.agent)
		if err != nil && ctx.Err() == nil {
			f.failed.WithLabelValues(f.Name).Inc()
		}
		return err
	})
	resume()
	if errors.Is(context.Cause(told), errMoved) {
		err = errMoved
	}
	leave(nil)
	switch {
	case err == nil:
		f.sent.WithLabelValues(f.Name).Inc()
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, errMoved):
		return err
	default:
		f.givenUp.WithLabelValues(f.Name).Inc()
		f.log.Error("an alert is given up: its receiver did not take it for too long", "id", m.Data.ID, "order", a.Order, "raised", a.At, "error", err)
	}
	return nil
}

// meanwhile says how much there is to tell while nothing else is done, until resume is called, and ends the pause once partitions have moved.
func (f *follower) meanwhile(ctx context.Context, moved func() bool, leave context.CancelCauseFunc) (resume func()) {
	ctx, end := context.WithCancel(ctx)
	var looks sync.WaitGroup
	looks.Go(func() {
		again := time.NewTicker(moveEvery)
		defer again.Stop()
		for {
			select {
			case <-again.C:
				f.look(ctx)
			case <-ctx.Done():
				return
			}
			if moved() {
				leave(errMoved)
			}
		}
	})
	return func() {
		end()
		looks.Wait()
	}
}

// workflow is of which workflow, and of which version, an order is; empty if nobody knows any more.
func (f *follower) workflow(ctx context.Context, order string) (string, int) {
	for began := time.Now(); ; rest(ctx, lookUpPause) {
		if o, _, err := f.instance.Order(order); err == nil || errors.Is(err, projections.ErrForgotten) {
			return o.Workflow, o.Version
		}
		if time.Since(began) >= f.lookUp || ctx.Err() != nil {
			return "", 0
		}
	}
}

// look asks how much there is to tell.
func (f *follower) look(ctx context.Context) {
	if time.Since(f.looked) < lookEvery {
		return
	}
	f.looked = time.Now()
	ends, err := f.instance.AlertEnds(ctx)
	if err != nil {
		return // it says what it did, and reading tells of Kafka's trouble
	}
	var behind int64
	for p, at := range f.reads {
		behind += max(0, ends[p]-at)
	}
	f.behind.WithLabelValues(f.Name).Set(float64(behind))
}

// mark says up to where the receiver was told, where that has changed and was not said a moment ago.
func (f *follower) mark(ctx context.Context, every time.Duration) {
	if time.Since(f.at) < every {
		return
	}
	changed := maps.Clone(f.reads)
	maps.DeleteFunc(changed, func(p int32, at int64) bool {
		before, there := f.marked[p]
		return there && before == at
	})
	f.at = time.Now()
	if len(changed) == 0 {
		return
	}
	if err := f.instance.MarkAlerts(ctx, group+f.Name, changed); err != nil {
		if ctx.Err() == nil {
			f.warn("cannot mark which alerts were told; after a restart they are told again", "error", err)
		}
		return
	}
	maps.Copy(f.marked, changed)
}

// warn says something now and then.
func (f *follower) warn(what string, about ...any) {
	if now := time.Now(); now.Sub(f.warned) >= 10*time.Second {
		f.warned = now
		f.log.Warn(what, about...)
	}
}

// rest waits, unless ctx ends.
func rest(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
