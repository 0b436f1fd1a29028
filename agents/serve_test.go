package agents_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-dev/waybill/agents"
	"github.com/waybill-dev/waybill/events"
)

func pay(_ context.Context, req agents.Request[charge]) (receipt, error) {
	return receipt{ID: req.Order + "-" + strconv.Itoa(req.Input.Amount)}, nil
}

// A1, A3, A7: what a handler sees of a request, and what goes out as its reply.
func TestReplyCarriesWhatTheContractSays(t *testing.T) {
	k := newKafka(t, 8)
	seen := make(chan agents.Request[charge], 1)
	k.serve(k.config(), agents.Operations{
		"refund": agents.Do(func(ctx context.Context, req agents.Request[charge]) (receipt, error) {
			if by, ok := ctx.Deadline(); !ok || !by.Equal(req.CompleteBy) {
				t.Errorf("the context's deadline is %v, the complete-by %v", by, req.CompleteBy)
			}
			seen <- req
			return pay(ctx, req)
		}),
	})
	asked := request("o-1", "refund", `{"amount":7,"currency":"EUR","later":"field"}`)
	asked.Undo = true
	k.ask(asked)

	record := k.records(1)[0]
	want := agents.Request[charge]{
		Order: "o-1", Step: "pay", Attempt: 2, IdempotencyKey: "o-1/pay", CompleteBy: asked.CompleteBy, Undo: true, Priority: events.Normal, Traceparent: trace, Tracestate: "rojo=1", Baggage: "tenant=a%20b",
		Input: charge{Amount: 7, Currency: "EUR"},
	}
	if got := <-seen; !reflect.DeepEqual(got, want) {
		t.Errorf("the handler saw %+v, want %+v", got, want)
	}
	if got, want := string(record.Value), `{"order":"o-1","step":"pay","attempt":2,"undo":true,"token":"k1.of-o-1","status":"completed","output":{"id":"o-1-7"}}`; got != want {
		t.Errorf("the reply is %s, want %s", got, want)
	}
	if got := string(record.Key); got != "o-1" {
		t.Errorf("the reply's key is %q", got)
	}
	if want := int32(kgo.KafkaHasher(murmur2)([]byte("o-1"), 8)); record.Partition != want {
		t.Errorf("the reply is in partition %d, want %d", record.Partition, want)
	}
	for key, want := range map[string]string{
		"ce_specversion": "1.0",
		"ce_type":        "waybill.step.replied",
		"ce_source":      "/waybill/agents/payment",
		"ce_subject":     "o-1",
		"content-type":   "application/json",
		"traceparent":    trace,
		"tracestate":     "", // nobody reads them there
		"baggage":        "",
	} {
		if got := events.Header(record, key); got != want {
			t.Errorf("header %s is %q, want %q", key, got, want)
		}
	}
	if events.Header(record, "ce_id") == "" {
		t.Error("the reply has no ce_id")
	}
}

// S3: what a transaction asked that was aborted was never asked.
func TestAbortedRequestsAreNotExecuted(t *testing.T) {
	k := newKafka(t, 1)
	orchestrator, err := kgo.NewClient(kgo.SeedBrokers(k.cluster.ListenAddrs()...), kgo.TransactionalID("waybill-p0-0"))
	if err != nil {
		t.Fatal(err)
	}
	defer orchestrator.Close()
	for _, c := range []struct {
		order string
		end   kgo.TransactionEndTry
	}{{"aborted", kgo.TryAbort}, {"committed", kgo.TryCommit}} {
		r := request(c.order, "charge", `{}`)
		e := events.Envelope{Source: "/test", Type: events.StepRequested, ID: r.Order, Order: r.Order, Time: time.Now()}
		if err := orchestrator.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		if err := orchestrator.ProduceSync(t.Context(), e.Record(queue, r.Append(nil))).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if err := orchestrator.EndTransaction(t.Context(), c.end); err != nil {
			t.Fatal(err)
		}
	}
	k.serve(k.config(), agents.Operations{"charge": agents.Do(pay)})
	if reply := k.reply(); reply.Order != "committed" {
		t.Errorf("order %s was answered first", reply.Order)
	}
}

