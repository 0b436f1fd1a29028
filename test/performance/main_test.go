package main

import (
	"strings"
	"testing"

	"github.com/waybill-dev/waybill/internal/bench"
)

// The page says what the runs measured, of each setting once.
func TestPage(t *testing.T) {
	run := func(rate float64) bench.Report {
		return bench.Report{Broker: "embedded", Partitions: 4, Instances: 1, Shape: bench.Shape{Steps: 3}, InFlight: 1024, OrdersPerSecond: rate, P50: 7.25}
	}
	page := render(map[string]*measured{"full": {
		"2026-01-02", "abc", "2 cores", "go1", []bench.Report{run(900), run(1000), run(2500)}, "10% main.main",
	}})
	for _, want := range []string{
		"The machine: 2 cores.\n", "## As much as goes: embedded\n",
		"| embedded, 4 partitions, 1 instances, 3 steps, 1024 under way | 1000 (900 to 2500) | 7.25 (7.25 to 7.25) |",
		"2026-01-02, commit abc, go1: 3 runs. `make performance PERFORMANCE='^full$'`", "```\n10% main.main\n```",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("there is no %q in\n%s", want, page)
		}
	}
	if strings.Contains(page, "Kafka, 8 partitions") {
		t.Error("a part that was not measured is there")
	}
}
