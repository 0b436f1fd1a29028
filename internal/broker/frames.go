package broker

import (
	"encoding/binary"
	"fmt"
	"io"
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
	return &framed{Conn: c, flush: f.flush, log: f.log}, nil
}

// framed is a connection that ends where a frame begins which cannot be a request.
type framed struct {
	net.Conn
	flush *flusher
	log   *slog.Logger
	head  []byte // of the frame, as far as it was not read
	left  int    // bytes of the frame behind its head
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

// Read reads no further than to the end of a frame.
func (c *framed) Read(p []byte) (int, error) {
	if len(c.head) == 0 && c.left == 0 {
		if err := c.next(); err != nil {
			return 0, err
		}
	}
	if len(c.head) > 0 {
		n := copy(p, c.head)
		c.head = c.head[n:]
		return n, nil
	}
	n, err := c.Conn.Read(p[:min(len(p), c.left)])
	c.left -= n
	return n, err
}

// next reads the head of a frame: its length, and which request it is.
func (c *framed) next() error {
	const length, key = 4, 2
	head := make([]byte, length+key)
	if _, err := io.ReadFull(c.Conn, head[:length]); err != nil {
		return err
	}
	size := binary.BigEndian.Uint32(head)
	if size < key || size > maxRequest {
		return c.refuse(fmt.Errorf("a request of %d bytes; at most %d are taken", size, maxRequest))
	}
	if _, err := io.ReadFull(c.Conn, head[length:]); err != nil {
		return err
	}
	if k := int16(binary.BigEndian.Uint16(head[length:])); kmsg.RequestForKey(k) == nil {
		return c.refuse(fmt.Errorf("a request of the unknown kind %d", k))
	}
	c.head, c.left = head, int(size)-key
	return nil
}

func (c *framed) refuse(why error) error {
	c.log.Warn("a connection is closed on which no Kafka client speaks", "from", c.RemoteAddr(), "why", why)
	return why
}
