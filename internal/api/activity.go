package api

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/waybill-dev/waybill/internal/identity"
	"github.com/waybill-dev/waybill/orchestrator"
	"github.com/waybill-dev/waybill/orchestrator/lane"
	"github.com/waybill-dev/waybill/projections"
)

// Activity is what an instance measured of late, of the workflows that the caller may see.
type Activity struct {
	Instance   string   `json:"instance" doc:"Who says so: all that follows is of the partitions that it served then"`
	Partitions int      `json:"partitions" doc:"How many of the namespace's partitions it serves now"`
	Of         int32    `json:"of" doc:"How many there are"`
	Samples    []Sample `json:"samples" nullable:"false" doc:"Those of the last hour, the oldest first. There is none of a time when it served no partition, nor of before it began. They are kept in memory"`
}

// Sample is what was measured in the time up to another.
type Sample struct {
	At      Time     `json:"at"`
	Seconds float64  `json:"seconds" doc:"Since the sample before"`
	Begun   int      `json:"begun" doc:"Orders that were accepted in that time"`
	Ended   int      `json:"ended" doc:"Orders that ended in that time, without those that were rejected"`
	Errored int      `json:"errored" doc:"Times that an order stopped in Error in that time"`
	Open    *Open    `json:"open" doc:"Orders that had not ended; null if that was not known"`
	Waited  *float64 `json:"waited" doc:"Seconds for which the oldest input of a transaction had waited, on average of those in that time; null if there was none, and for callers who may see some workflows alone"`
	Late    *float64 `json:"late" doc:"Seconds after which it was decided on what was due, on average of that time; null likewise"`
	Overdue *float64 `json:"overdue" doc:"Seconds since that was due, at the end of that time, which was due first of what had not been decided on: a deadline, a retry, the end of a sleep, a tick. 0 if nothing was; without what waited until its agent could be asked; null for callers who may see some workflows alone"`
	Oldest  *float64 `json:"oldest" doc:"Seconds since an agent was asked for what was with it for longest, or since what waited longest until its agent could be asked could have begun; 0 if there was neither; null for callers who may see some workflows alone"`
}

// Open is how many orders had not ended, by state.
type Open struct {
	Pending      int `json:"pending"`
	Processing   int `json:"processing"`
	Error        int `json:"error"`
	Compensating int `json:"compensating"`
}

// TransformSchema says that it may not be known.
func (Open) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	s.Nullable = true
	return s
}

// How often an instance is measured, and how long that is kept.
const (
	sampleEvery = 30 * time.Second
	sampleKept  = time.Hour
)

// measured is how an instance stands, and what it has done since the process began.
type measured struct {
	at     time.Time
	totals lane.Totals
	open   map[string]Open // by workflow, as it stands in labels; nil if that is not known
	// oldest and overdue are in seconds.
	oldest, overdue float64
}

// sampled is what was measured in the time up to another, by workflow, as it stands in labels.
type sampled struct {
	at                    time.Time
	span                  time.Duration
	begun, ended, errored map[string]float64
	open                  map[string]Open
	waited, late          *float64
	oldest, overdue       float64
}

// activity is what was measured of late: some hundred samples, each of as many workflows as stand in labels.
type activity struct {
	mu      sync.Mutex
	before  *measured // nil if what is measured next says nothing of the time before
	samples []sampled
}

// note takes what was measured, nil if there was nothing to measure.
func (a *activity) note(now *measured) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if was := a.before; was != nil && now != nil {
		a.samples = append(a.samples, sampled{
			at: now.at, span: now.at.Sub(was.at), open: now.open, oldest: now.oldest, overdue: now.overdue,
			begun: since(was.totals.Accepted, now.totals.Accepted), ended: since(was.totals.Ended, now.totals.Ended), errored: since(was.totals.Errored, now.totals.Errored),
			waited: mean(was.totals.Waited, now.totals.Waited), late: mean(was.totals.Late, now.totals.Late),
		})
	}
	if a.before = now; now != nil {
		for len(a.samples) > 0 && now.at.Sub(a.samples[0].at) >= sampleKept {
			a.samples = a.samples[1:]
		}
	}
}

