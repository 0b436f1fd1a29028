//go:build unix

package process

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/agents"
	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/test/child"
)

// workerVariable in the environment turns this binary into an agent.
const workerVariable = "WAYBILL_TEST_WORKER"

// worker is an agent in a process of its own, in Go or in Python (testdata/worker.py).
type worker struct {
	agent  string
	python *python // nil is Go: of the SDK, or of a plain client if it is late
	rate   float64 // how many requests a second it answers
	all    int     // if not 0: it takes any number at a time, and answers none before it has so many
	late   bool    // it answers what is late, too
	// session is after how long of silence others have what it did not answer.
	session string
}

// command is the process of the worker.
func (w *worker) command(t *testing.T, c *cluster) *exec.Cmd {
	t.Helper()
	args := []string{
		"--brokers", strings.Join(c.broker.Brokers, ","), "--namespace", c.topics.Namespace, "--agent", w.agent,
		"--rate", fmt.Sprint(w.rate), "--all", fmt.Sprint(w.all), "--session", w.session,
	}
	if w.late {
		args = append(args, "--late")
	}
	if w.python != nil {
		return w.python.command(append([]string{"testdata/worker.py"}, args...)...)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, args...)
	cmd.Env, cmd.SysProcAttr = append(os.Environ(), workerVariable+"=1"), child.DieWithUs()
	return cmd
}

// work ends here if this process is a worker.
func work() {
	if os.Getenv(workerVariable) == "" {
		return
	}
	var w worker
	var brokers, namespace string
	flags := flag.NewFlagSet("worker", flag.ExitOnError)
	flags.StringVar(&brokers, "brokers", "", "")
	flags.StringVar(&namespace, "namespace", "", "")
	flags.StringVar(&w.agent, "agent", "", "")
	flags.Float64Var(&w.rate, "rate", 0, "")
	flags.IntVar(&w.all, "all", 0, "")
	session := flags.Duration("session", 0, "")
	flags.BoolVar(&w.late, "late", false, "")
	_ = flags.Parse(os.Args[1:]) // ends the process
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	serve := w.skips
	if w.late {
		serve = w.answersLate
	}
	err := serve(ctx, strings.Split(brokers, ","), namespace, kgo.SessionTimeout(*session), kgo.HeartbeatInterval(*session/6))
	stop()
	if err != nil {
		slog.Error("the worker ends", "error", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// pace is when a worker answers: one request at a time.
type pace struct {
	turn chan struct{}
	last time.Time
	rate float64
}

func newPace(rate float64) *pace { return &pace{turn: make(chan struct{}, 1), rate: rate} }

// wait returns when the next is to be answered, or with an error when ctx ends. What waits for
// its turn takes none of the agent's time, nor does a timer that is late: it works at its rate
// while there is something to do.
func (p *pace) wait(ctx context.Context) error {
	select {
	case p.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-p.turn }()
	each := time.Duration(float64(time.Second) / p.rate)
	if idle := time.Now().Add(-each); p.last.Before(idle) {
		p.last = idle
	}
	at := p.last.Add(each)
	select {
	case <-time.After(time.Until(at)):
		p.last = at
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// skips is the worker as an agent of the SDK, which answers nothing that is late.
func (w *worker) skips(ctx context.Context, brokers []string, namespace string, session ...kgo.Opt) error {
	p := newPace(w.rate)
	var mu sync.Mutex
	held, complete := make(map[string]chan struct{}), make(chan struct{})
	do := agents.Do(func(ctx context.Context, r agents.Request[any]) (string, error) {
		if w.all > 0 {
			mu.Lock()
			again := make(chan struct{})
			if before := held[r.IdempotencyKey]; before != nil {
				close(before) // a session ended, and what was in hand comes again beside that: it needs the place
			} else if len(held) == w.all-1 {
				close(complete)
			}
			held[r.IdempotencyKey] = again
			mu.Unlock()
			select {
			case <-complete:
				return r.IdempotencyKey, nil
			case <-again:
				return "", agents.ErrLater
			case <-ctx.Done():
				return "", ctx.Err()
			}
		}
		return r.IdempotencyKey, p.wait(ctx)
	})
	return agents.Serve(ctx, agents.Config{
		Agent: w.agent, Brokers: brokers, Namespace: namespace, Concurrency: max(10, w.all), StopTimeout: time.Second,
		KafkaOptions: session,
	}, agents.Operations{"it": do})
}

// answersLate is the worker with no more than a Kafka client. It commits the requests of a
// fetch once Kafka has the answers.
func (w *worker) answersLate(ctx context.Context, brokers []string, namespace string, session ...kgo.Opt) error {
	topics, err := events.NewTopics(namespace)
	if err != nil {
		return err
	}
	client, err := kgo.NewClient(append(session, kgo.SeedBrokers(brokers...), kgo.ConsumerGroup(namespace+".agent."+w.agent),
		kgo.ConsumeTopics(topics.Requests(w.agent)), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ProducerLinger(0),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit())...)
	if err != nil {
		return err
	}
	defer client.CloseAllowingRebalance()
	answer := func(r *events.Request) {
		reply := events.Reply{Order: r.Order, Step: r.Step, Attempt: r.Attempt, Undo: r.Undo, Status: events.ReplyCompleted, Output: fmt.Appendf(nil, "%q", r.IdempotencyKey)}
		client.Produce(ctx, &kgo.Record{Topic: r.ReplyTo, Key: []byte(r.Order), Value: reply.Append(nil)}, nil)
	}
	p := newPace(w.rate)
	held := make(map[string]*events.Request)
	for ctx.Err() == nil {
		records := client.PollRecords(ctx, 1+int(w.rate/5)).Records()
		for _, record := range records {
			r, err := events.Decode[events.Request](record.Value)
			if err != nil {
				return err
			}
			if w.all == 0 {
				if p.wait(ctx) == nil {
					answer(&r)
				}
				continue
			}
			if held[r.IdempotencyKey] = &r; len(held) == w.all {
				for _, r := range held {
					answer(r)
				}
			}
		}
		if len(held) < w.all || len(records) == 0 {
			continue
		}
		if err := client.Flush(ctx); err == nil {
			_ = client.CommitUncommittedOffsets(ctx) // else they come again
		}
	}
	return nil
}
