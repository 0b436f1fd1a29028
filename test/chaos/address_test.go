//go:build unix

package chaos

import (
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
)

// freeAddress finds an address that can be listened on, and again after a kill.
// The port is below those that the system hands out to outgoing connections.
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
