package broker

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Whatever is no request ends its connection, and nothing else: kfake would wait
// for up to 4 GiB that four bytes claim, or panic.
func TestWhatIsNoRequestEndsItsConnection(t *testing.T) {
	b := startBroker(t, Config{})
	asked := request()
	unknown := slices.Clone(asked)
	unknown[4], unknown[5] = 0x7f, 0xff
	claiming := func(size uint32) []byte {
		return binary.BigEndian.AppendUint32(nil, size)
	}
	for name, c := range map[string]struct {
		said    []byte
		answers int
	}{
		"a browser":                        {[]byte("GET / HTTP/1.1\r\nHost: 127.0.0.1:9092\r\n\r\n"), 0},
		"TLS":                              {[]byte{0x16, 0x03, 0x01, 0x02, 0x00, 0x01}, 0},
		"one byte too many":                {claiming(maxRequest + 1), 0},
		"the most that four bytes can say": {claiming(0xffffffff), 0},
		"nothing":                          {claiming(0), 0},
		"half a key":                       {append(claiming(1), 0), 0},
		"an unknown kind":                  {unknown, 0},
		"too much behind a request":        {append(slices.Clone(asked), claiming(1<<31)...), 1},
		"an unknown kind behind a request": {append(slices.Clone(asked), unknown...), 1},
		"two requests, then a browser":     {slices.Concat(asked, asked, []byte("GET / HTTP/1.1\r\n")), 2},
	} {
		for door, dial := range map[string]func(context.Context, string, string) (net.Conn, error){
			"network": new(net.Dialer).DialContext, "process": b.Dial,
		} {
			t.Run(name+"/"+door, func(t *testing.T) {
				conn, err := dial(t.Context(), "tcp", b.Addr())
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				for n := range c.said { // byte by byte, so that every read ends in the middle
					if _, err := conn.Write(c.said[n : n+1]); err != nil {
						break // it is closed already
					}
				}
				if n := answers(conn); n > c.answers {
					t.Errorf("%d answers instead of %d", n, c.answers)
				}
			})
		}
	}
	client := newClient(t, b.Addr())
	defer client.Close()
	if _, err := kadm.NewClient(client).ListBrokers(t.Context()); err != nil {
		t.Errorf("the broker does not go on: %v", err)
	}
}

// request asks for the versions of the API.
func request() []byte {
	r := kmsg.NewPtrApiVersionsRequest()
	return kmsg.NewRequestFormatter(kmsg.FormatterClientID("test")).AppendRequest(nil, r, 1)
}

// answers reads to the end of a connection, and returns how many answers came.
func answers(conn net.Conn) (n int) {
	for ; ; n++ {
		size := make([]byte, 4)
		if _, err := io.ReadFull(conn, size); err != nil {
			return n
		}
		if _, err := io.CopyN(io.Discard, conn, int64(binary.BigEndian.Uint32(size))); err != nil {
			return n
		}
	}
}
