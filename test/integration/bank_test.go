package integration

import (
	"sync/atomic"

	kit "github.com/waybill-dev/waybill/test/world"
)

// bank is a service that is down until it returns.
type bank struct{ back atomic.Bool }

func (b *bank) answer(kit.Request) string {
	if b.back.Load() {
		return done
	}
	return busy
}

func (b *bank) returns() { b.back.Store(true) }
