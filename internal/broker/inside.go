package broker

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"

	"google.golang.org/grpc/test/bufconn"
)

// insideBuffer is how many bytes a connection within the process holds in each direction before its writer waits. An
// instance has a dozen connections a partition.
const insideBuffer = 8 << 10

// doors are where clients come in: those of other processes from the network, and those of this one through memory,
// which saves each request four calls of the system.
type doors struct {
	net.Listener // of the network
	inside       *bufconn.Listener
	in           chan net.Conn
	shut         chan struct{}
	close        func() error
}

func openDoors(network net.Listener) *doors {
	d := &doors{Listener: network, inside: bufconn.Listen(insideBuffer), in: make(chan net.Conn), shut: make(chan struct{})}
	d.close = sync.OnceValue(func() error {
		close(d.shut)
		return errors.Join(d.inside.Close(), network.Close())
	})
	go d.admit(network)
	go d.admit(d.inside)
	return d
}

// admit hands on who comes in by one door, until both are closed.
func (d *doors) admit(door net.Listener) {
	defer func() { _ = d.Close() }() // whoever closed them knows the error
	for {
		c, err := door.Accept()
		if err != nil {
			return
		}
		select {
		case d.in <- c:
		case <-d.shut:
			_ = c.Close() // nobody reads what it says
			return
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

// Close closes both doors. Calling it again returns the first result.
func (d *doors) Close() error { return d.close() }

// Dial connects a client of this process, as [github.com/twmb/franz-go/pkg/kgo.Dialer] wants it: to the broker's own
// address through memory, and to any other through the network. What goes wrong is told as the network would tell it,
// so that the client knows what it may try again.
func (b *Broker) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	if address != b.addr {
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	conn, err := b.doors.inside.DialContext(ctx)
	if err == nil {
		return inside{conn}, nil
	}
	if err = ctx.Err(); err == nil { // the broker is closed
		err = os.NewSyscallError("connect", syscall.ECONNREFUSED)
	}
	return nil, &net.OpError{Op: "dial", Net: network, Addr: b.doors.Addr(), Err: err}
}

// inside is a client's end of a connection within the process.
type inside struct{ net.Conn }

func (c inside) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	return n, asOfNetwork(err)
}

func (c inside) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	return n, asOfNetwork(err)
}

// asOfNetwork is an error as a connection of the network has it: a client tries again after these, and after others not.
func asOfNetwork(err error) error {
	if errors.Is(err, io.ErrClosedPipe) {
		return net.ErrClosed
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		return os.ErrDeadlineExceeded
	}
	return err
}
