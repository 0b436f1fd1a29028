package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/waybill-dev/waybill/orchestrator"
)

// Pages are those of the console that were fetched in the measured time.
type Pages struct {
	PerSecond float64 `json:"per_s"`
	P50       float64 `json:"p50_ms"`
	P99       float64 `json:"p99_ms"`
}

// As internal/console/static/live.js has it: a page is fetched again after so long, or after so many times what it took.
const (
	pageRest     = 10 * time.Second
	pageRestMost = 2 * time.Minute
	pageShare    = 20
)

// consoles are browsers with a page of the console open: every other one the first page, and the rest the list of orders.
type consoles struct {
	client *http.Client
	rest   time.Duration // of a page, at least

	mu   sync.Mutex
	took []time.Duration
}

// openConsoles serves the console of an instance, and has so many pages of it open, until ctx ends.
func openConsoles(ctx context.Context, i *orchestrator.Instance, n int, log *slog.Logger, start func(what string, run func() error)) (*consoles, error) {
	s, err := serve(ctx, i, n, log, start)
	if err != nil {
		return nil, err
	}
	c := &consoles{client: s.client, rest: pageRest}
	for n := range n {
		page := s.base + []string{"/", "/orders"}[n%2]
		start("a console", func() error {
			if err := c.look(ctx, page); ctx.Err() == nil {
				return err
			}
			return nil
		})
	}
	return c, nil
}

// look has a page open until ctx ends.
func (c *consoles) look(ctx context.Context, page string) error {
	tag := ""
	rest := time.Duration(rand.Int64N(int64(c.rest))) // they are not opened all at once
	for wait(ctx, rest) == nil {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, page, http.NoBody)
		if err != nil {
			return err
		}
		if tag != "" {
			r.Header.Set("If-None-Match", tag)
		}
		began := time.Now()
		took, err := c.fetch(r, &tag, began)
		if err != nil {
			return err
		}
		c.mu.Lock()
		c.took = append(c.took, took)
		c.mu.Unlock()
		rest = time.Duration(float64(max(c.rest, min(pageRestMost, pageShare*took))) * (0.8 + 0.4*rand.Float64()))
	}
	return nil
}

// fetch reads a page to its end, and keeps its tag.
func (c *consoles) fetch(r *http.Request, tag *string, began time.Time) (time.Duration, error) {
	answer, err := c.client.Do(r)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, answer.Body)
	if err := errors.Join(err, answer.Body.Close()); err != nil {
		return 0, fmt.Errorf("read %s: %w", r.URL, err)
	}
	if answer.StatusCode != http.StatusOK && answer.StatusCode != http.StatusNotModified {
		return 0, fmt.Errorf("%s is answered with %s", r.URL, answer.Status)
	}
	*tag = answer.Header.Get("ETag")
	return time.Since(began), nil
}

// since says what was fetched since it was called before, which was so long ago.
func (c *consoles) since(d time.Duration) *Pages {
	c.mu.Lock()
	defer c.mu.Unlock()
	took := c.took
	c.took = nil
	p := &Pages{PerSecond: float64(len(took)) / d.Seconds()}
	if len(took) > 0 {
		p.P50, p.P99 = percentiles(took)
	}
	return p
}
