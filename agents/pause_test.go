package agents

import (
	"errors"
	"testing"
	"time"
)

// A6: pauses grow to the bound, and the wish of the service is a lower bound.
func TestA6PausesGrow(t *testing.T) {
	r := Retry{Backoff: 100 * time.Millisecond, Max: time.Second, Jitter: -1}
	if err := r.complete(); err != nil {
		t.Fatal(err)
	}
	for before, want := range []int64{100, 200, 400, 800, 1000, 1000} {
		if got := r.pause(before, errors.New("busy")); got.Milliseconds() != want {
			t.Errorf("pause %d is %s, want %dms", before, got, want)
		}
	}
	if got := r.pause(1_000_000, errors.New("busy")); got != time.Second {
		t.Errorf("a late pause is %s", got)
	}
	if got := r.pause(0, RetryAfter(errors.New("busy"), time.Minute)); got != time.Minute {
		t.Errorf("the wish was a minute, the pause is %s", got)
	}
	if got := r.pause(3, RetryAfter(errors.New("busy"), time.Millisecond)); got != 800*time.Millisecond {
		t.Errorf("the wish was a millisecond, the pause is %s", got)
	}

	r.Jitter = 0.5
	least, most := time.Hour, time.Duration(0)
	for range 1000 {
		pause := r.pause(2, errors.New("busy"))
		least, most = min(least, pause), max(most, pause)
	}
	if least < 200*time.Millisecond || most > 600*time.Millisecond || most-least < 100*time.Millisecond {
		t.Errorf("with half of it as jitter, 400ms became %s to %s", least, most)
	}
	least, most = time.Hour, 0
	for range 1000 {
		pause := r.pause(7, errors.New("busy"))
		least, most = min(least, pause), max(most, pause)
	}
	if least < 500*time.Millisecond || most > time.Second || most-least < 100*time.Millisecond {
		t.Errorf("with half of it as jitter, the longest became %s to %s", least, most)
	}
}

func TestRetryAfterKeepsTheError(t *testing.T) {
	if RetryAfter(nil, time.Second) != nil {
		t.Error("no error became one")
	}
	err := RetryAfter(Transient("busy", errors.New("come back later")), time.Second)
	if got := fault(err); got.Code != "busy" || got.Message != "come back later" || got.Permanent {
		t.Errorf("the reply says %+v", got)
	}
}
