package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/internal/tracing"
	"github.com/waybill-dev/waybill/internal/webhooks"
	"github.com/waybill-dev/waybill/orchestrator"
	"github.com/waybill-dev/waybill/projections"
)

var errStopping = errors.New("the instance stops")

// runInstance runs an instance until ctx ends, and makes the server answer for
// it. A state store that turns out to be damaged is thrown away: the journal
// has everything.
func runInstance(ctx context.Context, cfg orchestrator.Config, server *api.Server, traces *tracing.Journal, alerts *webhooks.Sender) error {
	for {
		i, err := orchestrator.New(ctx, cfg)
		if ctx.Err() != nil { // before or after it was there
			if i == nil {
				return nil
			}
			return i.Close()
		}
		if err != nil {
			return err
		}
		server.Attach(i)
		making := start(ctx, func(ctx context.Context) error { return traces.Run(ctx, i) })
		telling := start(ctx, func(ctx context.Context) error { return alerts.Run(ctx, i) })
		err = errors.Join(i.Run(ctx), making.end(), telling.end())
		damaged := errors.Is(err, projections.ErrDamaged)
		if damaged {
			server.Detach(errors.New("the state store is rebuilt from the journal"))
		} else {
			server.Detach(errStopping)
		}
		if closing := i.Close(); !damaged {
			return errors.Join(err, closing)
		}
		cfg.Logger.Error("the state store is damaged; it is removed and rebuilt from the journal", "dir", cfg.DataDir, "error", err)
		if err := os.RemoveAll(cfg.DataDir); err != nil {
			return fmt.Errorf("remove the damaged state store: %w", err)
		}
	}
}
