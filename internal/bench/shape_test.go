package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/agents"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
)

func TestShapesAreWorkflows(t *testing.T) {
	for _, s := range []Shape{
		{Steps: 1},
		{Steps: 3},
		{Steps: 10, Parallel: true, Compensate: 1, Retries: 1},
	} {
		flow, err := workflow.Parse("bench.yaml", []byte(s.workflow("7s")))
		if err != nil {
			t.Fatalf("%+v: %v", s, err)
		}
		if len(flow.Steps) != s.Steps {
			t.Errorf("%+v has %d steps", s, len(flow.Steps))
		}
		for n, step := range flow.Steps {
			if step.Timeout != 7*time.Second || step.Agent != tasks[n%3][0] || step.Do != tasks[n%3][1] ||
				(step.Undo != "") != (s.Compensate > 0) || (step.Retry.Backoff == 100*time.Millisecond) != (s.Retries > 0) ||
				(len(step.After) > 0) != (n > 0 && !s.Parallel) {
				t.Errorf("%+v: %+v", s, step)
			}
		}
	}
}

func TestInput(t *testing.T) {
	for _, payload := range []int{0, 30, 200, 2048, 20480} {
		s := Shape{Steps: 1, Payload: payload, Compensate: 10}
		declined := 0
		seen := make(map[string]bool)
		for n := range int64(100) {
			input := s.input(n)
			var o order
			if err := json.Unmarshal([]byte(input), &o); err != nil {
				t.Fatalf("%s: %v", input, err)
			}
			if o.Declined {
				declined++
			}
			if payload >= 200 && (len(input) != payload || seen[o.Note]) {
				t.Errorf("%d bytes instead of %d, or an input of before", len(input), payload)
			}
			seen[o.Note] = true
		}
		if declined != 10 {
			t.Errorf("%d of 100 orders are to be undone", declined)
		}
	}
	for _, s := range []struct{ payload, limit int }{{0, 65536}, {200, 65536}, {20480, 13107}} {
		if limit := (&Shape{Payload: s.payload}).openLimit(); limit != s.limit {
			t.Errorf("%d orders of %d bytes may be open", limit, s.payload)
		}
	}
}

// What fails once is a matter of the step, not of how often it is asked; an undo never fails.
func TestWork(t *testing.T) {
	var asked atomic.Int64
	s := &Shape{Steps: 2, Retries: 20}
	do := s.work(&asked)
	failed := 0
	for n := range 1000 {
		r := agents.Request[order]{Step: "charge", Attempt: 1, IdempotencyKey: fmt.Sprintf("key-%d", n)}
		_, err := do(context.Background(), r)
		_, again := do(context.Background(), r)
		if (err == nil) != (again == nil) {
			t.Errorf("%s: %v, then %v", r.IdempotencyKey, err, again)
		}
		if err != nil {
			failed++
			if e := (*agents.Error)(nil); !errors.As(err, &e) || e.Permanent {
				t.Errorf("%v cannot be tried again", err)
			}
		}
		r.Attempt = 2
		_, second := do(context.Background(), r)
		r.Attempt, r.Undo, r.Input.Declined = 1, true, true
		_, undo := do(context.Background(), r)
		if second != nil || undo != nil {
			t.Errorf("the second attempt: %v; the undo: %v", second, undo)
		}
	}
	if failed < 150 || failed > 250 { // the keys are fixed, so it is one number
		t.Errorf("%d of 1000 steps failed once", failed)
	}
	if asked.Load() != 4000 {
		t.Errorf("%d were asked for", asked.Load())
	}
	for step, permanent := range map[string]bool{"reserve": false, "charge": true} {
		_, err := do(context.Background(), agents.Request[order]{Step: step, Attempt: 2, Input: order{Declined: true}})
		if e := (*agents.Error)(nil); errors.As(err, &e) != permanent || permanent && !e.Permanent {
			t.Errorf("%s of an order that is to be undone: %v", step, err)
		}
	}
}

// Orders of all shapes end as they are to.
func TestRunShapes(t *testing.T) {
	for _, s := range []Shape{
		{Steps: 1, Payload: 2048},
		{Steps: 10, Parallel: true},
		{Compensate: 50, Retries: 20},
	} {
		r, err := Run(t.Context(), Options{
			Shape: s, Instances: 2, Partitions: 2, Rates: []float64{20}, Duration: time.Second,
		})
		if err != nil {
			t.Fatalf("%+v: %v", s, err)
		}
		g := r.Rungs[0]
		if want := int(s.Compensate / 5); g.Orders != 20 || g.Failed > 0 || g.Unfinished > 0 || g.Compensated != want {
			t.Errorf("%+v: %d to be compensated: %+v", s, want, g)
		}
		if s.Retries > 0 && g.Max < 100 {
			t.Errorf("no step was tried again after 100 ms: %+v", g)
		}
	}
}
