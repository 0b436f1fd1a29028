package child

import (
	"context"
	"errors"
	"net"
	"strconv"
	"sync"
	"testing"
)

// Ports lie below those that the system hands out to outgoing connections: one
// of these could be taken while who listens on it is down, by a client that
// dials the dead process even. Each process of the tests has a range for itself,
// so what is stopped or killed finds its port free again.
const (
	firstPort = 20000
	lastPort  = 29999
	portRange = 100
)

var ports struct {
	sync.Mutex
	// held are the first ports of this process's ranges. The system lets go of
	// them when the process ends, in whatever way it ends.
	held      []net.Listener
	next, end int
}

// Address finds an address that a process or a container can listen on, and
// again after it was stopped or killed. Nobody else is given it.
func Address() (string, error) {
	ports.Lock()
	defer ports.Unlock()
	for {
		if ports.next == ports.end {
			if err := claimPorts(); err != nil {
				return "", err
			}
		}
		address := local(ports.next)
		ports.next++
		if l, err := listen(address); err == nil {
			return address, l.Close()
		}
	}
}

// claimPorts takes the first range that no other process has.
func claimPorts() error {
	for first := firstPort; first < lastPort; first += portRange {
		if l, err := listen(local(first)); err == nil {
			ports.held = append(ports.held, l)
			ports.next, ports.end = first+1, first+portRange
			return nil
		}
	}
	return errors.New("no free ports: all ranges are taken")
}

func local(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

func listen(address string) (net.Listener, error) {
	var listening net.ListenConfig
	return listening.Listen(context.Background(), "tcp", address)
}

// FreeAddress is [Address] for a test.
func FreeAddress(t testing.TB) string {
	t.Helper()
	address, err := Address()
	if err != nil {
		t.Fatal(err)
	}
	return address
}
