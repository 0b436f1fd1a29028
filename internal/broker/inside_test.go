package broker

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// What a client of this process writes, others read, and the other way round.
func TestClientsOfThisProcess(t *testing.T) {
	b := startBroker(t, Config{Dir: t.TempDir()})
	createTopics(t, b.Addr(), 1, "t")
	large := strings.Repeat("x", 1<<19)
	client := newClient(t, b.Addr(), kgo.Dialer(b.Dial), kgo.DefaultProduceTopic("t"), kgo.ConsumeTopics("t"),
		kgo.ProducerBatchCompression(kgo.NoCompression()))
	defer client.Close()
	if err := client.ProduceSync(t.Context(), kgo.StringRecord(large)).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if got := consume(t, b.Addr(), "t", 1); got != large {
		t.Errorf("another read %d bytes of %d", len(got), len(large))
	}
	produce(t, b.Addr(), "t", "from another")
	var read []string
	for len(read) < 2 {
		fetches := client.PollFetches(t.Context())
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) { read = append(read, string(r.Value)) })
	}
	if read[0] != large || read[1] != "from another" {
		t.Errorf("it read %d bytes and %q", len(read[0]), read[1])
	}
}

// Only what is meant for this broker goes to it.
func TestOtherBrokersAreDialledThroughTheNetwork(t *testing.T) {
	b, other := startBroker(t, Config{}), startBroker(t, Config{})
	createTopics(t, other.Addr(), 1, "of-the-other")
	client := newClient(t, other.Addr(), kgo.Dialer(b.Dial))
	defer client.Close()
	if topics, err := kadm.NewClient(client).ListTopics(t.Context()); err != nil || !topics.Has("of-the-other") {
		t.Errorf("topics %v, %v", topics.Names(), err)
	}
	for address, network := range map[string]string{b.Addr(): "memory", other.Addr(): "tcp"} {
		conn, err := b.Dial(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		if got := conn.LocalAddr().Network(); got != network {
			t.Errorf("%s is reached by %s, want %s", address, got, network)
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A client of this process is told what goes wrong as the network would: by that it decides what it tries again.
func TestConnectionsWithinTheProcessEndAsOthersDo(t *testing.T) {
	b := startBroker(t, Config{})
	dial := func() net.Conn {
		t.Helper()
		conn, err := b.Dial(t.Context(), "tcp", b.Addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() }) // it may be closed
		return conn
	}

	own := dial()
	if err := own.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := own.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a read of a connection that was closed: %v", err)
	}
	if _, err := own.Write(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a write to a connection that was closed: %v", err)
	}

	open := dial()
	closeBroker(t, b)
	if _, err := open.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("a read of a connection that the broker closed: %v", err)
	}
	if _, err := open.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("a write to a connection that the broker closed: %v", err)
	}
	_, err := b.Dial(t.Context(), "tcp", b.Addr())
	if of, ok := errors.AsType[*net.OpError](err); !ok || of.Op != "dial" || !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a broker that is closed is dialled: %v", err)
	}
	given, up := context.WithCancel(t.Context())
	up()
	if _, err := b.Dial(given, "tcp", b.Addr()); !errors.Is(err, context.Canceled) {
		t.Errorf("who has given up dials: %v", err)
	}
}

// A request that is on its way while the broker does nothing is no reason to give the connection up; only who has written
// very much waits.
func TestWritersWithinTheProcessHardlyWait(t *testing.T) {
	p := newPipe()
	client, server := &inside{in: newPipe(), out: p}, &inside{in: p, out: newPipe()}
	if err := client.SetWriteDeadline(time.Now().Add(-time.Second)); err != nil { // who waits fails
		t.Fatal(err)
	}
	request := make([]byte, heldAtMost/2+1)
	for range 2 {
		if n, err := client.Write(request); n != len(request) || err != nil {
			t.Fatalf("%d bytes were written: %v", n, err)
		}
	}
	if _, err := client.Write(request); !errors.Is(err, os.ErrDeadlineExceeded) || !isTimeout(err) {
		t.Fatalf("more than may be held is written: %v", err)
	}

	if err := client.SetWriteDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	wrote := make(chan error, 1)
	go func() {
		_, err := client.Write(request)
		wrote <- err
	}()
	if _, err := io.ReadFull(server, make([]byte, 3*len(request))); err != nil {
		t.Error(err)
	}
	if err := <-wrote; err != nil {
		t.Error(err)
	}
	if p.held.Cap() > heldIdle {
		t.Errorf("room for %d bytes is kept", p.held.Cap())
	}

	if _, err := client.Write([]byte("the end")); err != nil {
		t.Fatal(err)
	}
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	if said, err := io.ReadAll(server); string(said) != "the end" || err != nil {
		t.Errorf("behind the end %q is read: %v", said, err)
	}
}

func isTimeout(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}

// A deadline ends what waits already, and none is over that was set anew.
func TestDeadlinesWithinTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &inside{in: newPipe(), out: newPipe()}
		ended := make(chan error, 1)
		read := func() {
			_, err := c.Read(make([]byte, 1))
			ended <- err
		}
		set := func(in time.Duration) {
			t.Helper()
			if err := c.SetDeadline(time.Now().Add(in)); err != nil {
				t.Fatal(err)
			}
		}
		set(time.Hour)
		go read()
		synctest.Wait()
		set(2 * time.Hour)
		time.Sleep(2*time.Hour - time.Second)
		synctest.Wait()
		select {
		case err := <-ended:
			t.Fatalf("it ended before its deadline: %v", err)
		default:
		}
		time.Sleep(time.Second)
		if err := <-ended; !isTimeout(err) {
			t.Errorf("it ended with %v", err)
		}
		if err := c.SetDeadline(time.Time{}); err != nil {
			t.Fatal(err)
		}
		go read()
		time.Sleep(time.Hour)
		synctest.Wait()
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; !errors.Is(err, net.ErrClosed) {
			t.Errorf("without a deadline it ended with %v", err)
		}
	})
}

// crowded is a listener for which the system has no descriptors at first.
type crowded struct {
	net.Listener
	refuses atomic.Int32
}

func (c *crowded) Accept() (net.Conn, error) {
	if c.refuses.Add(-1) >= 0 {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	}
	return c.Listener.Accept()
}

// One client that cannot be let in is no reason to let no other in for ever.
func TestWhoCannotBeLetInIsTriedAgain(t *testing.T) {
	network, err := listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &crowded{Listener: network}
	c.refuses.Store(2)
	var log strings.Builder
	d := openDoors(c, slog.New(slog.NewTextHandler(&log, nil)))
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", d.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	let, err := d.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(let.Close(), d.Close()); err != nil {
		t.Error(err)
	}
	if n := strings.Count(log.String(), "cannot be let in"); n != 1 {
		t.Errorf("it was said %d times:\n%s", n, log.String())
	}
	if _, err := d.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("closed doors let somebody in: %v", err)
	}
}
