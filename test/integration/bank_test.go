package integration

import (
	"sync"

	kit "github.com/waybill-dev/waybill/test/world"
)

// bank is a service that is down until it returns. It notes under which keys it
// was asked (A3).
type bank struct {
	mu    sync.Mutex
	back  bool
	asked map[string]int
}

func newBank() *bank { return &bank{asked: make(map[string]int)} }

func (b *bank) answer(r kit.Request) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked[r.IdempotencyKey]++
	if b.back {
		return done
	}
	return busy
}

func (b *bank) returns() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.back = true
}

func (b *bank) keys() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []string
	for key := range b.asked {
		all = append(all, key)
	}
	return all
}
