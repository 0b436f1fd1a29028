package orchestrator

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/waybill-dev/waybill/orchestrator/address"
	"github.com/waybill-dev/waybill/orchestrator/proof"
)

// ElsewhereError says that an order is in a partition that this instance neither owns nor follows. It is an [ErrElsewhere].
type ElsewhereError struct {
	Partition int32
	// Address is where the instance is asked to which the group gives the partition: what that one advertises, as the group
	// has it. It is "" if it advertises none, or that is not known.
	Address string
	text    string
}

func (e *ElsewhereError) Error() string { return e.text }

// Unwrap returns [ErrElsewhere].
func (e *ElsewhereError) Unwrap() error { return ErrElsewhere }

// owners knows where the instances are asked to which the group gives the partitions. All members hear of it when the group
// deals, and who asks it then knows what holds until it deals again.
type owners struct {
	members func(context.Context) ([]Member, error)
	name    string // that of this instance
	own     string // address of this instance
	log     *slog.Logger
	dealt   chan struct{} // has one if the group has dealt since it was asked

	mu     sync.Mutex
	at     map[int32]string // the address by partition
	shares map[string]bool  // other instances that advertise the address of this one
	shared map[int32]bool   // the partitions that the group gives to those
}

// askOwnersAgain is after how long the group is asked again that did not tell.
const askOwnersAgain = time.Second

// hears notes that the group deals.
func (o *owners) hears() {
	select {
	case o.dealt <- struct{}{}:
	default:
	}
}

// run asks the group each time that it has dealt, until ctx ends.
func (o *owners) run(ctx context.Context) {
	for {
		select {
		case <-o.dealt:
		case <-ctx.Done():
			return
		}
		all, err := o.members(ctx)
		for err != nil {
			if !pause(ctx, askOwnersAgain) {
				return
			}
			all, err = o.members(ctx)
		}
		o.note(all)
	}
}

// note takes what the group told. What leads back here leads nowhere, and is said to do so once for each instance that has it do that.
func (o *owners) note(all []Member) {
	at, shares, shared := make(map[int32]string), make(map[string]bool), make(map[int32]bool)
	for n := range all {
		switch m := &all[n]; {
		case m.URL == "" || m.URL == o.own && m.Instance == o.name:
		case address.Same(m.URL, o.own):
			shares[m.Instance] = true
			for _, p := range m.given {
				shared[p] = true
			}
		default:
			for _, p := range m.given {
				at[p] = m.URL
			}
		}
	}
	o.mu.Lock()
	before := o.shares
	o.at, o.shares, o.shared = at, shares, shared
	o.mu.Unlock()
	for instance := range shares {
		if !before[instance] {
			o.log.Warn("another instance advertises the address of this one, so that nobody is led to either by the other; give each an --advertise-url under which it alone is reached", "instance", instance, "address", o.own)
		}
	}
}

// of is where the owner of a partition is asked, "" if that is not known.
func (o *owners) of(p int32) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.at[p]
}

// SharesAddress says whether the instance to which the group gives a partition is another one that advertises the address of this one. It cannot be
// told from this one then, and [Instance.OwnerAddress] is "".
func (i *Instance) SharesAddress(p int32) bool {
	i.owners.mu.Lock()
	defer i.owners.mu.Unlock()
	return i.owners.shared[p]
}

// OwnerAddress is where the instance is asked to which the group gives a partition: see [ElsewhereError]. It is "" for a
// partition of this instance that the group gives to no other.
func (i *Instance) OwnerAddress(p int32) string { return i.owners.of(p) }

// keys are those of the namespace as they are now, nil if there are none.
func (i *Instance) keys() *proof.Keys {
	if i.cfg.Keys == nil {
		return nil
	}
	return i.cfg.Keys()
}

// elsewhere says that an order is in a partition of another instance.
func (i *Instance) elsewhere(p int32, id string) error {
	e := &ElsewhereError{Partition: p, Address: i.owners.of(p)}
	ask := "ask that one, whose address is not known here: it advertises none (--advertise-url), none that keys vouch for, or partitions move"
	switch {
	case i.SharesAddress(p):
		ask = "that one advertises the address of this one, " + i.owners.own + ": give each an --advertise-url under which it alone is reached"
	case e.Address != "":
		ask = "ask that one at " + e.Address
	}
	e.text = fmt.Sprintf("%v: partition %d of order %q is owned by another instance, and this one keeps only its own (--standby %s); %s", ErrElsewhere, p, id, i.cfg.Standby, ask)
	return e
}