// murmur2 is Kafka's own, so that the test does not believe the client.
func murmur2(b []byte) uint32 {
	const m = 0x5bd1e995
	h := uint32(0x9747b28c) ^ uint32(len(b))
	for ; len(b) >= 4; b = b[4:] {
		k := uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
		k *= m
		k ^= k >> 24
		h = h*m ^ k*m
	}
	switch len(b) {
	case 3:
		h ^= uint32(b[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(b[1]) << 8
		fallthrough
	case 1:
		h = (h ^ uint32(b[0])) * m
	}
	h = (h ^ h>>13) * m
	return h ^ h>>15
}

// A2, A5: how each way a handler can end becomes a reply.
func TestOutcomesAndTheirReplies(t *testing.T) {
	k := newKafka(t, 1)
	declined := errors.New("no funds")
	fail := func(err error) agents.Operation {
		return agents.Do(func(context.Context, agents.Request[struct{}]) (struct{}, error) { return struct{}{}, err })
	}
	k.serve(k.config(), agents.Operations{
		"charge":    agents.Do(pay),
		"nothing":   agents.Do(func(context.Context, agents.Request[struct{}]) (*receipt, error) { return nil, nil }),
		"permanent": fail(fmt.Errorf("charge: %w", agents.Permanent("card-declined", declined))),
		"transient": fail(agents.Transient("busy", declined)),
		"plain":     fail(declined),
		"bare":      fail(agents.Permanent("closed", nil)),
		"own-timeout": agents.Do(func(ctx context.Context, _ agents.Request[struct{}]) (struct{}, error) {
			ctx, cancel := context.WithTimeout(ctx, 0)
			defer cancel()
			<-ctx.Done()
			return struct{}{}, ctx.Err()
		}),
		"panic": agents.Do(func(context.Context, agents.Request[struct{}]) (struct{}, error) { panic("oh no") }),
		"huge": agents.Do(func(context.Context, agents.Request[struct{}]) (string, error) {
			return strings.Repeat("x", events.MaxValue), nil
		}),
		"unspoken": agents.Do(func(context.Context, agents.Request[struct{}]) (chan int, error) { return make(chan int), nil }),
		"verbose":  fail(errors.New(strings.Repeat("ä", 10_000))),
	})
	for _, test := range []struct {
		operation, input string
		want             events.Reply
	}{
		{"charge", `{"amount":3}`, events.Reply{Status: "completed", Output: []byte(`{"id":"o-3"}`)}},
		{"charge", ``, events.Reply{Status: "completed", Output: []byte(`{"id":"o-0"}`)}},
		{"nothing", ``, events.Reply{Status: "completed"}},
		{"permanent", ``, failed("card-declined", "charge: no funds", true)},
		{"transient", ``, failed("busy", "no funds", false)},
		{"plain", ``, failed("error", "no funds", false)},
		{"bare", ``, failed("closed", "closed", true)},
		{"own-timeout", ``, failed("error", "context deadline exceeded", false)},
		{"panic", ``, failed("panic", `operation "panic" panicked; the agent's log has the stack`, true)},
		{"huge", ``, failed("output-too-large", "", true)},
		{"unspoken", ``, failed("bad-output", "", true)},
		{"charge", `{"amount":"three"}`, failed("bad-input", "", true)},
		{"charge", `7`, failed("bad-input", "", true)},
		{"verbose", ``, failed("error", "", false)},
		{"teleport", ``, failed("unknown-operation", `agent payment does not serve "teleport"; it serves bare, charge, huge, nothing, own-timeout, panic, permanent, plain, transient, unspoken, verbose`, true)},
	} {
		t.Run(test.operation+test.input, func(t *testing.T) {
			k.ask(request("o", test.operation, test.input))
			got := k.reply()
			if got.Order != "o" || got.Step != "pay" || got.Attempt != 2 || got.Undo || got.Token != "k1.of-o" {
				t.Errorf("the reply is addressed wrongly: %+v", got)
			}
			if got.Status != test.want.Status || string(got.Output) != string(test.want.Output) {
				t.Errorf("the reply is %s %s, want %s %s", got.Status, got.Output, test.want.Status, test.want.Output)
			}
			if (got.Error == nil) != (test.want.Error == nil) {
				t.Fatalf("the error is %+v, want %+v", got.Error, test.want.Error)
			}
			if want := test.want.Error; want != nil {
				if got.Error.Code != want.Code || got.Error.Permanent != want.Permanent || want.Message != "" && got.Error.Message != want.Message {
					t.Errorf("the error is %+v, want %+v", got.Error, want)
				}
				if len(got.Error.Message) > 5000 {
					t.Errorf("the error's message has %d bytes", len(got.Error.Message))
				}
			}
			if test.input == `{"amount":"three"}` && !strings.Contains(got.Error.Message, "/amount") {
				t.Errorf("the error does not name the field: %s", got.Error.Message)
			}
		})
	}
	if log := k.log.String(); !strings.Contains(log, "goroutine") || !strings.Contains(log, "oh no") {
		t.Errorf("the panic's stack is not in the log:\n%s", log)
	}
}

func failed(code, message string, permanent bool) events.Reply {
	return events.Reply{Status: "failed", Error: &events.Error{Code: code, Message: message, Permanent: permanent}}
}

// A4: past the complete-by nothing is sent, whatever the handler returns, and a
// request that comes too late is not executed.
func TestSilenceAfterCompleteBy(t *testing.T) {
	k := newKafka(t, 1)
	var late atomic.Int32
	wait := func(err error) agents.Operation {
		return agents.Do(func(ctx context.Context, _ agents.Request[struct{}]) (receipt, error) {
			late.Add(1)
			<-ctx.Done()
			if err == nil {
				return receipt{}, ctx.Err()
			}
			return receipt{}, err
		})
	}
	k.serve(k.config(), agents.Operations{
		"wait":     wait(nil),
		"complain": wait(agents.Permanent("too-slow", nil)),
		"idle": agents.Do(func(_ context.Context, req agents.Request[struct{}]) (receipt, error) {
			late.Add(1)
			<-time.After(time.Until(req.CompleteBy)) // does not look at its context
			return receipt{}, nil
		}),
		"expired": agents.Do(func(context.Context, agents.Request[struct{}]) (receipt, error) {
			t.Error("a request was executed after its complete-by")
			return receipt{}, nil
		}),
		"charge": agents.Do(pay),
	})
	// First an ordinary request: joining the group may take its time.
	k.ask(request("o-0", "charge", "{}"))
	k.records(1)

	for _, operation := range []string{"wait", "complain", "idle"} {
		r := request("o-1", operation, "")
		r.CompleteBy = events.Time(time.Now().Add(500 * time.Millisecond))
		k.ask(r)
	}
	r := request("o-1", "expired", "")
	r.CompleteBy = events.Time(time.Now().Add(-time.Millisecond))
	k.ask(r, request("o-2", "charge", "{}"))

	k.awaitCommit(0, 6) // all are finished, so whatever is sent has been sent
	if got := k.reply(); got.Order != "o-2" {
		t.Errorf("a reply was sent after the complete-by: %+v", got)
	}
	if n := k.replied(); n != 2 {
		t.Errorf("%d replies were sent, want 2", n)
	}
	if n := late.Load(); n != 3 {
		t.Errorf("%d of 3 requests were executed before their complete-by", n)
	}
}

// A slow request blocks none behind it, and its offset is committed only when it
// is answered; nor is any after it, so that a stop leaves it to the next instance.
func TestSlowRequest(t *testing.T) {
	k := newKafka(t, 1)
	config := k.config()
	config.StopTimeout = time.Nanosecond
	started, cause := make(chan struct{}), make(chan error, 1)
	stop := k.serve(config, agents.Operations{
		"slow": agents.Do(func(ctx context.Context, _ agents.Request[struct{}]) (receipt, error) {
			close(started)
			<-ctx.Done()
			cause <- context.Cause(ctx)
			return receipt{}, fmt.Errorf("call the bank: %w", ctx.Err())
		}),
		"charge": agents.Do(pay),
	})
	k.ask(request("slow", "slow", ""), request("o-1", "charge", "{}"), request("o-2", "charge", "{}"))
	await(t, "the slow request", started)
	for _, record := range k.records(2) {
		if string(record.Key) == "slow" {
			t.Error("the slow request was answered")
		}
	}
	stop()
	if err := await(t, "the cause", cause); !errors.Is(err, agents.ErrStopped) {
		t.Errorf("the handler was cancelled because of %v", err)
	}
	if n := k.replied(); n != 2 {
		t.Errorf("%d replies were sent, want 2: none for what the stop interrupted", n)
	}
	if offset := k.committed(0); offset != 0 {
		t.Errorf("offset %d is committed, the request at 0 is unanswered", offset)
	}

	// At least once: the next instance gets all three.
	k.serve(k.config(), agents.Operations{"slow": agents.Do(pay), "charge": agents.Do(pay)})
	var again []string
	for _, record := range k.records(3) {
		again = append(again, string(record.Key))
	}
	slices.Sort(again)
	if want := []string{"o-1", "o-2", "slow"}; !slices.Equal(again, want) {
		t.Errorf("answered again: %v, want %v", again, want)
	}
	k.awaitCommit(0, 3)
}

// A1: an instance that is killed takes no request with it.
func TestKilledInstanceLosesNothing(t *testing.T) {
	k := newKafka(t, 1)
	k.ask(request("slow", "slow", ""), request("o-1", "charge", "{}"))

	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childBrokers+"="+strings.Join(k.cluster.ListenAddrs(), ","))
	child.Stderr = os.Stderr
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = child.Process.Kill() // it is killed below already, unless the test fails
		_ = child.Wait()
	}()
	if got := k.reply(); got.Order != "o-1" {
		t.Fatalf("the first reply is %+v", got)
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}

	k.serve(k.config(), agents.Operations{"slow": agents.Do(pay), "charge": agents.Do(pay)})
	orders := make(map[string]bool)
	for _, record := range k.records(2) {
		orders[string(record.Key)] = true
	}
	if !orders["slow"] || !orders["o-1"] {
		t.Errorf("after the kill came %v, want both", orders)
	}
	k.awaitCommit(0, 2)
}

