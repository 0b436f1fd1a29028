package fulfilment

import (
	"context"
	"errors"
	"sync"

	"github.com/waybill-dev/waybill/agents"
)

// Serve runs the three agents until ctx ends. The configuration is that of
// each of them; its Agent is not looked at.
func Serve(ctx context.Context, config agents.Config) error {
	var all []func(context.Context) error
	for name, operations := range map[string]agents.Operations{"inventory": Inventory, "payment": Payments, "shipping": Shipping} {
		config := config
		config.Agent = name
		all = append(all, func(ctx context.Context) error { return agents.Serve(ctx, config, operations) })
	}
	return Together(ctx, all...)
}

// Together runs all parts of something that needs each of them: until ctx ends,
// or the first of them does.
func Together(ctx context.Context, parts ...func(context.Context) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var (
		running sync.WaitGroup
		mu      sync.Mutex
		failed  error
	)
	for _, part := range parts {
		running.Go(func() {
			defer stop() // one agent alone cannot finish an order
			if err := part(ctx); err != nil {
				mu.Lock()
				failed = errors.Join(failed, err)
				mu.Unlock()
			}
		})
	}
	running.Wait()
	return failed
}
