package broker

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

const (
	// heldAtMost is how many bytes a direction of a connection within the process holds before its writer waits: about as
	// many as the network does. A client whose write waits for long gives the connection up.
	heldAtMost = 4 << 20
	// heldIdle is how many of them it keeps room for when all are read.
	heldIdle = 64 << 10
	// acceptAgain is how long nobody is let in by the network after that failed.
	acceptAgain = 100 * time.Millisecond
	// dialTimeout is how long another broker has to be there, as kgo has it.
	dialTimeout = 10 * time.Second
)

// doors are where clients come in: those of other processes from the network, and those of this one through memory, which
// spares each request the system's calls, and each connection two of its descriptors.
type doors struct {
	net.Listener // of the network
	in           chan net.Conn
	shut         chan struct{}
	close        func() error
}

func openDoors(network net.Listener, log *slog.Logger) *doors {
	d := &doors{Listener: network, in: make(chan net.Conn), shut: make(chan struct{})}
	d.close = sync.OnceValue(func() error {
		close(d.shut)
		return network.Close()
	})
	go d.admit(log)
	return d
}

// admit hands on who comes by the network, until the doors are shut. The system may be unable to let somebody in, for
// want of descriptors; then others are tried later.
func (d *doors) admit(log *slog.Logger) {
	for told := false; ; {
		c, err := d.Listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			if !told {
				log.Warn("clients cannot be let in; it is tried again until they can", "err", err)
			}
			told = true
			select {
			case <-time.After(acceptAgain):
			case <-d.shut:
			}
			continue
		}
		told = false
		select {
		case d.in <- c:
		case <-d.shut:
			_ = c.Close() // nobody reads what it says
		}
	}
}

// Accept waits for the next connection. It fails with [net.ErrClosed].
func (d *doors) Accept() (net.Conn, error) {
	select {
	case c := <-d.in:
		return c, nil
	case <-d.shut:
		return nil, net.ErrClosed
	}
}

// Close shuts the doors. Calling it again returns the first result.
func (d *doors) Close() error { return d.close() }

// Dial connects a client of this process, as [github.com/twmb/franz-go/pkg/kgo.Dialer] wants it: to the broker's own
// address through memory, and to any other through the network. What goes wrong is told as the network tells it, for by
// that a client decides what it tries again.
func (b *Broker) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	if address != b.addr {
		return (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, network, address)
	}
	to, from := newPipe(), newPipe()
	select {
	case b.doors.in <- &inside{in: to, out: from}:
		return &inside{in: from, out: to}, nil
	case <-b.doors.shut:
	case <-ctx.Done():
	}
	err := ctx.Err()
	if err == nil {
		err = os.NewSyscallError("connect", syscall.ECONNREFUSED)
	}
	return nil, &net.OpError{Op: "dial", Net: network, Addr: b.doors.Addr(), Err: err}
}

// inside is an end of a connection within the process.
type inside struct{ in, out *pipe }

func (c *inside) Read(p []byte) (int, error) {
	n, err := c.in.read(p)
	return n, c.failed("read", err)
}

func (c *inside) Write(p []byte) (int, error) {
	n, err := c.out.write(p)
	return n, c.failed("write", err)
}

func (c *inside) failed(op string, err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	return &net.OpError{Op: op, Net: c.RemoteAddr().Network(), Addr: c.RemoteAddr(), Err: err}
}

// Close ends both directions. What was written before can be read by the other end.
func (c *inside) Close() error {
	_ = c.SetDeadline(time.Time{}) // it never fails
	c.in.change(func(p *pipe) { p.left = true })
	c.out.change(func(p *pipe) { p.ended = true })
	return nil
}

func (c *inside) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

func (c *inside) SetReadDeadline(t time.Time) error  { c.in.readBy.set(c.in, t); return nil }
func (c *inside) SetWriteDeadline(t time.Time) error { c.out.writeBy.set(c.out, t); return nil }

func (*inside) LocalAddr() net.Addr  { return here{} }
func (*inside) RemoteAddr() net.Addr { return here{} }

// here is the address of both ends.
type here struct{}

func (here) Network() string { return "memory" }
func (here) String() string  { return "this process" }

// pipe is one direction of a connection.
type pipe struct {
	mu              sync.Mutex
	changed         sync.Cond
	held            bytes.Buffer // what was written and not read
	ended, left     bool         // the writer has closed its end, and the reader
	readBy, writeBy deadline
}

func newPipe() *pipe {
	p := new(pipe)
	p.changed.L = &p.mu
	return p
}

func (p *pipe) change(how func(*pipe)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	how(p)
	p.changed.Broadcast()
}

func (p *pipe) read(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		switch {
		case p.left:
			return 0, net.ErrClosed
		case p.held.Len() > 0:
			n, err := p.held.Read(b)
			if p.held.Len() == 0 && p.held.Cap() > heldIdle {
				p.held = bytes.Buffer{}
			}
			p.changed.Broadcast()
			return n, err
		case p.ended:
			return 0, io.EOF
		case p.readBy.over():
			return 0, os.ErrDeadlineExceeded
		}
		p.changed.Wait()
	}
}

func (p *pipe) write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		switch {
		case p.ended:
			return 0, net.ErrClosed
		case p.left:
			return 0, os.NewSyscallError("write", syscall.EPIPE)
		case p.held.Len() < heldAtMost: // a request is held whole, however long it is
			p.changed.Broadcast()
			return p.held.Write(b)
		case p.writeBy.over():
			return 0, os.ErrDeadlineExceeded
		}
		p.changed.Wait()
	}
}

// deadline is until when an end of a pipe waits.
type deadline struct {
	at    time.Time // zero for ever
	timer *time.Timer
}

func (d *deadline) over() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

// set has who waits look again at a time.
func (d *deadline) set(p *pipe, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	d.at = at
	switch {
	case at.IsZero():
		if d.timer != nil {
			d.timer.Stop()
		}
	case d.timer == nil:
		d.timer = time.AfterFunc(time.Until(at), func() { p.change(func(*pipe) {}) })
	default:
		d.timer.Reset(time.Until(at))
	}
}
