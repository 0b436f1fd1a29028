package projections

import (
	"bytes"
	"encoding/binary"
	"time"
)

// Keys begin with the partition, so that a partition is one range; then comes
// what they are for. A step name holds no NUL byte, so the last NUL of a key
// parts the order id, which may hold any byte, from the step.
const (
	kindHead     = 'h' // the partition's Head
	kindOrder    = 'o' // order -> record
	kindPayload  = 'v' // order NUL -> large input; order NUL step, "", ":input", ":undo", ":page" or ":input:" number -> large output, input, undo's input, items at hand, input under an earlier key; order NUL ":held:" source -> large input that waits
	kindDeadline = 'd' // milliseconds, order NUL step -> nothing, or that it is asleep; without a step the order's own
	kindAlert    = 'a' // inverted milliseconds, order -> nothing, or that it is held: the open alerts
	kindApproval = 'p' // milliseconds, order -> nothing: those that wait for people to decide
	kindListens  = 'w' // milliseconds, order -> nothing: those that wait for signals
	kindOwed     = 'c' // topic NUL offset in the journal -> a status message that waits for a caller's own topic
	kindEmission = 'e' // topic NUL offset in the journal -> number of the order's event, order NUL step: the events of users' that wait for a topic
	kindItems    = 'i' // length of the order's id, order, then 'p' step NUL page -> states of items, 'r' step NUL item -> how it ended, or 's' NUL number -> journal offsets that are not in the record
	kindSilent   = 's' // agent -> since when it answers nothing in time
	kindLabel    = 'k' // name NUL value NUL workflow NUL inverted milliseconds, order -> nothing: what orders are found by
	kindSchedule = 't' // name -> nothing: the schedules that there are
	kindLimit    = 'n' // name -> nothing: the limits that there are
	kindSeat     = 'b' // length of the home's id, home, order, number of its event -> who has a place, or waits for one
	kindListing  = 'l' // state NUL workflow NUL inverted milliseconds, order -> order
)

// metaKey lies behind all partitions: it identifies the store.
var metaKey = []byte{0xff, 0xff, 0xff, 0xff, 'm'}

func appendPrefix(dst []byte, partition int32, kind byte) []byte {
	return append(binary.BigEndian.AppendUint32(dst, uint32(partition)), kind)
}

func prefix(partition int32, kind byte) []byte { return appendPrefix(nil, partition, kind) }

func orderKey(partition int32, id string) []byte {
	return append(appendPrefix(make([]byte, 0, 5+len(id)), partition, kindOrder), id...)
}

func payloadKey(partition int32, id, step, part string) []byte {
	k := append(appendPrefix(make([]byte, 0, 6+len(id)+len(step)+len(part)), partition, kindPayload), id...)
	return append(append(append(k, 0), step...), part...)
}

func deadlineBound(partition int32, at time.Time) []byte {
	return binary.BigEndian.AppendUint64(prefix(partition, kindDeadline), uint64(at.UnixMilli()))
}

func deadlineKey(partition int32, at time.Time, id, step string) []byte {
	k := appendPrefix(make([]byte, 0, 14+len(id)+len(step)), partition, kindDeadline)
	k = binary.BigEndian.AppendUint64(k, uint64(at.UnixMilli()))
	return append(append(append(k, id...), 0), step...)
}

func splitDeadlineKey(k []byte) (at time.Time, id, step string, ok bool) {
	const head = 4 + 1
	if len(k) < head+8 {
		return at, "", "", false
	}
	at = time.UnixMilli(int64(binary.BigEndian.Uint64(k[head:]))).UTC()
	k = k[head+8:]
	nul := bytes.LastIndexByte(k, 0)
	if nul < 0 {
		return at, "", "", false
	}
	return at, string(k[:nul]), string(k[nul+1:]), true
}

func listingPrefix(partition int32, state State, workflow string) []byte {
	k := appendPrefix(make([]byte, 0, 64), partition, kindListing)
	k = append(append(k, state...), 0)
	return append(append(k, workflow...), 0)
}

func listingKey(partition int32, o *Order) []byte {
	k := listingPrefix(partition, o.State, o.Workflow)
	k = binary.BigEndian.AppendUint64(k, ^uint64(o.AcceptedAt.UnixMilli()))
	return append(k, o.ID...)
}

func openKey(kind byte, partition int32, at time.Time, id string) []byte {
	k := appendPrefix(make([]byte, 0, 13+len(id)), partition, kind)
	return append(binary.BigEndian.AppendUint64(k, openOrder(kind, uint64(at.UnixMilli()))), id...)
}

// openOrder is by what those are listed that wait for somebody: alerts newest first, approvals and what
// waits for signals oldest first.
func openOrder(kind byte, millis uint64) uint64 {
	if kind == kindAlert {
		return ^millis
	}
	return millis
}

func splitOpenKey(k []byte) (OpenPlace, bool) {
	const head = 4 + 1
	if len(k) < head+8 {
		return OpenPlace{}, false
	}
	at := time.UnixMilli(int64(openOrder(k[4], binary.BigEndian.Uint64(k[head:])))).UTC()
	return OpenPlace{at, string(k[head+8:])}, true
}

func topicPrefix(partition int32, kind byte, topic string) []byte {
	k := appendPrefix(make([]byte, 0, 14+len(topic)), partition, kind)
	return append(append(k, topic...), 0)
}

func topicKey(partition int32, kind byte, topic string, offset int64) []byte {
	return binary.BigEndian.AppendUint64(topicPrefix(partition, kind, topic), uint64(offset))
}

func owedKey(partition int32, topic string, offset int64) []byte {
	return topicKey(partition, kindOwed, topic, offset)
}

// emissionValue is that of a [kindEmission].
func emissionValue(order, step string, seq uint64) []byte {
	v := binary.BigEndian.AppendUint64(make([]byte, 0, 9+len(order)+len(step)), seq)
	return append(append(append(v, order...), 0), step...)
}

func splitEmission(value []byte) (order, step string, seq uint64, ok bool) {
	nul := bytes.LastIndexByte(value, 0)
	if nul < 8 {
		return "", "", 0, false
	}
	return string(value[8:nul]), string(value[nul+1:]), binary.BigEndian.Uint64(value), true
}

func offsetOfOwed(k []byte) int64 { return int64(binary.BigEndian.Uint64(k[len(k)-8:])) }

// listedWorkflow returns the workflow in the listing key of an order. A rejected
// order may name a workflow of any form, so it is found from both ends.
func listedWorkflow(k []byte, id string) (string, bool) {
	const head, tail = 4 + 1, 1 + 8
	state := bytes.IndexByte(k[min(head, len(k)):], 0)
	from, to := head+state+1, len(k)-tail-len(id)
	if state < 0 || from > to {
		return "", false
	}
	return string(k[from:to]), true
}

// after returns the first key behind all keys that begin with k.
func after(k []byte) []byte {
	end := bytes.Clone(k)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i]++; end[i] != 0 {
			return end[:i+1]
		}
	}
	return nil
}
