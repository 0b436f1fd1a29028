//go:build unix

package process

import (
	"math/rand/v2"
	"net"
	"strconv"
	"testing"

	"github.com/waybill-dev/waybill/internal/api"
)

// freeAddress finds an address that a process can listen on, and again after
// it was killed. The port is below those that the system hands out to outgoing
// connections: one of these could be taken meanwhile, by a client that dials
// the dead process even.
func freeAddress(t *testing.T) string {
	t.Helper()
	for range 100 {
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(20000+rand.IntN(10000)))
		if l, err := net.Listen("tcp", address); err == nil {
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			return address
		}
	}
	t.Fatal("no free port")
	return ""
}

func clientOf(t *testing.T, address string) *api.Client {
	t.Helper()
	client, err := api.NewClient(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}
