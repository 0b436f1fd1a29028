// Package draw draws numbers, what happens one after the other, and what the orders of generated histories are made of.
package draw

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/bits"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/test/world"
)

// Int draws a number of a range, each as likely as any other. Ranges of rapid prefer small numbers and the last one:
// what is to happen once in a thousand times would happen in one of forty, and what stands first in a list for much
// of the time.
func Int(t *rapid.T, name string, low, high int) int {
	digits := bits.Len(uint(high - low))
	for {
		n := 0
		for range digits {
			n <<= 1
			if Flip(t, name) {
				n++
			}
		}
		if n <= high-low {
			return low + n
		}
	}
}

// One draws whether what happens once in so many times does.
func One(t *rapid.T, name string, in int) bool {
	digits := bits.Len(uint(in)) - 1
	for range digits {
		if !Flip(t, name) {
			return false
		}
	}
	return in == 1<<digits || Int(t, name, 1, in) <= 1<<digits
}

// Flip draws a bit.
func Flip(t *rapid.T, name string) bool { return rapid.Bool().Draw(t, name) }

// Of draws one of several values, each as likely as any other.
func Of[V any](t *rapid.T, name string, all ...V) V { return all[Int(t, name, 0, len(all)-1)] }

// Amount draws how much of something there is: small amounts, and the most, are likelier than others.
func Amount(t *rapid.T, name string, low, high int) int {
	return rapid.IntRange(low, high).Draw(t, name)
}

// Act is what may happen, as often as others by its weight. Where it cannot it does nothing.
type Act struct {
	Weight int
	Do     func(*rapid.T)
}

// name is that of its method, or where it stands.
func (a *Act) name() string {
	f := runtime.FuncForPC(reflect.ValueOf(a.Do).Pointer())
	if method, is := strings.CutSuffix(f.Name(), "-fm"); is {
		return method[strings.LastIndexByte(method, '.')+1:]
	}
	file, line := f.FileLine(f.Entry())
	return fmt.Sprintf("%s:%d", filepath.Base(file), line)
}

// Acts draws so many acts, one after the other, and checks what they left.
func Acts(t *rapid.T, many int, check func(), all ...Act) {
	weight := 0
	for i := range all {
		weight += all[i].Weight
	}
	check()
	for range many {
		n := Int(t, "what", 0, weight-1)
		i := 0
		for ; n >= all[i].Weight; i++ {
			n -= all[i].Weight
		}
		t.Logf("act: %s", all[i].name())
		all[i].Do(t)
		check()
	}
}

// Order draws the id of one of a few orders.
func Order(t *rapid.T) string {
	return Of(t, "order", "a", "b", "c\x00s0", "d")
}

// Trace is the trace context with which an order is submitted: some have none.
func Trace(order string) string {
	if order == "" || order == "d" {
		return ""
	}
	return fmt.Sprintf("00-%032x-%016x-01", order[0], order[0])
}

// Passed is what else such a submission has: some have a tracestate, or baggage, and some of it is malformed, or huge.
func Passed(order string) (tracestate, baggage string) {
	if order == "" {
		return "", ""
	}
	states := []string{"", "rojo=00f067aa0ba902b7, congo=t61rcWkgMzE", "a=" + strings.Repeat("\"", 255) + ",b=" + strings.Repeat("\\", 200), "A=1", "a=" + strings.Repeat("x", 1000), "a=1,a=2", "a=1\n"}
	bags := []string{"", "tenant=a%20b;secret, user=7", "a=" + strings.Repeat("x", 8190), "a", "a=" + strings.Repeat("x", 8191), "a=1" + strings.Repeat(",b=2", 64), "a=%zz", "a=1\r"}
	last := int(order[len(order)-1])
	return states[last%len(states)], bags[(last+len(order))%len(bags)]
}

// Step draws the name of a step, which the order may not have.
func Step(t *rapid.T) string {
	return Of(t, "step", "", "s0", "s1", "s2", "s4", "s99")
}

// Signal draws a signal for which a step may wait.
func Signal(t *rapid.T) events.Signal {
	s := events.Signal{
		Signal: Of(t, "signal", "go", "go", "stop", "stop", "other"),
		ID:     Of(t, "id", "", "s-1", "s-1", "s-2"),
	}
	if data := Of(t, "data", "", "1", `{"n":2}`, "null"); data != "" {
		s.Data = []byte(data)
	}
	return s
}

