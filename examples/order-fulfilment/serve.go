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
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	all := map[string]agents.Operations{"inventory": Inventory, "payment": Payments, "shipping": Shipping}
	var (
		running sync.WaitGroup
		mu      sync.Mutex
		failed  error
	)
	for name, operations := range all {
		config := config
		config.Agent = name
		running.Go(func() {
			if err := agents.Serve(ctx, config, operations); err != nil {
				mu.Lock()
				failed = errors.Join(failed, err)
				mu.Unlock()
				stop() // one alone cannot finish an order
			}
		})
	}
	running.Wait()
	return failed
}
