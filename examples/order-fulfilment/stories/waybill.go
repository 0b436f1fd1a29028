package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/internal/broker"
	"github.com/waybill-dev/waybill/orchestrator"
)

// waybill is a whole Waybill in this process, as `waybill dev` is one: a broker,
// an orchestrator, and the HTTP API.
type waybill struct {
	kafka *broker.Broker
	url   string
	stop  func() error
}

func startWaybill(ctx context.Context, log *slog.Logger) (_ *waybill, err error) {
	dir, err := os.MkdirTemp("", "waybill-stories-")
	if err != nil {
		return nil, err
	}
	w := &waybill{}
	undo := []func() error{func() error { return os.RemoveAll(dir) }}
	w.stop = func() error {
		var failed error
		for _, f := range slices.Backward(undo) {
			failed = errors.Join(failed, f())
		}
		return failed
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.stop())
		}
	}()

	if w.kafka, err = broker.Start(broker.Config{Dir: filepath.Join(dir, "broker"), Addr: "127.0.0.1:0", Logger: log}); err != nil {
		return nil, err
	}
	undo = append(undo, w.kafka.Close)
	kafka := []kgo.Opt{kgo.SeedBrokers(w.kafka.Addr()), kgo.Dialer(w.kafka.Dial)}
	if err := createTopics(ctx, kafka); err != nil {
		return nil, err
	}

	instance, err := orchestrator.New(ctx, orchestrator.Config{
		ID: "stories", Kafka: kafka, DataDir: filepath.Join(dir, "state"),
		SuperviseEvery: 50 * time.Millisecond, // stories are short
		SessionTimeout: 3 * time.Second, Logger: log,
	})
	if err != nil {
		return nil, err
	}
	undo = append(undo, instance.Close)
	running, end := context.WithCancel(context.WithoutCancel(ctx)) // it stops after what depends on it
	ran := make(chan error, 1)
	go func() { ran <- instance.Run(running) }()
	undo = append(undo, func() error { end(); return <-ran })

	server := api.New(api.Config{Version: "stories", Metrics: prometheus.NewRegistry(), Logger: log})
	server.Attach(instance)
	undo = append(undo, func() error { server.Detach(errors.New("the story is over")); return nil })
	web, err := listen(ctx, server)
	if err != nil {
		return nil, err
	}
	undo = append(undo, web.stop)
	w.url = web.url
	return w, nil
}

func createTopics(ctx context.Context, kafka []kgo.Opt) error {
	topics, err := events.NewTopics(events.DefaultNamespace)
	if err != nil {
		return err
	}
	client, err := kgo.NewClient(kafka...)
	if err != nil {
		return err
	}
	defer client.Close()
	_, err = orchestrator.CreateTopics(ctx, kadm.NewClient(client), &topics, 4, -1)
	return err
}

// web is an HTTP server on a free port of this machine.
type web struct {
	url  string
	stop func() error
}

func listen(ctx context.Context, handler http.Handler) (*web, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	return &web{url: "http://" + listener.Addr().String(), stop: func() error {
		// Close ends the contexts of requests, but waits for no handler; Shutdown
		// waits for handlers.
		patience, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		err := server.Shutdown(patience)
		if errors.Is(err, context.DeadlineExceeded) {
			err = server.Close()
		}
		if end := <-served; !errors.Is(end, http.ErrServerClosed) {
			err = errors.Join(err, fmt.Errorf("serve HTTP: %w", end))
		}
		return err
	}}, nil
}
