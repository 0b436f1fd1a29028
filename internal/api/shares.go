package api

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// sharesPatience is for how long a partition may answer nothing before those that wait for
// it have to share.
const sharesPatience = 3 * time.Second

// errSilent says that too many wait for partitions that answer nothing.
var errSilent = errors.New("has answered nothing for seconds, and others wait for it")

// shares are the places of requests. They keep those that wait for partitions that answer
// nothing from taking the places of all others: where one has no leader, each waits for up
// to half a minute. A quarter of the places is theirs. Once it is taken, one at a time may
// wait for each such partition, for [sharesPatience], to find out whether it answers
// again: another quarter. Who waits already, perhaps for one that is only slow, stays
// until places are scarce.
type shares struct {
	places   chan struct{} // has one for each that is taken
	resting  chan struct{} // has one for each that waits for long, and has no place meanwhile
	most     int           // a quarter, 0 is any number
	enough   int           // three quarters: once so many are taken, places are scarce
	patience time.Duration

	mu      sync.Mutex
	of      map[awaited]*share // of those that somebody waits for, or that are silent
	waiting []*waiter          // in the order in which they came
}

// awaited is what is waited for: that a kind of request is answered about a partition.
type awaited struct {
	what      string
	partition int32
}

type share struct {
	waiting int
	sign    time.Time // when one was answered, or the first began to wait
}

type waiter struct {
	of    *share
	since time.Time
	end   context.CancelFunc
	look  *time.Timer
}

// newShares are for so many requests that are answered at a time, 0 being any number.
func newShares(requests int) *shares {
	s := &shares{places: make(chan struct{}, requests), resting: make(chan struct{}, waitersPerPlace*requests), patience: sharesPatience, of: make(map[awaited]*share)}
	if requests > 0 {
		s.most, s.enough = max(requests/4, 1), requests-requests/4
	}
	return s
}

// take takes a place for a request, and reports false if there is none. The caller gives
// it back with [shares.free].
func (s *shares) take() bool {
	if s.most == 0 {
		return true
	}
	select {
	case s.places <- struct{}{}:
	default:
		return false
	}
	if s.scarce() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.makeRoom()
	}
	return true
}

func (s *shares) free() {
	if s.most > 0 {
		<-s.places
	}
}

// rest has one more request wait for long, until leave is called. It reports false if too many do.
func (s *shares) rest() (leave func(), room bool) {
	if s.most == 0 {
		return func() {}, true
	}
	select {
	case s.resting <- struct{}{}:
		return func() { <-s.resting }, true
	default:
		return nil, false
	}
}

func (s *shares) scarce() bool { return len(s.places) >= s.enough }

// join fails with [errSilent] if there is no place to wait. The context ends when there is
// none any more, because places are scarce: who came first stays. The caller calls leave once
// it waits no longer, and says whether it was answered by whom it waited for.
func (s *shares) join(ctx context.Context, on awaited) (_ context.Context, leave func(answered bool), _ error) {
	if s.most == 0 {
		return ctx, func(bool) {}, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.of[on]
	if of == nil {
		of = &share{sign: time.Now()}
		s.of[on] = of
	}
	if held := s.held(); s.silent(of) && (held >= 2*s.most || held >= s.most && of.waiting > 0) {
		return nil, nil, fmt.Errorf("partition %d %w", on.partition, errSilent)
	}
	ctx, cancel := context.WithCancel(ctx)
	w := &waiter{of: of, since: time.Now(), end: cancel}
	of.waiting++
	s.waiting = append(s.waiting, w)
	w.look = time.AfterFunc(s.patience, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.scarce() {
			s.makeRoom()
		}
		if slices.Contains(s.waiting, w) {
			w.look.Reset(s.patience)
		}
	})
	return ctx, func(answered bool) {
		cancel()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.ends(w)
		if answered {
			of.sign = time.Now()
		}
		if of.waiting == 0 && !s.silent(of) && s.of[on] == of {
			delete(s.of, on)
		}
	}, nil
}

// makeRoom ends the waiting of those who waited long enough for what is silent, but for
// the first of them, who have a quarter of the places. s.mu is held.
func (s *shares) makeRoom() {
	held := 0
	for _, w := range slices.Clone(s.waiting) {
		switch {
		case !s.silent(w.of):
		case held >= s.most && time.Since(w.since) >= s.patience:
			s.ends(w)
			w.end()
		default:
			held++
		}
	}
}

// ends has somebody wait no longer, if it still does. s.mu is held.
func (s *shares) ends(w *waiter) {
	if n := slices.Index(s.waiting, w); n >= 0 {
		s.waiting = slices.Delete(s.waiting, n, n+1)
		w.of.waiting--
		w.look.Stop()
	}
}

func (s *shares) silent(of *share) bool { return time.Since(of.sign) >= s.patience }

// held is how many wait for what is silent.
func (s *shares) held() (n int) {
	for _, w := range s.waiting {
		if s.silent(w.of) {
			n++
		}
	}
	return n
}
