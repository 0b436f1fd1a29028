package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/waybill-dev/waybill/orchestrator/workflow"
)

// What a step does, and what becomes of it, stands in the table; - is for ever, or nothing.
func TestWorkflowTable(t *testing.T) {
	flow, err := workflow.Parse("w.yaml", []byte(`
workflow: w
steps:
  - {name: a, agent: x, queue: 1h}
  - {name: b, agent: x, retry: {never: [gone, lost], atOnce: [busy]}, exhausted: continue}
  - {name: c, sleep: 10m}
  - {name: f, agent: x, after: [c], repeat: {until: steps.f.output, every: 1m, max: 5}}
  - {name: d, sleep: {for: input.d}, after: [c]}
  - {name: e, sleep: {until: input.e}, after: [c]}
  - {name: g, listen: paid, after: [c], timeout: 24h}
  - {name: h, listen: {one: vote, count: 3}, after: []}
  - {name: i, listen: {any: [yes-sir, no-sir]}, after: []}
  - {name: j, listen: {all: [yes-sir, no-sir]}, after: []}
`))
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	showWorkflow(func(cells ...any) { lines = append(lines, strings.TrimSpace(fmt.Sprintln(cells...))) }, flow)
	for n, want := range []string{
		"STEP AGENT DO UNDO AFTER TIMEOUT QUEUE RETRY EXHAUSTED",
		"a x a - - 30s 1h0m0s 3, 1s x2 to 30s error",
		"b x b - a 30s 1m0s 3, 1s x2 to 30s; never gone,lost; at once busy continue",
		"c - sleep for 10m0s - b - - - -",
		"f x f - c 30s - 3, 1s x2 to 30s; 5 times every 1m0s until steps.f.output error",
		"d - sleep for input.d - c - - - -",
		"e - sleep until input.e - c - - - -",
		"g - listen for paid - c 24h0m0s - - -",
		"h - listen for 3 of vote - - - - - -",
		"i - listen for any of no-sir, yes-sir - - - - - -",
		"j - listen for all of no-sir, yes-sir - - - - - -",
	} {
		if got := lines[3+n]; got != want {
			t.Errorf("it says\n%s\nand should say\n%s", got, want)
		}
	}
}