// childBrokers tells the test binary to be an agent that can be killed.
const childBrokers = "AGENTS_TEST_CHILD_BROKERS"

func serveAsChild(brokers string) {
	err := agents.Serve(context.Background(), agents.Config{
		Agent: "payment", Brokers: strings.Split(brokers, ","),
		KafkaOptions: []kgo.Opt{kgo.SessionTimeout(time.Second), kgo.HeartbeatInterval(100 * time.Millisecond)},
	}, agents.Operations{
		"slow":   agents.Do(func(ctx context.Context, _ agents.Request[struct{}]) (struct{}, error) { select {} }),
		"charge": agents.Do(pay),
	})
	fmt.Fprintln(os.Stderr, "the agent was to be killed:", err)
	os.Exit(1)
}

// A graceful stop lets what runs finish, sends it, commits and leaves the group.
func TestGracefulStop(t *testing.T) {
	k := newKafka(t, 1)
	ctx, cancel := context.WithCancel(t.Context())
	started, release := make(chan context.Context), make(chan struct{})
	done := make(chan error, 1)
	go func() {
		config := k.config()
		config.Concurrency = 1
		done <- agents.Serve(ctx, config, agents.Operations{
			"charge": agents.Do(func(ctx context.Context, req agents.Request[charge]) (receipt, error) {
				started <- ctx
				<-release
				return pay(ctx, req)
			}),
		})
	}()
	k.ask(request("o-1", "charge", "{}"), request("o-2", "charge", "{}"))
	running := await(t, "the handler", started)
	cancel()
	select {
	case err := <-done:
		t.Fatalf("Serve returned (%v) while a handler ran", err)
	default:
	}
	if err := running.Err(); err != nil {
		t.Errorf("the stop ended the handler's context: %v", err)
	}
	close(release)
	if err := await(t, "Serve", done); err != nil {
		t.Errorf("Serve: %v", err)
	}
	if got := k.reply(); got.Order != "o-1" || k.replied() != 1 {
		t.Errorf("replied %d times, to %+v; want once, to o-1", k.replied(), got)
	}
	if !errors.Is(running.Err(), context.Canceled) {
		t.Errorf("the context of a handler that returned says %v", running.Err())
	}
	k.awaitCommit(0, 1)
	k.awaitGroup("an empty group", func(g *kfake.GroupInfo) bool { return len(g.Members) == 0 })
}

