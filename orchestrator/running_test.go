package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/oracle"
	"github.com/waybill-dev/waybill/test/world"
)

// runs runs an instance until the test ends, or is told to stop. The
// configuration may leave out how to reach Kafka and where the data is.
func runs(t *testing.T, b *kafka.Broker, cfg Config) (_ *Instance, stop func()) {
	t.Helper()
	if cfg.Kafka == nil {
		cfg.Kafka = []kgo.Opt{kgo.SeedBrokers(b.Brokers...)}
	}
	if cfg.DataDir == "" {
		cfg.DataDir = t.TempDir()
	}
	i, err := New(t.Context(), cfg)
	must(t, err)
	return i, begins(t, i)
}

// begins runs an instance that was made until the test ends, or is told to stop.
func begins(t *testing.T, i *Instance) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- i.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := errors.Join(<-ended, i.Close()); err != nil {
			t.Errorf("instance %s: %v", i.cfg.ID, err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// waits submits an order of [silentFlow], if it is not there, and returns once it
// waits for its agent, with the input that is wanted.
func (i *Instance) waits(t *testing.T, order, input string) {
	t.Helper()
	_, err := i.Submit(t.Context(), order, &events.Submission{Workflow: "silent", Input: []byte(input)}, Context{}, nil)
	must(t, err)
	oracle.Until(t, "order "+order+" waits for its agent", func() error {
		o, _, err := i.Order(order)
		if err == nil && (o.State != projections.Processing || string(o.Input) != input) {
			err = fmt.Errorf("it is %s, with %s", o.State, o.Input)
		}
		return err
	})
}

// lines keeps a log.
type lines struct{ world.Log }

func (l *lines) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// until waits for a line that has all of the texts.
func (l *lines) until(t *testing.T, texts ...string) {
	t.Helper()
	oracle.Until(t, "the log says "+strings.Join(texts, ", "), func() error {
		for line := range strings.Lines(l.String()) {
			has := 0
			for _, text := range texts {
				if strings.Contains(line, text) {
					has++
				}
			}
			if has == len(texts) {
				return nil
			}
		}
		return fmt.Errorf("it says\n%s", l.String())
	})
}
