package oracle

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
)

// others are the statuses that say nothing of the order.
var others = []string{"conflict", "matched", "started", "kept", "repeated", "late", "declined"}

// InOrder wants that what a topic says of an order comes in the order of its
// history, and once; or, with again, that it does so for the first time (P1). It
// returns what comes for the first time.
func InOrder(records []*kgo.Record, again bool) (first []*kgo.Record, err error) {
	last := make(map[string]int)
	seen := make(map[string]bool)
	for _, r := range records {
		if len(r.Key) == 0 {
			first = append(first, r)
			continue
		}
		n, id := Number(r), events.Header(r, "ce_id")
		if again && seen[id] {
			continue
		}
		seen[id] = true
		if told, err := events.Decode[events.Status](r.Value); err == nil && slices.Contains(others, told.Status) {
			first = append(first, r) // it is another's, and comes when it comes
			continue
		}
		from := From(r)
		if before := last[from]; n < before || n == before && !several(r) {
			err = errors.Join(err, fmt.Errorf("%s: order %s: the message of event %d follows that of event %d", r.Topic, from, n, before))
		}
		last[from] = n
		first = append(first, r)
	}
	return first, err
}

// several says that an event may have several messages like this one: an order that is released asks
// each that does a step of it, and one that ends tells the homes of several keys.
func several(r *kgo.Record) bool {
	kind := events.Type(events.Header(r, events.HeaderType))
	return kind == events.ChildWanted || kind == events.SignalWanted || kind == events.PlaceWanted
}

// AtLeastOnce leaves out the status messages that the namespace's topic has though the
// caller's own has them: nobody could tell.
func AtLeastOnce(sent []*kgo.Record, status string) []*kgo.Record {
	delivered := make(map[string]bool)
	for _, r := range sent {
		if events.Header(r, events.HeaderType) == string(events.OrderStatus) && r.Topic != status {
			delivered[events.Header(r, "ce_id")] = true
		}
	}
	return slices.DeleteFunc(sent, func(r *kgo.Record) bool { return r.Topic == status && delivered[events.Header(r, "ce_id")] })
}

// Number is that of the journal event from which a message follows, 0 for what is
// about a partition.
func Number(r *kgo.Record) int {
	id := strings.TrimPrefix(events.Header(r, "ce_id"), From(r)+"/")
	digits, _, _ := strings.Cut(id, "/")
	n, _ := strconv.Atoi(digits)
	return n
}