// A1: when a second instance takes a partition over, the first may still answer
// what it has in work, but never commits over the new owner.
func TestRebalance(t *testing.T) {
	k := newKafka(t, 2)
	release := make(chan struct{})
	started := make(chan struct{}, 2)
	stopFirst := k.serve(k.config(), agents.Operations{
		"charge": agents.Do(func(ctx context.Context, req agents.Request[charge]) (receipt, error) {
			started <- struct{}{}
			<-release
			return receipt{ID: "first"}, nil
		}),
	})
	ask := func(partition int32, order string) {
		r := request(order, "charge", "{}")
		// The asking client hashes, so the partition is chosen with a key that fits.
		e := events.Envelope{Source: "/test", Type: events.StepRequested, ID: order, Order: keyFor(partition), Time: time.Now()}
		k.produce(e.Record(queue, r.Append(nil)))
	}
	ask(0, "a-0")
	ask(1, "a-1")
	await(t, "partition one", started)
	await(t, "partition other", started)

	k.serve(k.config(), agents.Operations{"charge": agents.Do(func(context.Context, agents.Request[charge]) (receipt, error) {
		return receipt{ID: "second"}, nil
	})})
	k.awaitGroup("one partition each", func(g *kfake.GroupInfo) bool {
		return g.State == "Stable" && len(g.Members) == 2 && g.Members[0].NumAssigned() == 1 && g.Members[1].NumAssigned() == 1
	})
	moved, err := strconv.Atoi(strings.TrimPrefix(k.reply().Order, "a-")) // the second executes it again
	if err != nil {
		t.Fatal(err)
	}
	ask(int32(moved), "b")
	if got := k.reply(); got.Order != "b" {
		t.Fatalf("got %+v, want the reply to b", got)
	}
	k.awaitCommit(int32(moved), 2)

	close(release) // the first answers both of its requests late
	k.records(2)
	stopFirst()
	if got := k.committed(int32(moved)); got != 2 {
		t.Errorf("the old owner committed %d over the new owner's 2", got)
	}
	k.awaitCommit(int32(1-moved), 1)
}

