package orchestrator

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/waybill-dev/waybill/orchestrator/proof"
)

// maxAddress is how long an advertised address may be, in bytes: the group keeps those of all members in one record.
const maxAddress = 255

// ValidAddress says whether a text is one that an instance may advertise: an absolute address of http or https with a host,
// and without a user, a query, a fragment, a / at its end, or anything that has to be escaped.
func ValidAddress(text string) bool {
	u, err := url.Parse(text)
	return err == nil && len(text) <= maxAddress && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != "" &&
		u.User == nil && u.RawQuery == "" && !u.ForceQuery && !strings.Contains(text, "#") && u.RawPath == "" &&
		!strings.HasSuffix(text, "/") && !strings.ContainsAny(text, "%\\\"'<>`{}|^") &&
		!strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) && u.String() == text
}

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
	own     string        // address of this instance
	dealt   chan struct{} // has one if the group has dealt since it was asked

	mu sync.Mutex
	at map[int32]string // the address by partition
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

// note takes what the group told. What leads back here leads nowhere.
func (o *owners) note(all []Member) {
	at := make(map[int32]string)
	for n := range all {
		if m := &all[n]; m.URL != "" && m.URL != o.own {
			for _, p := range m.given {
				at[p] = m.URL
			}
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.at = at
}

// of is where the owner of a partition is asked, "" if that is not known.
func (o *owners) of(p int32) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.at[p]
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
	ask := "ask that one, whose address is not known here: it advertises none of its own (--advertise-url), none that keys vouch for, or partitions move"
	if e.Address != "" {
		ask = "ask that one at " + e.Address
	}
	e.text = fmt.Sprintf("%v: partition %d of order %q is owned by another instance, and this one keeps only its own (--standby %s); %s", ErrElsewhere, p, id, i.cfg.Standby, ask)
	return e
}
