package agents

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// A6: what an attempt says about the service.
func TestA6Verdicts(t *testing.T) {
	stopped, stop := context.WithCancel(t.Context())
	stop()
	busy := errors.New("busy")
	now := time.Now()
	for name, test := range map[string]struct {
		err        error
		handlers   context.Context
		asked      time.Duration // all from now
		began      time.Duration
		completeBy time.Duration
		want       verdict
	}{
		"an output":                   {nil, t.Context(), -time.Second, -time.Second, time.Second, success},
		"a permanent error":           {Permanent("closed", busy), t.Context(), -time.Second, -time.Second, time.Second, success},
		"an unwritable output":        {Permanent(CodeBadOutput, busy), t.Context(), -time.Second, -time.Second, time.Second, success},
		"a transient error":           {Transient("busy", busy), t.Context(), -time.Second, -time.Second, time.Second, failure},
		"an error":                    {busy, t.Context(), -time.Second, -time.Second, time.Second, failure},
		"a panic":                     {own(CodePanic, busy), t.Context(), -time.Second, -time.Second, time.Second, nothing},
		"a stop":                      {busy, stopped, -time.Second, -time.Second, time.Second, nothing},
		"too late, with all the time": {nil, t.Context(), -10 * time.Second, -10 * time.Second, -time.Second, failure},
		"too late, with half of it":   {busy, t.Context(), -10 * time.Second, -6 * time.Second, -time.Second, failure},
		"too late, with little of it": {busy, t.Context(), -10 * time.Second, -3 * time.Second, -time.Second, nothing},
		"too late, and a panic":       {own(CodePanic, busy), t.Context(), -10 * time.Second, -10 * time.Second, -time.Second, nothing},
	} {
		c := call{
			server: &server{handlers: test.handlers}, err: test.err,
			job:        job{Record: &kgo.Record{Timestamp: now.Add(test.asked)}},
			completeBy: now.Add(test.completeBy),
		}
		if got := c.verdict(now.Add(test.began)); got != test.want {
			t.Errorf("%s: the verdict is %d, want %d", name, got, test.want)
		}
	}
}
