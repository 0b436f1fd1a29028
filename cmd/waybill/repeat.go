package main

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/waybill-dev/waybill/internal/api"
)

// patience is how long a server is asked again that does not know the answer yet.
const patience = 30 * time.Second

// repeat asks until the error is none that is worth another attempt, ctx has ended, or
// patience is over. Between two attempts is as much time as the server wants.
func repeat[T any](ctx context.Context, ask func() (T, error), worth func(error) bool) (T, error) {
	begin := time.Now()
	for pause := 200 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		answer, err := ask()
		wait := pause
		if problem, answered := errors.AsType[*api.Problem](err); answered {
			wait = max(wait, problem.RetryAfter)
		}
		if err == nil || !worth(err) || time.Since(begin)+wait > patience {
			return answer, err
		}
		select {
		case <-ctx.Done():
			return answer, err
		case <-time.After(wait):
		}
	}
}

// repeatable says of each error of a command that acts once under its id whether to send that again: a server that
// goes away, or does not know the outcome yet, is asked for a while, as one that a proxy does not reach. One that never
// answered at its address is not, unless it was there before.
func repeatable(wasThere bool) func(error) bool {
	const attempts = 5 // of which nobody answers, or a proxy
	n := 0
	return func(err error) bool {
		if problem, answered := errors.AsType[*api.Problem](err); answered && !fromProxy(problem) {
			return problem.Status == http.StatusServiceUnavailable
		}
		n++
		return n < attempts && (wasThere || n > 1 || !errors.Is(err, api.ErrAway))
	}
}

// unsure says of the error of the n-th attempt whether what was asked for may be done all the same: no answer came, or
// one that leaves it open.
func unsure(n int, err error) bool {
	if problem, answered := errors.AsType[*api.Problem](err); answered {
		return problem.Status >= http.StatusInternalServerError
	}
	return n > 1 || !errors.Is(err, api.ErrAway)
}

// known asks again for what the server does not know yet, and says when it may.
func known[T any](ctx context.Context, ask func() (T, error)) (T, error) {
	return repeat(ctx, ask, func(err error) bool {
		problem, answered := errors.AsType[*api.Problem](err)
		return answered && problem.Status == http.StatusServiceUnavailable && problem.RetryAfter > 0
	})
}
