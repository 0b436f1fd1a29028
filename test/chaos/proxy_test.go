//go:build unix

package chaos

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// proxy stands between one instance and Kafka, and is its network. Kafka has a
// listener for each instance, and names the proxy as its address.
type proxy struct {
	listener net.Listener
	to       string
	running  sync.WaitGroup

	mu      sync.Mutex
	weather weather
	changed chan struct{} // closed when the weather changes
	open    map[net.Conn]struct{}
	closed  bool
}

// weather is what becomes of bytes. Bytes that are held arrive later, as TCP
// sends again what was lost: so a late request reaches a broker that has moved on.
type weather struct {
	cut      bool // connections are reset, and none comes about
	holdUp   bool // nothing reaches Kafka
	holdDown bool // Kafka is heard, and its answers are not
	delay    time.Duration
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
	var both sync.WaitGroup
	end := func() { over(); instance.Close(); kafka.Close() }
	both.Go(func() { defer end(); p.pump(ctx, kafka, instance, func(w weather) bool { return w.holdUp }) })
	both.Go(func() { defer end(); p.pump(ctx, instance, kafka, func(w weather) bool { return w.holdDown }) })
	both.Wait()
}

// pump carries one direction. What was read waits for its time, and for as long
// as the direction is held.
func (p *proxy) pump(ctx context.Context, to io.Writer, from io.Reader, held func(weather) bool) {
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
	for {
		b := make([]byte, 32<<10)
		n, err := from.Read(b)
		if n > 0 {
			p.mu.Lock()
			at := time.Now().Add(p.weather.delay)
			p.mu.Unlock()
			select {
			case way <- passage{at, b[:n]}:
			case <-broken.Done():
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// pass waits until a piece may go on, and says whether it still can.
func (p *proxy) pass(ctx context.Context, at time.Time, held func(weather) bool) bool {
	for {
		p.mu.Lock()
		waits, changed := held(p.weather), p.changed
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
