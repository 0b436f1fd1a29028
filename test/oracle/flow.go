package oracle

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
)

// Flow is as much of a workflow as the rules need, as its canonical JSON on the
// workflows topic says it.
type Flow struct {
	Name     string          `json:"workflow"`
	Version  int             `json:"version"`
	Deadline Duration        `json:"deadline"`
	Keep     Duration        `json:"keep"`
	Overdue  string          `json:"overdue"`
	Input    json.RawMessage `json:"input"` // a JSON Schema
	// Search has expressions by which orders are found.
	Search map[string]string `json:"search"`
	Start  *FlowStart        `json:"start"`
	// Concurrency lets one order be open at a time of those that have the same key.
	Concurrency *FlowConcurrency `json:"concurrency"`
	Steps       []FlowStep       `json:"steps"`
}

// FlowConcurrency is the key under which one order is open at a time, and what becomes of one that comes meanwhile.
type FlowConcurrency struct {
	Key        string            `json:"key"`
	OnConflict events.OnConflict `json:"onConflict"`
}

// FlowStart is the signal that starts orders, and the key under which it may.
type FlowStart struct {
	Signal string `json:"signal"`
	Key    string `json:"key"`
}

// FlowRepeat says until when a step is done again, and how often.
type FlowRepeat struct {
	Until string   `json:"until"`
	Every Duration `json:"every"`
	Max   int      `json:"max"`
}

// FlowListen says for which signals a step waits: one name, any or all of several.
type FlowListen struct {
	One   string   `json:"one"`
	Count int      `json:"count"`
	Any   []string `json:"any"`
	All   []string `json:"all"`
}

// FlowStep is a step of a [Flow].
type FlowStep struct {
	Name      string   `json:"name"`
	Key       string   `json:"key"` // under which a step listens
	Agent     string   `json:"agent"`
	Do        string   `json:"do"`
	Undo      string   `json:"undo"`
	After     []string `json:"after"`
	When      string   `json:"when"`
	With      string   `json:"with"`
	UndoWith  string   `json:"undoWith"`
	Timeout   Timeout  `json:"timeout"`
	Queue     Duration `json:"queue"`
	Exhausted string   `json:"exhausted"`
	// Sleep has one of them, and For is a duration or an expression.
	Sleep *struct {
		For   string `json:"for"`
		Until string `json:"until"`
	} `json:"sleep"`
	Listen  *FlowListen  `json:"listen"`
	Approve *FlowApprove `json:"approve"`
	Emit    *FlowEmit    `json:"emit"`
	Raise   *FlowRaise   `json:"raise"`
	Order   *FlowOrder   `json:"order"`
	Each    *FlowEach    `json:"each"`
	Retry   struct {
		Attempts   int      `json:"attempts"`
		Backoff    Duration `json:"backoff"`
		Multiplier float64  `json:"multiplier"`
		Max        Duration `json:"max"`
		Jitter     float64  `json:"jitter"`
		Never      []string `json:"never"`
		AtOnce     []string `json:"atOnce"`
	} `json:"retry"`
	Repeat *FlowRepeat `json:"repeat"`
	Limit  *FlowLimit  `json:"limit"`
	Wait   struct {
		For    Duration `json:"for"`
		Rounds int      `json:"rounds"`
	} `json:"wait"`
}

// FlowLimit is the limit under which a step asks its agent.
type FlowLimit struct {
	Name string `json:"name"`
	Key  string `json:"key"` // an expression
}

// Timeout is that of an attempt, and how long it may take whose agent is still at it; 0 if no
// longer.
type Timeout struct {
	After Duration `json:"after"`
	Max   Duration `json:"max"`
}

// UnmarshalJSON reads a duration, or both.
func (t *Timeout) UnmarshalJSON(text []byte) error {
	if text[0] == '"' {
		return json.Unmarshal(text, &t.After) //nolint:wrapcheck // whoever reads the workflow says of what
	}
	type both Timeout
	return json.Unmarshal(text, (*both)(t)) //nolint:wrapcheck // as above
}

// Duration is written as workflow files write it, such as 1m30s.
type Duration time.Duration

// UnmarshalText reads the form of files.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("read a duration: %w", err)
	}
	*d = Duration(v)
	return nil
}

// ReadFlow reads the canonical JSON of a workflow.
func ReadFlow(canonical []byte) (*Flow, error) {
	f := new(Flow)
	if err := json.Unmarshal(canonical, f); err != nil {
		return nil, fmt.Errorf("read a workflow: %w", err)
	}
	return f, nil
}

// Flows finds the workflows among the records of the workflows topic. The first
// record of a key counts. Version 0 is the newest.
func Flows(records []*kgo.Record) (func(name string, version int) *Flow, error) {
	flows := make(map[string]*Flow)
	for _, r := range records {
		if flows[string(r.Key)] != nil || len(r.Value) == 0 || bytes.HasSuffix(r.Key, []byte("/retired")) { // which is no definition
			continue
		}
		f, err := ReadFlow(r.Value)
		if err != nil {
			return nil, fmt.Errorf("workflow %s: %w", r.Key, err)
		}
		flows[string(r.Key)] = f
		if newest := flows[f.Name+"@0"]; newest == nil || newest.Version < f.Version {
			flows[f.Name+"@0"] = f
		}
	}
	find := func(name string, version int) *Flow { return flows[fmt.Sprintf("%s@%d", name, version)] }
	return func(name string, version int) *Flow {
		if f := find(name, version); f != nil {
			return f
		}
		return inner(find, name, version)
	}, nil
}

// Retired says of versions of workflows whether nothing new was to begin with them at some time, by
// the records on the workflows topic; of version 0, whether that was so with some version.
func Retired(records []*kgo.Record) func(name string, version int) bool {
	ever := make(map[string]bool)
	for _, r := range records {
		if id, is := strings.CutSuffix(string(r.Key), "/retired"); is && bytes.Contains(r.Value, []byte("true")) {
			name, _, _ := strings.Cut(id, "@")
			ever[id], ever[name+"@0"] = true, true
		}
	}
	return func(name string, version int) bool { return ever[fmt.Sprintf("%s@%d", name, version)] }
}

// step returns the definition of a step, nil if there is none.
func (f *Flow) step(name string) *FlowStep {
	if f == nil {
		return nil
	}
	if i := slices.IndexFunc(f.Steps, func(s FlowStep) bool { return s.Name == name }); i >= 0 {
		return &f.Steps[i]
	}
	return nil
}

// behind names all that comes after a step, however far.
func (f *Flow) behind(name string) []string {
	reached := map[string]bool{name: true}
	var found []string
	for more := true; more; {
		more = false
		for _, s := range f.Steps {
			if !reached[s.Name] && slices.ContainsFunc(s.After, func(before string) bool { return reached[before] }) {
				reached[s.Name], more = true, true
				found = append(found, s.Name)
			}
		}
	}
	return found
}

// delay is the shortest and the longest time before the attempt after so many
// failures; jitter takes away a part.
func (s *FlowStep) delay(failures int) (low, high time.Duration) {
	backoff := float64(s.Retry.Backoff) * math.Pow(s.Retry.Multiplier, float64(max(failures, 1)-1))
	return s.spread(min(backoff, float64(s.Retry.Max)))
}

// pause is the same before a new round of attempts.
func (s *FlowStep) pause() (low, high time.Duration) { return s.spread(float64(s.Wait.For)) }

func (s *FlowStep) spread(d float64) (low, high time.Duration) {
	return time.Duration(d * (1 - s.Retry.Jitter)), time.Duration(d)
}

func names(all []string) string { return strings.Join(all, ", ") }
