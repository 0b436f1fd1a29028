package workflow

import (
	"github.com/goccy/go-yaml/ast"

	"github.com/waybill-dev/waybill/events"
)

// Concurrency lets one order of a workflow be open at a time of those that have the same key.
type Concurrency struct {
	// Key is a text, or a whole number, that follows from the input alone.
	Key        *Expression
	OnConflict events.OnConflict // what becomes of one that comes while another is open
}

// HomeOf is the id of the home where an order has its turn, and the key behind it.
//
// The error says why the expression failed, in at most 1 KiB.
func (w *Workflow) HomeOf(s Scope) (home, key string, err error) {
	if key, err = w.Concurrency.Key.keyOf(s); err != nil {
		return "", "", err
	}
	return events.TurnID(w.Name, key), key, nil
}

// concurrency reads under which key one order is open at a time.
func (r *reader) concurrency(n ast.Node) (*Concurrency, *scalar) {
	c := &Concurrency{OnConflict: events.ConflictQueue}
	var key *scalar
	given := r.mapping(n, "concurrency", []field{
		{"key", func(n ast.Node) { key = r.scalar(n, "concurrency.key", "key: input.customer") }},
		{"onConflict", func(n ast.Node) { c.OnConflict = events.OnConflict(r.oneOf(n, "onConflict", conflictValues)) }},
	})
	r.require(n, given, "concurrency", "key")
	return c, key
}
