package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/internal/console"
	"github.com/waybill-dev/waybill/orchestrator"
)

// site is the HTTP API of an instance, and its console, as clients on this machine have it.
type site struct {
	base   string
	client *http.Client
	end    context.CancelFunc
	ended  chan struct{}
}

// serve serves an instance until ctx ends or the site is closed, which has to be before the instance is, to clients that keep so
// many connections.
func serve(ctx context.Context, i *orchestrator.Instance, connections int, log *slog.Logger, start func(what string, run func() error)) (*site, error) {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for HTTP: %w", err)
	}
	server := api.New(api.Config{Version: "bench", Logger: log, Console: func(server http.Handler) http.Handler {
		return console.New(server, console.Config{Version: "bench", Logger: log})
	}})
	server.Attach(i)
	serving := &http.Server{Handler: server, ReadHeaderTimeout: time.Minute}
	s := &site{base: "http://" + ln.Addr().String(), client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: connections}}, ended: make(chan struct{})}
	ctx, s.end = context.WithCancel(ctx)
	start("the HTTP server", func() error {
		if err := serving.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	start("the HTTP server's end", func() error {
		defer close(s.ended)
		<-ctx.Done()
		s.client.CloseIdleConnections()
		err := serving.Close()
		server.Detach(errors.New("the measurement is over"))
		return err
	})
	return s, nil
}

// close returns when nothing uses the instance any more.
func (s *site) close() {
	s.end()
	<-s.ended
}

// submit asks for what a record would, and returns when that is taken. [api.Client] does more for its caller, and keeps 32
// connections: that would be measured, too.
func (s *site) submit(ctx context.Context, submission *kgo.Record) error {
	body := fmt.Appendf(nil, `{"id":%q,%s`, submission.Key, submission.Value[1:])
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.base+"/api/v1/orders", bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := s.client.Do(r)
	if err != nil {
		return err
	}
	said, err := io.ReadAll(answer.Body)
	if err = errors.Join(err, answer.Body.Close()); err == nil && answer.StatusCode != http.StatusAccepted {
		err = fmt.Errorf("%s: %s", answer.Status, said)
	}
	return err
}