// keyFor finds a key of one of two partitions.
func keyFor(partition int32) string {
	for i := 0; ; i++ {
		if key := fmt.Sprint("k-", i); int32(kgo.KafkaHasher(murmur2)([]byte(key), 2)) == partition {
			return key
		}
	}
}

// Memory is bounded however slow a request is: its partition is not fetched
// further than runAhead, and goes on afterwards.
func TestRunAheadIsBounded(t *testing.T) {
	const requests, bound = 24_000, 20_000 + 500
	k := newKafka(t, 1)
	held := k.log.on("holds up its partition")
	release := make(chan struct{})
	var executed atomic.Int64
	r := request("o", "charge", "{}")
	slow := request("slow", "slow", "")
	k.ask(slow)
	var failed kgo.FirstErrPromise
	for range requests {
		k.client.Produce(t.Context(), &kgo.Record{Topic: queue, Key: []byte("o"), Value: r.Append(nil)}, failed.Promise())
	}
	if err := failed.Err(); err != nil {
		t.Fatal(err)
	}
	k.serve(k.config(), agents.Operations{
		"slow": agents.Do(func(context.Context, agents.Request[struct{}]) (struct{}, error) {
			<-release
			return struct{}{}, nil
		}),
		"charge": agents.Do(func(ctx context.Context, req agents.Request[charge]) (receipt, error) {
			executed.Add(1)
			return pay(ctx, req)
		}),
	})
	await(t, "the partition to be held", held)
	if n := executed.Load(); n > bound {
		t.Errorf("%d requests were executed behind a slow one, at most %d should", n, bound)
	}
	close(release)
	k.records(requests + 1)
	k.awaitCommit(0, requests+1)
}

