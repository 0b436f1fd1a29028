package integration

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/orchestrator"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/kafka"
)

// A broker that goes away takes nothing with it: when it is back, what was
// under way goes on, and what was submitted completes.
func TestABrokerThatGoesAwayAndComesBack(t *testing.T) {
	b := kafka.Container(t)
	w := newWorld(t, b)
	i := w.start("i-1", t.TempDir())
	w.register(i, fulfilment)
	w.serveFulfilment()
	const n = 100
	for k := range n {
		w.submit(fmt.Sprintf("before-%d", k), `{"workflow":"fulfilment"}`)
	}
	b.Stop(t)
	b.Start(t)
	for k := range n {
		w.submit(fmt.Sprintf("after-%d", k), `{"workflow":"fulfilment"}`)
	}
	for k := range n {
		w.order(i, fmt.Sprintf("before-%d", k), in(projections.Processed))
		w.order(i, fmt.Sprintf("after-%d", k), in(projections.Processed))
	}
	w.checkJournal()
}

// An instance that finds no broker at its start says so, and goes on trying
// until it is told to stop.
func TestNoBrokerAtTheStart(t *testing.T) {
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := nobody.Addr().String()
	if err := nobody.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	_, err = orchestrator.New(ctx, orchestrator.Config{ID: "i-1", DataDir: t.TempDir(), Kafka: []kgo.Opt{kgo.SeedBrokers(address)}})
	if err == nil || !strings.Contains(err.Error(), "no Kafka broker answers") {
		t.Errorf("it ended with %v", err)
	}
}
