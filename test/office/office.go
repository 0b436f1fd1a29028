// Package office is where the operators of tests are: they interfere with
// orders, note which commands they sent, and at last bring all orders to their end.
package office

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/internal/api"
)

// Office sends commands as plain records, again and again until Kafka has them.
type Office struct {
	client *kgo.Client
	topic  string

	mu    sync.Mutex
	sent  map[string][]string
	count int
}

// Open opens an office that sends to a topic.
func Open(client *kgo.Client, topic string) *Office {
	return &Office{client: client, topic: topic, sent: make(map[string][]string)}
}

// Interfere does something to an order, if the server answers and knows it. The
// context must outlive who stops to interfere: a command that is noted is sent.
func (o *Office) Interfere(ctx context.Context, by *rand.Rand, server *api.Client, id string) {
	order, err := look(ctx, server, id)
	if err != nil {
		return // not there yet, or nobody answers
	}
	var command string
	switch chance := by.IntN(100); {
	case order.ProcessState.Final():
		return
	case asks(order) != "" && chance < 50:
		command = decision(order, by.IntN(100))
	case order.Paused:
		command = `"command":"resume"`
	case order.ProcessState == "Error" && chance < 20:
		command = fmt.Sprintf(`"command":"skip-step","step":%q`, order.Steps[by.IntN(len(order.Steps))].Name)
	case order.ProcessState == "Error" && chance < 90:
		command = `"command":"resubmit","sameKey":true`
	case chance < 30:
		command = `"command":"cancel"`
	case chance < 60:
		command = `"command":"pause"`
	default:
		command = `"command":"resubmit"` // refused, unless the order came into Error meanwhile
	}
	o.Send(ctx, order.OrderID, command)
}

func look(ctx context.Context, server *api.Client, id string) (*api.Order, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	return server.Order(ctx, id)
}

// Send sends the members of a command.
func (o *Office) Send(ctx context.Context, order, command string) {
	o.mu.Lock()
	o.count++
	id := fmt.Sprintf("c-%d", o.count)
	o.sent[order] = append(o.sent[order], id)
	o.mu.Unlock()
	// A send that failed may have arrived: the same id makes sure that it acts once.
	for ctx.Err() == nil {
		r := &kgo.Record{Topic: o.topic, Key: []byte(order), Value: fmt.Appendf(nil, `{%s,"id":%q}`, command, id)}
		if o.client.ProduceSync(ctx, r).FirstErr() == nil {
			return
		}
	}
}

// Sent are the ids of the commands that were sent, by order. Nobody may send any
// more.
func (o *Office) Sent() map[string][]string { return o.sent }

// Count is how many they are.
func (o *Office) Count() int { return o.count }
