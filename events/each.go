package events

import (
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// A step may be done for each item of a list, each by an order of its own. To them the order whose
// step it is tells, and is told, under the name of the step and the number of the item.

// MaxItems is how many items a list has at most.
const MaxItems = 100_000

// MaxPages is how many pages of items an agent may list, MaxPageItems how many items a page may have, and
// MaxCursor how many bytes its cursor. MaxEmptyPages is how many pages in a row may have none.
const (
	MaxPages      = 100_000
	MaxPageItems  = 10_000
	MaxCursor     = 1 << 10
	MaxEmptyPages = 100
)

// MaxAtOnce is how many items are under way at a time, at most.
const MaxAtOnce = 1000

// ItemsFailed is the code of a step of whose items more failed than may.
const ItemsFailed = "items-failed"

// The codes of a step whose items cannot be had of the agent that lists them.
const (
	NoPage         = "page-failed"     // it does not say what a page has
	BadPage        = "bad-page"        // it says something else
	CursorRepeated = "cursor-repeated" // the pages go round in a circle
	EmptyPages     = "empty-pages"     // page after page has no item
	TooManyPages   = "too-many-pages"  // in all
	TooManyItems   = "too-many-items"  // in all
)

// ItemStep is what an order does that does an item of a step: pay:i7. Items are counted from 1.
func ItemStep(step string, item int) string { return step + ":i" + strconv.Itoa(item) }

// ItemOf is the step and the number of the item of which [ItemStep] made a name, and whether it did:
// no name of a step holds a colon.
func ItemOf(name string) (step string, item int, ok bool) {
	step, number, found := strings.Cut(name, ":i")
	item, err := strconv.Atoi(number)
	return step, item, found && err == nil && item > 0 && item <= MaxItems && strconv.Itoa(item) == number
}

// PageStep is what an order does that asks for a page of a step's items: pay:p2. Pages are counted from 1.
func PageStep(step string, page int) string { return step + ":p" + strconv.Itoa(page) }

// PageOf is the step and the number of the page of which [PageStep] made a name, and whether it did.
func PageOf(name string) (step string, page int, ok bool) {
	step, number, found := strings.Cut(name, ":p")
	page, err := strconv.Atoi(number)
	return step, page, found && err == nil && page > 0 && strconv.Itoa(page) == number
}

// PageRequest is what the agent gets as input that lists the items of a step.
type PageRequest struct {
	// Input is what the workflow makes of the order, or the order's input.
	Input jsontext.Value `json:"input,omitzero"`
	// Cursor is that of the page before, empty for the first.
	Cursor string `json:"cursor,omitzero"`
}

// Append appends the request's JSON.
func (r *PageRequest) Append(dst []byte) []byte {
	o := open(dst)
	o.raw("input", r.Input)
	o.text("cursor", r.Cursor)
	return o.end()
}
