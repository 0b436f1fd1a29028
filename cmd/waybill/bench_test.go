package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/pprof/profile"

	"github.com/waybill-dev/waybill/internal/bench"
)

func TestBenchFlags(t *testing.T) {
	clearEnvironment(t)
	for args, wrong := range map[[3]string]string{
		{"--steps", "0"}:                                  "from 1 to 100",
		{"--payload", "262145"}:                           "from 0 to 262144 bytes",
		{"--retries", "101"}:                              "from 0 to 100",
		{"--compensate", "1", "--overload=1s"}:            "leave out --compensate",
		{"--pipe", "5"}:                                   "from 0 to the number of --partitions",
		{"--pipe", "1", "--parallel"}:                     "leave out --instances, --parallel",
		{"--idle", "1s", "--pipe=1"}:                      "goes without --pipe",
		{"--waiting", "-1"}:                               "from 0",
		{"--rebuild", "--rates=5"}:                        "leave out --rates",
		{"--http", "--pipe=1"}:                            "leave out --pipe",
		{"--rebuild", "--standby=owned", "--instances=2"}: "the state of all",
		{"--cpu-profile", "no/such/directory"}:            "--cpu-profile",
		{"--allocation-profile", "no/such/directory"}:     "--allocation-profile",
		{"--rates", "0"}:                                  "--rates are orders a second",
		{"--rates", "5", "--overload=1s"}:                 "leave one out",
		{"--kafka-container", "k"}:                        "the Kafka of --brokers; name them",
	} {
		call := []string{"bench"}
		for _, a := range args {
			if a != "" {
				call = append(call, a)
			}
		}
		waybill(t, "", call...).want(t, exitUsage, "", wrong)
	}
}

func TestBenchRates(t *testing.T) {
	clearEnvironment(t)
	args := []string{"bench", "--rates", "20", "--warm-up", "0s", "--duration", "500ms", "--partitions", "1"}
	waybill(t, "", append(args, "--idle", "100ms")...).want(t, 0, "REQUESTS/ORDER", "")
	cpu, allocations := filepath.Join(t.TempDir(), "cpu"), filepath.Join(t.TempDir(), "allocations")
	waybill(t, "", append(args, "--idle", "100ms", "--cpu-profile", cpu, "--allocation-profile", allocations)...).want(t, 0, "requests/s, ", "")
	for file, of := range map[string]string{cpu: "cpu", allocations: "alloc_space"} {
		p, err := profile.Parse(bytes.NewReader(must(os.ReadFile(file))))
		if err != nil || len(p.Sample) == 0 || !slices.ContainsFunc(p.SampleType, func(t *profile.ValueType) bool { return t.Type == of }) {
			t.Errorf("the profile of %s: %v", of, err)
		}
	}
	args = append(args, "--steps", "2", "--parallel", "--payload", "200", "--compensate", "10", "--retries", "5", "--instances", "2", "--partitions", "2")
	waybill(t, "", args...).want(t, 0, "2 steps at the same time, 200 bytes of input, 10% compensated, 5% of the steps retried, on 2 instances", "")
	waybill(t, "", append(args, "-o", "json")...).want(t, 0, `"rate_per_s": 20`, "")
}

func TestBenchCompare(t *testing.T) {
	clearEnvironment(t)
	runs := func(from int) string {
		var all strings.Builder
		for n := range 4 {
			fmt.Fprintf(&all, `{"broker":"embedded","partitions":4,"instances":1,"shape":{"steps":3},"rungs":[{"rate_per_s":100,"p50_ms":%d,"p99_ms":%d}]}`+"\n", from+n, 50+n)
		}
		return write(t, "runs.json", all.String())
	}
	compare := waybill(t, "", "bench", "compare", runs(10), runs(20))
	compare.want(t, 0, "embedded, 4 partitions, 1 instances, 3 steps, 100 orders/s", "")
	compare.want(t, 0, "p50 ms", "")
	compare.want(t, 0, "+87.0% (p=0.029, 4+4 runs)", "")
	compare.want(t, 0, "~ (p=1.000, 4+4 runs)", "")
	waybill(t, "", "bench", "compare", runs(10), runs(20), "-o", "json").want(t, 0, `"differs": true`, "")
	waybill(t, "", "bench", "compare", runs(10), write(t, "none.json", "")).want(t, 1, "", "none.json: there is no run in it")
	waybill(t, "", "bench", "compare", runs(10)).want(t, exitUsage, "", "accepts 2 arg(s)")
}

// A rate that was not carried is not told like one that was.
func TestVerdict(t *testing.T) {
	for want, g := range map[string]bench.Rung{
		"": {Carried: true},
		"not carried: 3 orders were open when it began to be measured, 7 at the end, for 1.5 s":                                                               {BacklogBefore: 3, Backlog: 7, Settled: 1.5},
		"not carried: arrivals ceased with 65536 orders open, for 2.0 s":                                                                                      {Backlog: 65536, Settled: 2, Cut: true},
		"not carried: 0 orders were open when it began to be measured, 9 at the end, 8 of those measured still were after 10 s: latencies are at least these": {Backlog: 9, Settled: 10, Unfinished: 8},
	} {
		if said := verdict(&g); said != want {
			t.Errorf("%q instead of %q", said, want)
		}
	}
}
