package broker

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// maxRequest is the largest request that is read, as in Kafka.
const maxRequest = 100 << 20

// frames accepts connections on which nothing comes but frames that may be
// requests. kfake allocates what the first four bytes of a frame say, and panics
// when the next two name no request: whatever connects by mistake, a browser for
// one, would end the process.
type frames struct {
	net.Listener
	flush *flusher // what answers wait for; nil if for nothing
	log   *slog.Logger
}

// Accept waits for the next connection.
func (f frames) Accept() (net.Conn, error) {
	c, err := f.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &framed{Conn: c, in: bufio.NewReader(c), flush: f.flush, log: f.log}, nil
}

// framed is a connection that ends where a frame begins which cannot be a request.
type framed struct {
	net.Conn
	in    *bufio.Reader // a frame is read in parts, and each of the connection would be a call of the system
	flush *flusher
	log   *slog.Logger
	left  int // bytes of the frame
}

// Write sends an answer, when all that was written before it is on the disk. It
// fails, which ends the connection, when that cannot be known.
func (c *framed) Write(answer []byte) (int, error) {
	if c.flush != nil {
		if err := c.flush.wait(); err != nil {
			return 0, err
		}
	}
	return c.Conn.Write(answer)
}

// Read returns nothing of what is behind the end of a frame.
func (c *framed) Read(p []byte) (int, error) {
	if c.left == 0 {
		if err := c.next(); err != nil {
			return 0, err
		}
	}
	n, err := c.in.Read(p[:min(len(p), c.left)])
	c.left -= n
	return n, err
}

// next looks at the head of a frame: its length, and which request it is.
func (c *framed) next() error {
	const length, key = 4, 2
	head, err := c.in.Peek(length)
	if err != nil {
		return err
	}
	size := binary.BigEndian.Uint32(head)
	if size < key || size > maxRequest {
		return c.refuse(fmt.Errorf("a request of %d bytes; at most %d are taken", size, maxRequest))
	}
	if head, err = c.in.Peek(length + key); err != nil {
		return err
	}
	if k := int16(binary.BigEndian.Uint16(head[length:])); kmsg.RequestForKey(k) == nil {
		return c.refuse(fmt.Errorf("a request of the unknown kind %d", k))
	}
	c.left = length + int(size)
	return nil
}

func (c *framed) refuse(why error) error {
	c.log.Warn("a connection is closed on which no Kafka client speaks", "from", c.RemoteAddr(), "why", why)
	return why
}
