package lane

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/decide"
	"github.com/waybill-dev/waybill/orchestrator/proof"
	"github.com/waybill-dev/waybill/projections"
)

// Repeats counts what agents' replies do with the tokens of their requests, whichever lane of
// an instance reads them. The zero value is ready, and safe for concurrent use.
type Repeats struct{ agents sync.Map }

// Repeat is what the replies of an agent did since the instance began.
type Repeat struct {
	// Repeated have the token of their request, Missing have none, Wrong have another, and
	// Unknown have one under a key that the instance does not have.
	Repeated, Missing, Wrong, Unknown uint64
	// Last is the ce_source of the last that did not repeat it, and LastAt when it was read.
	Last   string
	LastAt time.Time
}

// Add adds what the replies of another agent did.
func (r *Repeat) Add(other Repeat) {
	r.Repeated, r.Missing, r.Wrong, r.Unknown = r.Repeated+other.Repeated, r.Missing+other.Missing, r.Wrong+other.Wrong, r.Unknown+other.Unknown
}

type repeats struct {
	repeated, missing, wrong, unknown atomic.Uint64
	last                              atomic.Pointer[lastWithout]
}

type lastWithout struct {
	source string
	at     time.Time
}

// Each calls f for each agent whose replies were counted.
func (r *Repeats) Each(f func(agent string, is Repeat)) {
	r.agents.Range(func(agent, of any) bool {
		c := of.(*repeats) //nolint:forcetypeassert // nothing else is stored
		is := Repeat{Repeated: c.repeated.Load(), Missing: c.missing.Load(), Wrong: c.wrong.Load(), Unknown: c.unknown.Load()}
		if last := c.last.Load(); last != nil {
			is.Last, is.LastAt = last.source, last.at
		}
		f(agent.(string), is) //nolint:forcetypeassert // nothing else is stored
		return true
	})
}

// repeats counts a reply on which was decided, order being what it was before.
func (l *Lane) repeats(in *input, order *projections.Order, d *decide.Decision) {
	if d.Proof == "" {
		return
	}
	step := order.Known(in.Reply.Step)
	if step == nil {
		return
	}
	work := &step.Work
	if in.Reply.Undo {
		work = step.Undo
	}
	if work == nil || work.State != projections.Running { // it was answered, or expired
		return
	}
	agent := work.Agent
	of, _ := l.cfg.Repeats.agents.LoadOrStore(agent, new(repeats))
	c := of.(*repeats) //nolint:forcetypeassert // nothing else is stored
	switch d.Proof {
	case decide.ProofRepeated:
		c.repeated.Add(1)
		return
	case decide.ProofMissing:
		c.missing.Add(1)
	case decide.ProofWrong:
		c.wrong.Add(1)
	case decide.ProofUnknown:
		if c.unknown.Add(1) == 1 {
			l.log.Error("an agent's reply has a token under a key that this instance does not have: give it the same --namespace-keys as the others; where the token must be repeated, the reply does not count", "agent", agent)
		}
	}
	c.last.Store(&lastWithout{decide.Cut(events.Header(in.record, events.HeaderSource), decide.MaxName), l.time.Wall()})
}

// saysNothing says that a reply is no sign of its agent, which must repeat its token: this
// one does not repeat that of the attempt that it names, whichever that is.
func (l *Lane) saysNothing(in *input, o *projections.Order, d *decide.Decision) bool {
	agent, keys, r := d.Agent(o, in.Reply.Step), l.namespaceKeys(), in.Reply
	if d.Proof == decide.ProofRepeated || keys.Setting(agent) != proof.Require {
		return false
	}
	return !keys.Repeats(&proof.Attempt{Namespace: l.topics.Namespace, Order: in.Order, Step: r.Step, Number: r.Attempt, Undo: r.Undo, Agent: agent}, r.Token)
}

// namespaceKeys are those of now.
func (l *Lane) namespaceKeys() *proof.Keys {
	if l.cfg.Keys == nil {
		return nil
	}
	return l.cfg.Keys()
}
