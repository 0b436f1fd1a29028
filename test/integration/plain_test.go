package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/orchestrator"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/waybill"
	kit "github.com/waybill-dev/waybill/test/world"
)

// What agents say, in short.
const (
	silence = kit.Silence
	done    = kit.Done
	busy    = kit.Busy
	refused = kit.Refused
)

// line is the state record of an order as the order example has it, when it was updated.
func line(o *projections.Order) string {
	public := api.OrderOf(0, o, o.UpdatedAt)
	var text [2]string
	for i, v := range []any{public.LockedBy, public.CompleteBy} {
		b, err := json.Marshal(v)
		if err != nil {
			panic(err)
		}
		text[i] = strings.Trim(string(b), `"`)
	}
	return fmt.Sprintf("OrderID=%s LockedBy=%s CompleteBy=%s ProcessState=%s FailureCount=%d", public.OrderID, text[0], text[1], public.ProcessState, public.FailureCount)
}

// stamp writes a time as messages do.
func stamp(t time.Time) string { return string(events.AppendTime(nil, t)) }

// history is what the journal says of an order.
func (w *world) history(id string) []events.Event {
	w.Helper()
	var all []events.Event
	for _, r := range w.read(w.Topics.Journal) {
		if string(r.Key) != id {
			continue
		}
		e, err := events.Decode[events.Event](r.Value)
		if err != nil {
			w.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

// recordAfter is the state record of an order after the first n of its events.
func (w *world) recordAfter(id string, n int) *projections.Order {
	w.Helper()
	o := &projections.Order{}
	w.until(fmt.Sprintf("event %d of order %s", n, id), func() error {
		all := w.history(id)
		if len(all) < n {
			return fmt.Errorf("it has %d", len(all))
		}
		o = &projections.Order{}
		for i := range all[:n] {
			if err := o.Apply(&all[i]); err != nil {
				w.Fatal(err)
			}
		}
		return nil
	})
	return o
}

// is waits until the state record of an order is as wanted.
func (w *world) is(r *waybill.Instance, id, want string) {
	w.Helper()
	w.until("the record of "+id, func() error {
		o, _, err := r.Store().Order(r.Partition(id), id)
		if err != nil {
			return err
		}
		if got := line(o); got != want {
			return fmt.Errorf("it is\n %s, not\n %s", got, want)
		}
		return nil
	})
}

// Options of an instance.
func supervising(every time.Duration) func(*orchestrator.Config) {
	return func(c *orchestrator.Config) { c.SuperviseEvery = every }
}

// briefly has the group notice soon that an instance is gone.
func briefly(c *orchestrator.Config) { c.SessionTimeout = 2 * time.Second }

// through has an instance reach Kafka by a cable.
func through(c *cable) func(*orchestrator.Config) {
	return func(cfg *orchestrator.Config) { cfg.Kafka = append(cfg.Kafka, kgo.Dialer(c.dial)) }
}

// cable is an instance's way to Kafka. While it is pulled nobody hears of the
// instance, which to all others is a crash; plugged in again, the instance comes
// back from the dead, and knows nothing of what happened.
type cable struct {
	mu     sync.Mutex
	pulled bool
	open   map[net.Conn]struct{}
}

var errPulled = errors.New("the cable is pulled")

var errNotYet = errors.New("not yet")

func (c *cable) dial(ctx context.Context, network, address string) (net.Conn, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pulled {
		return nil, errors.Join(errPulled, conn.Close())
	}
	if c.open == nil {
		c.open = make(map[net.Conn]struct{})
	}
	c.open[conn] = struct{}{}
	return conn, nil
}

func (c *cable) pull() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pulled = true
	for conn := range c.open {
		_ = conn.Close() // it may be closed already
	}
	clear(c.open)
}

func (c *cable) plug() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pulled = false
}