// since is what was counted between two times. What counts fewer began anew.
func since(was, is map[string]float64) map[string]float64 {
	all := make(map[string]float64)
	for name, n := range is {
		if n > was[name] {
			all[name] = n - was[name]
		}
	}
	return all
}

// mean is of what was measured between two times, nil if nothing was.
func mean(was, is lane.Sum) *float64 {
	if is.Count <= was.Count {
		return nil
	}
	return new(max(0, (is.Seconds-was.Seconds)/float64(is.Count-was.Count)))
}

// of are the samples up to a time of the workflows that are visible, nil meaning all.
func (a *activity) of(now time.Time, visible func(workflow string) bool) []Sample {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := []Sample{}
	counts := func(workflow string) bool {
		return visible == nil || workflow != lane.OtherNames && visible(workflow) // that may be any
	}
	for _, s := range a.samples {
		if now.Sub(s.at) >= sampleKept {
			continue
		}
		sum := func(by map[string]float64) (sum int) {
			for name, n := range by {
				if counts(name) {
					sum += int(n)
				}
			}
			return sum
		}
		one := Sample{At: Time{s.at}, Seconds: s.span.Seconds(), Begun: sum(s.begun), Ended: sum(s.ended), Errored: sum(s.errored)}
		if s.open != nil {
			one.Open = new(Open)
			for name, n := range s.open {
				if counts(name) {
					*one.Open = together(*one.Open, n)
				}
			}
		}
		if visible == nil {
			one.Waited, one.Late, one.Oldest, one.Overdue = s.waited, s.late, &s.oldest, &s.overdue
		}
		all = append(all, one)
	}
	return all
}

func together(a, b Open) Open {
	return Open{a.Pending + b.Pending, a.Processing + b.Processing, a.Error + b.Error, a.Compensating + b.Compensating}
}

// measure measures an instance for as long as it is used.
func (s *Server) measure(u *used) {
	again := time.NewTicker(sampleEvery)
	defer again.Stop()
	s.activity.note(nil)
	for {
		select {
		case <-again.C:
			s.activity.note(measure(u.Instance, time.Now()))
		case <-u.alive.Done():
			return
		}
	}
}

// measure is how an instance stands, nil if it serves nothing.
func measure(i *orchestrator.Instance, now time.Time) *measured {
	if i.Owned() == 0 {
		return nil
	}
	m := &measured{at: now, totals: i.Meters().Totals(), overdue: secondsSince(i.Overdue())}
	if counts, missing := i.Counts(); missing == 0 {
		m.open = make(map[string]Open)
		for which, n := range counts.Orders {
			label := i.Meters().Workflows.Label(which.Workflow)
			sum := m.open[label]
			switch which.State {
			case projections.Pending:
				sum.Pending += n
			case projections.Processing:
				sum.Processing += n
			case projections.Error:
				sum.Error += n
			case projections.Compensating:
				sum.Compensating += n
			}
			m.open[label] = sum
		}
	}
	for _, a := range i.Agents() {
		m.oldest = max(m.oldest, secondsSince(a.AskedSince), secondsSince(a.WaitingSince))
	}
	return m
}

func (s *Server) activities(api huma.API) {
	register(api, identity.Viewer, huma.Operation{
		OperationID: "get-activity", Method: http.MethodGet, Path: "/api/v1/activity",
		Summary: "What the instance measured in the last hour", Tags: []string{"instance"},
		Description: "A sample every half minute of the orders of the workflows that the caller may see: how many began and ended, and how many are open. It is for a look; metrics are for more.",
		Errors:      []int{http.StatusServiceUnavailable},
	}, s.getActivity)
}

func (s *Server) getActivity(ctx context.Context, _ *struct{}) (*struct{ Body Activity }, error) {
	i, _, done, err := s.use(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	return &struct{ Body Activity }{Activity{
		Instance: i.ID(), Partitions: i.Owned(), Of: i.Partitions(), Samples: s.activity.of(time.Now(), visible(callerOf(ctx), identity.Viewer)),
	}}, nil
}
