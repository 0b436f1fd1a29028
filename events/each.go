package events

import (
	"strconv"
	"strings"
)

// A step may be done for each item of a list, each by an order of its own. To them the order whose
// step it is tells, and is told, under the name of the step and the number of the item.

// MaxItems is how many items a list has at most.
const MaxItems = 100_000

// MaxAtOnce is how many items are under way at a time, at most.
const MaxAtOnce = 1000

// ItemsFailed is the code of a step of whose items more failed than may.
const ItemsFailed = "items-failed"

// ItemStep is what an order does that does an item of a step: pay:i7. Items are counted from 1.
func ItemStep(step string, item int) string { return step + ":i" + strconv.Itoa(item) }

// ItemOf is the step and the number of the item of which [ItemStep] made a name, and whether it did:
// no name of a step holds a colon.
func ItemOf(name string) (step string, item int, ok bool) {
	step, number, found := strings.Cut(name, ":i")
	item, err := strconv.Atoi(number)
	return step, item, found && err == nil && item > 0 && item <= MaxItems && strconv.Itoa(item) == number
}
