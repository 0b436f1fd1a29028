// Package draw draws what the orders of generated histories are made of.
package draw

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/test/world"
)

// Order draws the id of one of a few orders.
func Order(t *rapid.T) string {
	return rapid.SampledFrom([]string{"a", "b", "c\x00s0", "d"}).Draw(t, "order")
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
	return rapid.SampledFrom([]string{"", "s0", "s1", "s2", "s4", "s99"}).Draw(t, "step")
}

// Signal draws a signal for which a step may wait.
func Signal(t *rapid.T) events.Signal {
	s := events.Signal{
		Signal: rapid.SampledFrom([]string{"go", "go", "stop", "stop", "other"}).Draw(t, "signal"),
		ID:     rapid.SampledFrom([]string{"", "s-1", "s-1", "s-2"}).Draw(t, "id"),
	}
	if data := rapid.SampledFrom([]string{"", "1", `{"n":2}`, "null"}).Draw(t, "data"); data != "" {
		s.Data = []byte(data)
	}
	return s
}

// Labels draws what a command may do to the labels of an order: some have a name that the
// workflow has in search, or none that may be.
func Labels(t *rapid.T) map[string]*string {
	name := rapid.SampledFrom([]string{"region", "region", "a.b", "n", "Region"})
	return rapid.MapOfN(name, rapid.Ptr(rapid.SampledFrom([]string{"eu", "us", "", "\n"}), true), 0, 2).Draw(t, "labels")
}

// Topics are those to which steps give events.
var Topics = []string{"shop.a", "shop.b"}

// Flow draws a version of the workflow "flow".
func Flow(t *rapid.T, version int) *workflow.Workflow { return flow(t, "flow", version) }

// Flows draws a version of the workflow "flow", and of those whose orders do its steps, if some do. An
// order of "leaf" may do a step of one of "sub".
func Flows(t *rapid.T, version int) []*workflow.Workflow {
	if rapid.IntRange(0, 3).Draw(t, "children") < 3 {
		return []*workflow.Workflow{Flow(t, version)}
	}
	all := []*workflow.Workflow{flow(t, "leaf", version)}
	if rapid.Bool().Draw(t, "grandchildren") {
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
	flow, err := workflow.Parse("workflow.yaml", []byte(drawing.Flow(func(what string, n int) int { return rapid.IntRange(0, n-1).Draw(t, what) })))
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
	one := func(n int, what string) bool { return rapid.IntRange(0, n-1).Draw(t, what) == 0 }
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
	return rapid.SampledFrom([]map[string]string{nil, nil, {"s0": "r0"}, {"s0": "r0"}, {"r0": "s0"}, {"s1": "s0", "s0": "s1"}}).Draw(t, "names")
}
