package decide

import (
	"slices"
	"time"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
)

// While an agent is being replaced, instances that know an operation run beside others that do not.
// What one of these answers is asked again, of whoever gets it then: so often, which with the pauses
// is some ten minutes. What is still not known then is what the agent says it is.
const (
	unknownAnswers   = 24
	longUnknownPause = 30 * time.Second
)

// replaced takes the answer that an operation is not known as one that may be another soon: no error
// for good, and none that the retry policy counts. The order does not wait so for a step that it can
// go on without, nor where the workflow says never to try again.
func (t task) replaced(env *Env, e *events.Event) {
	if env.Format < events.ReplacedFormat || t.def == nil || e.Error.Code != events.UnknownOperation || t.work().NotKnown >= unknownAnswers ||
		!t.undo && t.def.Exhausted == workflow.ExhaustedContinue || slices.Contains(t.def.Retry.Never, events.UnknownOperation) {
		return
	}
	fault := *e.Error
	fault.Permanent = false
	e.Error, e.Uncounted = &fault, true
}

// unknownPause is how long it is waited after so many such answers.
func unknownPause(answers int) time.Duration {
	return min(time.Second<<min(max(answers-1, 0), 8), longUnknownPause)
}
