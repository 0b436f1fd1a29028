package events

import (
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json"
)

// HeaderLane is the header on the last journal record of every transaction.
// It holds a [Seal].
const HeaderLane = "waybill_lane"

// Seal closes a transaction of a partition's single writer. With it the
// journal alone says how far the inputs were read, and a reader can tell a
// torn or a lost transaction from a whole one.
type Seal struct {
	// Transaction numbers the partition's transactions from 1 without a gap.
	// A claim has none: whoever claims cannot know the number yet.
	Transaction uint64 `json:"txn,omitzero"`
	// Events is how many journal records the transaction has.
	Events int `json:"events"`
	// Dropped is how many inputs it passed that left no event: they changed nothing,
	// and their orders have as many such events as an order may. A submission that
	// waited in its order is of the transaction that releases it.
	Dropped int `json:"dropped,omitzero"`
	// Next is where reading of the inputs goes on. On a claim it says nothing:
	// whoever claims has not read the journal yet.
	Next Positions `json:"next,omitzero"`
}

// Append appends the seal's JSON.
func (s *Seal) Append(dst []byte) []byte {
	dst = append(dst, `{"txn":`...)
	dst = strconv.AppendUint(dst, s.Transaction, 10)
	dst = append(dst, `,"events":`...)
	dst = strconv.AppendInt(dst, int64(s.Events), 10)
	if s.Dropped > 0 {
		dst = append(dst, `,"dropped":`...)
		dst = strconv.AppendInt(dst, int64(s.Dropped), 10)
	}
	dst = append(dst, `,"next":`...)
	return append(s.Next.Append(dst), '}')
}

// DecodeSeal reads a [HeaderLane] header.
func DecodeSeal(b []byte) (Seal, error) {
	var s Seal
	if err := json.Unmarshal(b, &s, coding); err != nil {
		return s, fmt.Errorf("header %s: %w", HeaderLane, err)
	}
	if s.Events < 1 {
		return s, fmt.Errorf("header %s: a transaction of %d events", HeaderLane, s.Events)
	}
	return s, nil
}
