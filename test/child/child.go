//go:build unix

// Package child is for tests that start processes of their own.
package child

import (
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"testing"
)

// taken are the addresses that were given away.
var taken sync.Map

// FreeAddress finds an address that a process can listen on, and again after it
// was killed. The port is below those that the system hands out to outgoing
// connections: one of these could be taken meanwhile, by a client that dials the
// dead process even.
func FreeAddress(t testing.TB) string {
	t.Helper()
	var listening net.ListenConfig
	for range 100 {
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(20000+rand.IntN(10000)))
		if l, err := listening.Listen(t.Context(), "tcp", address); err == nil {
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			if _, there := taken.LoadOrStore(address, true); !there {
				return address
			}
		}
	}
	t.Fatal("no free port")
	return ""
}
