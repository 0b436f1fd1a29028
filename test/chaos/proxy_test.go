//go:build unix

package chaos

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// network is that of one instance: its proxies to all brokers.
type network []*proxy

// set changes the weather everywhere.
func (n network) set(w weather) {
	for _, p := range n {
		p.set(w)
	}
}

// swallowed says how many answers to commits did not arrive.
func (n network) swallowed() int {
	all := 0
	for _, p := range n {
		p.mu.Lock()
		all += p.swallowed
		p.mu.Unlock()
	}
	return all
}

// proxy stands between one instance and one broker. The broker has a listener
// for each instance, and names the proxy as its address.
type proxy struct {
	listener net.Listener
	to       string
	running  sync.WaitGroup

	mu        sync.Mutex
	weather   weather
	changed   chan struct{} // closed when the weather changes
	open      map[net.Conn]struct{}
	closed    bool
	ends      int // answers to EndTxn in weather that swallows
	swallowed int // of these
	held      int // pieces that had to wait
}

// weather is what becomes of bytes. Bytes that are held arrive later, as TCP
// sends again what was lost: so a late request reaches a broker that has moved on.
type weather struct {
	cut      bool // connections are reset, and none comes about
	holdUp   bool // nothing reaches Kafka
	holdDown bool // Kafka is heard, and its answers are not
	delay    time.Duration
	// swallow: of every two answers to EndTxn one is lost, and the connection with
	// it. Who commits cannot know whether it did.
	swallow bool
}

// passage is a piece on its way, which it begins at a time.
type passage struct {
	at    time.Time
	bytes []byte
}

func newProxy(t *testing.T, address, to string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, to: to, changed: make(chan struct{}), open: make(map[net.Conn]struct{})}
	p.running.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

func (p *proxy) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.listener.Close()
	p.set(weather{cut: true})
	p.running.Wait()
}

// set changes the weather.
func (p *proxy) set(w weather) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.weather = w
	close(p.changed)
	p.changed = make(chan struct{})
	if w.cut {
		for c := range p.open {
			c.Close()
		}
		clear(p.open)
	}
}

// admit remembers a connection, unless there can be none.
func (p *proxy) admit(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.weather.cut {
		c.Close()
		return false
	}
	p.open[c] = struct{}{}
	return true
}

func (p *proxy) forget(c net.Conn) {
	c.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, c)
}

func (p *proxy) accept() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		if p.admit(c) {
			p.running.Go(func() { p.carry(c) })
		}
	}
}

func (p *proxy) carry(instance net.Conn) {
	defer p.forget(instance)
	kafka, err := net.DialTimeout("tcp", p.to, 5*time.Second)
	if err != nil || !p.admit(kafka) {
		return
	}
	defer p.forget(kafka)
	ctx, over := context.WithCancel(context.Background())
	ends := &endings{asked: make(map[uint32]bool)}
	var both sync.WaitGroup
	end := func() { over(); instance.Close(); kafka.Close() }
	both.Go(func() {
		defer end()
		p.pump(ctx, kafka, instance, func(w weather) bool { return w.holdUp }, ends.ask)
	})
	both.Go(func() {
		defer end()
		p.pump(ctx, instance, kafka, func(w weather) bool { return w.holdDown }, func(frame []byte) bool {
			return !ends.answered(frame) || !p.swallows()
		})
	})
	both.Wait()
}

// endings are the EndTxn requests of a connection that were not answered yet.
type endings struct {
	mu    sync.Mutex
	asked map[uint32]bool // by the number of the request
}

// ask takes a request: its length, key, version and number.
func (e *endings) ask(frame []byte) bool {
	if len(frame) >= 12 && binary.BigEndian.Uint16(frame[4:]) == uint16(kmsg.EndTxn) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.asked[binary.BigEndian.Uint32(frame[8:])] = true
	}
	return true
}

// answered says whether an answer, its length and number, is to one of them.
func (e *endings) answered(frame []byte) bool {
	if len(frame) < 8 {
		return false
	}
	number := binary.BigEndian.Uint32(frame[4:])
	e.mu.Lock()
	defer e.mu.Unlock()
	defer delete(e.asked, number)
	return e.asked[number]
}

// swallows says whether the answer to an EndTxn is lost.
func (p *proxy) swallows() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.weather.swallow {
		return false
	}
	if p.ends++; p.ends%2 == 0 {
		return false
	}
	p.swallowed++
	return true
}

// pump carries the requests, or the answers, of a connection, until one may not
// go on. What was read waits for its time, and for as long as the direction is
// held.
func (p *proxy) pump(ctx context.Context, to io.Writer, from io.Reader, held func(weather) bool, mayPass func(frame []byte) bool) {
	way := make(chan passage, 1024)
	var writing sync.WaitGroup
	defer writing.Wait()
	defer close(way)
	broken, breaks := context.WithCancel(ctx)
	writing.Go(func() {
		defer breaks()
		for piece := range way {
			if !p.pass(ctx, piece.at, held) {
				return
			}
			if _, err := to.Write(piece.bytes); err != nil {
				return
			}
		}
	})
	for in := bufio.NewReader(from); ; {
		frame, err := readFrame(in)
		if err != nil || !mayPass(frame) {
			return
		}
		p.mu.Lock()
		at := time.Now().Add(p.weather.delay)
		p.mu.Unlock()
		select {
		case way <- passage{at, frame}:
		case <-broken.Done():
			return
		}
	}
}

// readFrame reads a request or an answer, and its length before it.
func readFrame(in *bufio.Reader) ([]byte, error) {
	head, err := in.Peek(4)
	if err != nil {
		return nil, err
	}
	frame := make([]byte, 4+int64(binary.BigEndian.Uint32(head)))
	_, err = io.ReadFull(in, frame)
	return frame, err
}

// pass waits until a piece may go on, and says whether it still can.
func (p *proxy) pass(ctx context.Context, at time.Time, held func(weather) bool) bool {
	for waited := false; ; {
		p.mu.Lock()
		waits, changed := held(p.weather), p.changed
		if waits && !waited {
			waited = true
			p.held++
		}
		p.mu.Unlock()
		var due <-chan time.Time
		if !waits {
			left := time.Until(at)
			if left <= 0 {
				return ctx.Err() == nil
			}
			due = time.After(left)
		}
		select {
		case <-due:
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}
