package broker

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// What a client of this process writes, others read, and the other way round, however much more it is than a connection
// holds.
func TestClientsOfThisProcess(t *testing.T) {
	b := startBroker(t, Config{Dir: t.TempDir()})
	createTopics(t, b.Addr(), 1, "t")
	large := strings.Repeat("x", 100*insideBuffer)
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
	for address, network := range map[string]string{b.Addr(): "bufconn", other.Addr(): "tcp"} {
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

	silent := dial()
	if err := silent.SetDeadline(time.Now().Add(time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	_, err := silent.Read(make([]byte, 1))
	if timeout, ok := errors.AsType[net.Error](err); !ok || !timeout.Timeout() || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a read past its deadline: %v", err)
	}

	own := dial()
	if err := own.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := own.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a read of a connection that was closed: %v", err)
	}

	open := dial()
	closeBroker(t, b)
	if _, err := open.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("a read of a connection that the broker closed: %v", err)
	}
	if _, err := open.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a write to a connection that the broker closed: %v", err)
	}
	_, err = b.Dial(t.Context(), "tcp", b.Addr())
	if of, ok := errors.AsType[*net.OpError](err); !ok || of.Op != "dial" || !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a broker that is closed is dialled: %v", err)
	}
	given, up := context.WithCancel(t.Context())
	up()
	if _, err := b.Dial(given, "tcp", b.Addr()); !errors.Is(err, context.Canceled) {
		t.Errorf("who has given up dials: %v", err)
	}
}