// A7: what cannot be read as a request is reported with its place and skipped.
func TestUnreadableRequests(t *testing.T) {
	k := newKafka(t, 1)
	bad := request("o-1", "charge", "{}")
	bad.ReplyTo = "__consumer_offsets"
	for _, value := range []string{"", "not JSON", `{"order":"o-1"}`, `{"order":7}`, `{"completeBy":"2030-01-01T00:00:00Z"}`, string(bad.Append(nil))} {
		k.produce(&kgo.Record{Topic: queue, Value: []byte(value)})
	}
	k.ask(request("o-2", "charge", "{}"))
	k.serve(k.config(), agents.Operations{"charge": agents.Do(pay)})
	if got := k.reply(); got.Order != "o-2" {
		t.Errorf("got %+v", got)
	}
	k.awaitCommit(0, 7)
	log := k.log.String()
	for offset := range 6 {
		if want := fmt.Sprintf(`"topic":%q,"partition":0,"offset":%d,"error":"`, queue, offset); !strings.Contains(log, want) {
			t.Errorf("no line about offset %d in the log:\n%s", offset, log)
		}
	}
}

// A reply that Kafka refuses for good does not hold up the partition.
func TestRefusedReply(t *testing.T) {
	k := newKafka(t, 1)
	k.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: replies, Err: kerr.TopicAuthorizationFailed})
	k.serve(k.config(), agents.Operations{"charge": agents.Do(pay)})
	k.ask(request("o-1", "charge", "{}"))
	k.awaitCommit(0, 1)
	if log := k.log.String(); !strings.Contains(log, "Kafka refused a reply") {
		t.Errorf("the log does not say it:\n%s", log)
	}
}

func TestWaitsForTheTopic(t *testing.T) {
	k := newKafka(t, 1)
	const late = "waybill.requests.late"
	config := k.config()
	config.Agent = "late"
	waiting := k.log.on("does not exist yet")
	k.serve(config, agents.Operations{"charge": agents.Do(pay)})
	await(t, "the warning", waiting)
	if err := k.cluster.CreateTopic(late, 1, nil); err != nil {
		t.Fatal(err)
	}
	r := request("o-1", "charge", "{}")
	k.produce(&kgo.Record{Topic: late, Value: r.Append(nil)})
	if got := k.reply(); got.Order != "o-1" {
		t.Errorf("got %+v", got)
	}
}

func TestWaitsForTheBroker(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().(*net.TCPAddr)
	listener.Close()

	k := &kafka{T: t, log: new(journal)}
	away, back := k.log.on("cannot reach Kafka"), k.log.on("reached Kafka again")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		config := agents.Config{Agent: "payment", Brokers: []string{address.String()}, Logger: k.log.logger()}
		done <- agents.Serve(ctx, config, agents.Operations{"charge": agents.Do(pay)})
	}()
	await(t, "the warning", away)
	cluster := kfake.MustCluster(kfake.NumBrokers(1), kfake.Ports(address.Port), kfake.SeedTopics(1, queue))
	defer cluster.Close()
	await(t, "the good news", back)
	cancel()
	if err := await(t, "Serve", done); err != nil {
		t.Error(err)
	}
}

// A broker that is behind something that takes connections and ends them while it is
// away (a proxy, a load balancer) costs no reply, nor one that has not heard of the
// topic again since its start.
func TestRepliesWaitForTheBroker(t *testing.T) {
	t.Run("connections end at once", func(t *testing.T) {
		const all = 40
		k := newKafka(t, 8)
		way := &cutWay{refused: make(chan struct{}, 1000)}
		cut := sync.OnceFunc(way.cut) // not again once it is mended, by who comes late
		config := k.config()
		config.Concurrency = all
		config.KafkaOptions = append(config.KafkaOptions, kgo.Dialer(way.dial))
		var asked sync.WaitGroup // those that come again do not count
		asked.Add(all)
		var first sync.Map
		k.serve(config, agents.Operations{"charge": agents.Do(func(_ context.Context, req agents.Request[charge]) (receipt, error) {
			if _, again := first.LoadOrStore(req.Order, true); !again && req.Order != "o" {
				asked.Done()
				asked.Wait()
				cut()
			}
			return receipt{}, nil
		})})
		k.ask(request("o", "charge", "{}"))
		k.reply() // so that the agent knows the topic
		for i := range all {
			k.ask(request(fmt.Sprintf("o-%d", i), "charge", "{}"))
		}
		for range 10 {
			await(t, "another connection", way.refused)
		}
		way.mend()
		k.records(all)
		if log := k.log.String(); strings.Contains(log, "Kafka refused a reply") {
			t.Errorf("a reply was lost:\n%s", log)
		}
	})
	t.Run("the topic is not known", func(t *testing.T) {
		k := newKafka(t, 1)
		k.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: replies, Err: kerr.UnknownTopicOrPartition, Count: 20})
		k.serve(k.config(), agents.Operations{"charge": agents.Do(pay)})
		k.ask(request("o-1", "charge", "{}"))
		k.reply()
		k.awaitCommit(0, 1)
	})
}