// Labels draws what a command may do to the labels of an order: some have a name that the
// workflow has in search, or none that may be.
func Labels(t *rapid.T) map[string]*string {
	all := make(map[string]*string)
	for range Int(t, "labels", 0, 2) {
		all[Of(t, "label", "region", "region", "a.b", "n", "Region")] = Of(t, "value", nil, new("eu"), new("us"), new(""), new("\n"))
	}
	return all
}

// Topics are those to which steps give events.
var Topics = []string{"shop.a", "shop.b"}

// Flow draws a version of the workflow "flow".
func Flow(t *rapid.T, version int) *workflow.Workflow { return flow(t, "flow", version) }

// Flows draws a version of the workflow "flow", and of those whose orders do its steps, if some do. An
// order of "leaf" may do a step of one of "sub".
func Flows(t *rapid.T, version int) []*workflow.Workflow {
	if !One(t, "children", 4) {
		return []*workflow.Workflow{Flow(t, version)}
	}
	all := []*workflow.Workflow{flow(t, "leaf", version)}
	if Flip(t, "grandchildren") {
		return append(all, flow(t, "sub", version, "leaf"), flow(t, "flow", version, "sub", "leaf"))
	}
	return append(all, flow(t, "flow", version, "leaf"))
}

func flow(t *rapid.T, name string, version int, orders ...string) *workflow.Workflow {
	drawing := world.Drawing{
		Name: name, Version: version, Orders: orders, Keeps: true, Pages: true, Agents: []string{"a0", "a1", "a2"}, Timeout: 500 * time.Millisecond, Pause: 500 * time.Millisecond,
		Until:  time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC), // around when histories begin
		Topics: Topics,
	}
	flow, err := workflow.Parse("workflow.yaml", []byte(drawing.Flow(func(what string, n int) int { return Int(t, what, 0, n-1) })))
	if err != nil {
		t.Fatalf("%v", err)
	}
	return flow
}

// Variant draws another version of a workflow, as whoever improves one makes it: a step is called
// something else, is new, or is left out, and limits change.
func Variant(t *rapid.T, of *workflow.Workflow, version int) *workflow.Workflow {
	canonical, err := of.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	var flow struct {
		Steps []map[string]any `json:"steps"`
	}
	all := make(map[string]any)
	if err := cmp.Or(json.Unmarshal(canonical, &flow), json.Unmarshal(canonical, &all)); err != nil {
		t.Fatal(err)
	}
	one := func(n int, what string) bool { return One(t, what, n) }
	last := len(flow.Steps) - 1
	others, err := json.Marshal(flow.Steps[:last])
	if err != nil {
		t.Fatal(err)
	}
	if named := strings.Contains(string(others), flow.Steps[last]["name"].(string)); last > 0 && !named && one(3, "the last step is left out") { //nolint:forcetypeassert // each has one
		flow.Steps = flow.Steps[:last]
	}
	if one(3, "a step is new") {
		flow.Steps = append(flow.Steps, map[string]any{"name": "added", "agent": "a0", "after": []string{flow.Steps[0]["name"].(string)}}) //nolint:forcetypeassert // each has one
	}
	for _, s := range flow.Steps {
		if s["agent"] != nil && one(4, "its timeout changes") {
			s["timeout"] = "700ms"
		}
		if s["agent"] != nil && one(6, "it asks for something else") {
			s["do"] = "other"
		}
		if s["with"] != nil && one(4, "it is given something else") {
			s["with"] = "1"
		}
	}
	all["version"], all["steps"] = version, flow.Steps
	if one(4, "another deadline") {
		all["deadline"] = "20s"
	}
	text, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	renamed := string(text)
	if one(2, "a step is called something else") { // of which no name is a part of another word
		renamed = stepZero.ReplaceAllString(renamed, "${1}r0${2}")
	}
	variant, err := workflow.Parse("workflow.yaml", []byte(renamed))
	if err != nil {
		t.Fatalf("%v\n%s", err, renamed)
	}
	return variant
}

// stepZero is where the name of the first step stands.
var stepZero = regexp.MustCompile(`(\b)s0(\b)`)

// Names draws what steps may be called in a [Variant].
func Names(t *rapid.T) map[string]string {
	return Of[map[string]string](t, "names", nil, nil, map[string]string{"s0": "r0"}, map[string]string{"s0": "r0"}, map[string]string{"r0": "s0"}, map[string]string{"s1": "s0", "s0": "s1"})
}
