package identity

import (
	"hash/maphash"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Failures bounds how many log-ins that failed are looked into, by address: ten, and
// then one in six seconds. What is right is taken all the same: behind a proxy all
// come from one address, and one that is wrong must not lock out the others. A key
// cannot be guessed; what is bounded is what guesses write to the log.
//
// It has a fixed number of places, so those of many addresses share one.
type Failures struct {
	seed   maphash.Seed
	mu     sync.Mutex
	places [1024]*rate.Limiter
}

// NewFailures has seen none yet.
func NewFailures() *Failures { return &Failures{seed: maphash.MakeSeed()} }

// Another counts a failure of an address, and says whether there were too many.
func (f *Failures) Another(address string, now time.Time) (tooMany bool) {
	// Who has one IPv6 address has a network of them.
	if a, err := netip.ParseAddr(address); err == nil && a.Is6() && !a.Is4In6() {
		if network, err := a.WithZone("").Prefix(64); err == nil {
			address = network.String()
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	place := &f.places[maphash.String(f.seed, address)%uint64(len(f.places))]
	if *place == nil {
		*place = rate.NewLimiter(rate.Every(6*time.Second), 10)
	}
	return !(*place).AllowN(now, 1)
}