// cutWay is a way to a broker. While it is cut, whoever dials is taken, and left.
type cutWay struct {
	mu      sync.Mutex
	gone    bool
	open    []net.Conn
	refused chan struct{}
}

func (w *cutWay) dial(ctx context.Context, network, address string) (net.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gone {
		w.refused <- struct{}{}
		here, there := net.Pipe()
		go func() {
			_, _ = there.Read(make([]byte, 1<<10))
			_ = there.Close()
		}()
		return here, nil
	}
	c, err := new(net.Dialer).DialContext(ctx, network, address)
	if err == nil {
		w.open = append(w.open, c)
	}
	return c, err
}

func (w *cutWay) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gone = true
	for _, c := range w.open {
		_ = c.Close()
	}
	w.open = nil
}

func (w *cutWay) mend() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gone = false
}

func TestWrongConfigurationFailsAtOnce(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // so that what is accepted by mistake ends
	brokers := []string{"127.0.0.1:1"}
	some := agents.Operations{"charge": agents.Do(pay)}
	for want, test := range map[string]struct {
		config     agents.Config
		operations agents.Operations
	}{
		"has no name; set":           {agents.Config{Brokers: brokers}, some},
		`agent name "a b"`:           {agents.Config{Agent: "a b", Brokers: brokers}, some},
		"no brokers":                 {agents.Config{Agent: "a"}, some},
		`namespace "a b"`:            {agents.Config{Agent: "a", Brokers: brokers, Namespace: "a b"}, some},
		"concurrency -1":             {agents.Config{Agent: "a", Brokers: brokers, Concurrency: -1}, some},
		"stop timeout -1s":           {agents.Config{Agent: "a", Brokers: brokers, StopTimeout: -time.Second}, some},
		"retry attempts -1":          {agents.Config{Agent: "a", Brokers: brokers, Retry: &agents.Retry{Attempts: -1}}, some},
		"retry backoff -1s":          {agents.Config{Agent: "a", Brokers: brokers, Retry: &agents.Retry{Backoff: -time.Second}}, some},
		"retry max 1s":               {agents.Config{Agent: "a", Brokers: brokers, Retry: &agents.Retry{Backoff: 2 * time.Second, Max: time.Second}}, some},
		"retry jitter 2":             {agents.Config{Agent: "a", Brokers: brokers, Retry: &agents.Retry{Jitter: 2}}, some},
		"breaker failures -1":        {agents.Config{Agent: "a", Brokers: brokers, Breaker: &agents.Breaker{Failures: -1}}, some},
		"breaker window 2":           {agents.Config{Agent: "a", Brokers: brokers, Breaker: &agents.Breaker{Failures: 3, Window: 2}}, some},
		"breaker delay -1s":          {agents.Config{Agent: "a", Brokers: brokers, Breaker: &agents.Breaker{Delay: -time.Second}}, some},
		"breaker successes -1":       {agents.Config{Agent: "a", Brokers: brokers, Breaker: &agents.Breaker{Successes: -1}}, some},
		"serves no operations":       {agents.Config{Agent: "a", Brokers: brokers}, nil},
		"has no name or no function": {agents.Config{Agent: "a", Brokers: brokers}, agents.Operations{"charge": {}}},
		"kafka":                      {agents.Config{Agent: "a", Brokers: []string{"localhost:kafka"}}, some},
	} {
		err := agents.Serve(ctx, test.config, test.operations)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}
