package world

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/waybill-dev/waybill/events"
)

// Lot draws one of n numbers, from 0 on. What it decides is for who reads what
// was drawn.
type Lot func(what string, n int) int

// Drawing says what a workflow is drawn with. Its orders have an input with a
// number n; those that have none fail in some of its expressions. The undo of a
// step that may have been done may fail in them too.
type Drawing struct {
	Name    string
	Version int
	Agents  []string
	Timeout time.Duration // the shortest of an attempt
	Pause   time.Duration // the shortest between attempts
	Level   int           // the newest of the language that it uses; 0, whatever there is
	Until   time.Time     // before which some of its sleeps end, a little later
	Orders  []string      // workflows whose orders do some of its steps
	Keeps   bool          // some orders are forgotten after their end
	Pages   bool          // an agent lists the items of some steps, page by page
	Topics  []string      // to which some of its steps give events; without any none does
	Limits  []string      // under which some of its steps ask their agents
	Keyed   bool          // some steps listen under keys, those of [Key]
	Turns   bool          // one order may be open at a time under a key

	optional, asleep map[string]bool // steps without which an order goes on, and that ask nobody
}

// keyOfSignals is the key under which steps of a [Drawing] with Keyed listen.
const keyOfSignals = `"k-" + string(input.n % 10)`

// Key is one under which such steps listen.
func Key(n int64) string { return fmt.Sprint("k-", n%10) }

// Flow draws the file of a workflow: a random graph, and whatever a workflow can
// say of its steps.
func (d *Drawing) Flow(lot Lot) string {
	var file strings.Builder
	d.optional, d.asleep = make(map[string]bool), make(map[string]bool)
	fmt.Fprintf(&file, "workflow: %s\nversion: %d\n", d.Name, d.Version)
	if lot("late", 4) == 0 {
		fmt.Fprintf(&file, "deadline: %s\n", lot.times("deadline", d.Timeout, 1, 60))
	}
	if lot("overdue", 2) == 1 {
		file.WriteString("overdue: compensate\n")
	}
	if d.Keeps && (lot("kept", 3) == 2 || len(d.Orders) > 0 && lot("family", 2) == 1) { // items are forgotten rarely enough
		fmt.Fprintf(&file, "keep: %s\n", lot.of("keep", "1s", "10s", "5m"))
	}
	if lot("strict", 8) == 7 {
		file.WriteString("input: {type: object}\n")
	}
	if d.Turns && lot("turns", 2) == 1 {
		fmt.Fprintf(&file, "concurrency: {key: 'input.n %% %d', onConflict: %s}\n", 10+lot("keys", 20), lot.of("on conflict", "queue", "reject", "cancel-other"))
	}
	if (d.Level == 0 || d.Level >= 4) && lot("searched", 4) == 3 {
		fmt.Fprintf(&file, "search: %s\n", lot.of("search", "[n]", "{n: 'input.n > 2', all: input}", `{none: input.none, text: '"n: " + string(input.n)'}`))
	}
	reversed := lot("order", 4) == 3 // a step may stand above what it comes after
	var steps []string
	for i := range 1 + lot("steps", 5) {
		steps = append(steps, d.step(lot, i, reversed))
	}
	if reversed {
		slices.Reverse(steps)
	}
	return file.String() + "steps:\n" + strings.Join(steps, "")
}

func (d *Drawing) step(lot Lot, i int, reversed bool) string {
	var step strings.Builder
	name := fmt.Sprint("s", i)
	if len(d.Orders) > 0 && lot("orders", 3) > 0 {
		return d.order(&step, lot, name, i, reversed)
	}
	if i > 0 && (d.Level == 0 || d.Level >= 3) && lot("sleeps", 8) == 7 {
		d.asleep[name] = true
		fmt.Fprintf(&step, "  - {name: %s, sleep: %s", name, d.sleep(lot))
		d.after(&step, lot, i, reversed)
		if lot("when", 6) == 5 {
			step.WriteString(", when: 'input.n > 1'")
		}
		return step.String() + "}\n"
	}
	if i > 0 && (d.Level == 0 || d.Level >= 4) && lot("listens", 6) == 5 {
		fmt.Fprintf(&step, "  - {name: %s, listen: %s, timeout: %s", name,
			lot.of("listen", "go", "stop", "{one: go, count: 2}", "{any: [go, stop]}", "{all: [go, stop]}"), lot.times("timeout", d.Timeout, 1, 20))
		if d.Keyed && lot("keyed", 2) == 1 {
			fmt.Fprintf(&step, ", key: '%s'", keyOfSignals)
		}
		d.after(&step, lot, i, reversed)
		if lot("when", 6) == 5 {
			step.WriteString(", when: 'input.n > 1'")
		}
		return step.String() + "}\n"
	}
	if i > 0 && (d.Level == 0 || d.Level >= 4) && lot("approves", 6) == 5 {
		fmt.Fprintf(&step, "  - {name: %s, approve: {roles: [clerk]%s%s%s}, timeout: %s", name,
			lot.of("people", "", "", ", count: 2"), lot.of("shown", "", ", show: input", ", show: input.n"),
			lot.of("due", "", fmt.Sprintf(", due: %v, escalate: [board]", d.Timeout), fmt.Sprintf(", due: %v", d.Timeout)),
			lot.times("timeout", d.Timeout, 2, 20))
		d.after(&step, lot, i, reversed)
		if lot("when", 6) == 5 {
			step.WriteString(", when: 'input.n > 1'")
		}
		return step.String() + "}\n"
	}
	if i > 0 && (d.Level == 0 || d.Level >= 4) && lot("raises", 6) == 5 {
		d.asleep[name] = true
		fmt.Fprintf(&step, "  - {name: %s, raise: {code: c-%d%s, compensate: %t}", name, i,
			lot.of("message", "", ", message: '\"n is \" + string(input.n)'", ", message: input.why"), lot("compensate", 2) == 1)
		d.after(&step, lot, i, reversed)
		if lot("when", 2) == 1 {
			fmt.Fprintf(&step, ", when: '%s'", lot.of("when is", "input.n > 1", "input.n % 3 != 0", "false"))
		}
		return step.String() + "}\n"
	}
	if i > 0 && len(d.Topics) > 0 && lot("emits", 10) == 9 {
		d.asleep[name] = true
		exhausted := lot.of("exhausted", "error", "compensate", "continue")
		d.optional[name] = exhausted == "continue"
		fmt.Fprintf(&step, "  - {name: %s, emit: {topic: %s, type: com.acme.told%s%s}, timeout: %s, retry: {attempts: %d, backoff: %s}, exhausted: %s", name,
			lot.of("topic", d.Topics...), lot.of("key", "", ", key: '\"k\"'", ", key: string(input.n)"), lot.of("data", "", ", data: input.n"),
			lot.times("timeout", d.Timeout, 1, 10), 1+lot("attempts", 3), lot.times("backoff", d.Pause, 0, 6), exhausted)
		d.after(&step, lot, i, reversed)
		if lot("when", 6) == 5 {
			step.WriteString(", when: 'input.n > 1'")
		}
		return step.String() + "}\n"
	}
	fmt.Fprintf(&step, "  - {name: %s, agent: %s, timeout: %s, retry: {attempts: %d, backoff: %s, multiplier: %d", name, lot.of("agent", d.Agents...),
		d.timeout(lot), 1+lot("attempts", 3), lot.times("backoff", d.Pause, 0, 6), 1+lot("multiplier", 3))
	if lot("jitters", 3) == 0 {
		fmt.Fprintf(&step, ", jitter: %s", lot.of("jitter", "0.3", "1"))
	}
	if d.Level == 0 || d.Level >= 3 {
		switch lot("codes", 8) {
		case 6:
			step.WriteString(", never: [expired, conflict]")
		case 7:
			step.WriteString(", atOnce: [expired, conflict]")
		}
	}
	step.WriteString("}")
	if d.Level != 1 && lot("queues", 3) == 0 {
		fmt.Fprintf(&step, ", queue: %s", lot.times("queue", d.Timeout, 1, 4))
	}
	if len(d.Limits) > 0 && lot("limited", 4) == 3 {
		fmt.Fprintf(&step, ", limit: {name: %s, key: string(input.n %% 3)}", lot.of("limit", d.Limits...))
	}
	after := d.after(&step, lot, i, reversed)
	undo := lot("undo", 4) > 0
	switch {
	case (d.Level == 0 || d.Level >= 3) && lot("repeats", 8) == 7:
		undo = false
		until := lot.of("until", "input.n > 2", "has(steps."+name+".output.n)", "steps."+name+".output.n > 1", "false")
		fmt.Fprintf(&step, ", repeat: {until: '%s', every: %s, max: %d}", until, lot.times("every", d.Pause, 1, 4), 1+lot("max", 4))
	case undo:
		step.WriteString(", undo: back")
	}
	exhausts := []string{"error", "compensate", "compensate", "wait"}
	if d.Level == 0 || d.Level >= 3 {
		exhausts[2] = "continue"
	}
	exhausted := lot.of("exhausted", exhausts...)
	fmt.Fprintf(&step, ", exhausted: %s", exhausted)
	if exhausted == "continue" {
		d.optional[name] = true
	}
	if exhausted == "wait" {
		fmt.Fprintf(&step, ", wait: {for: %s, rounds: %d}", lot.times("for", d.Pause, 1, 20), 1+lot("rounds", 2))
	}
	d.expressions(&step, lot, name, after, undo)
	return step.String() + "}\n"
}

// order draws a step that another order does.
func (d *Drawing) order(step *strings.Builder, lot Lot, name string, i int, reversed bool) string {
	if (d.Level == 0 || d.Level >= 6) && lot("itemized", 2) == 1 {
		return d.each(step, lot, name, i, reversed)
	}
	fmt.Fprintf(step, "  - {name: %s, order: ", name)
	child, detached := lot.of("child", d.Orders...), lot("awaits", 5) == 4
	if detached {
		fmt.Fprintf(step, "{workflow: %s, await: false%s}", child, lot.of("tells", "", ", replyTo: shop.status"))
	} else {
		step.WriteString(lot.of("version", child, child, fmt.Sprintf("{workflow: %s, version: 1}", child)))
	}
	after := d.after(step, lot, i, reversed)
	if !detached && lot("timed", 3) == 2 {
		fmt.Fprintf(step, ", timeout: %s", lot.times("timeout", d.Timeout, 1, 20))
	}
	exhausted := lot.of("exhausted", "error", "compensate", "continue")
	fmt.Fprintf(step, ", exhausted: %s", exhausted)
	d.optional[name] = exhausted == "continue"
	d.expressions(step, lot, name, after, false)
	return step.String() + "}\n"
}

// each draws a step that is done for each item of a list, which may be empty, or none.
func (d *Drawing) each(step *strings.Builder, lot Lot, name string, i int, reversed bool) string {
	items := lot.of("items", `'[input, {"n": 2}, {"n": 3}]'`, `'[{"n": 1}, input, 7, null]'`, `'[input]'`, `'[]'`, `'input.list'`)
	if d.Pages && items == `'[input]'` { // no draw of its own, so that other histories stay what they are
		items = fmt.Sprintf("{agent: %s, do: list, with: input.n, timeout: %s, retry: {attempts: 2, backoff: %s}}", d.Agents[0], 4*d.Timeout, d.Pause)
	}
	fmt.Fprintf(step, "  - {name: %s, each: {items: %s, ", name, items)
	if lot("inner", 3) == 2 {
		fmt.Fprintf(step, "steps: [{name: inner, agent: %s, timeout: %s, retry: {attempts: %d, backoff: %s}, undo: back, exhausted: %s}]", lot.of("agent", d.Agents...),
			lot.times("timeout", d.Timeout, 1, 10), 1+lot("attempts", 2), lot.times("backoff", d.Pause, 0, 6), lot.of("inner exhausted", "compensate", "error"))
	} else {
		fmt.Fprintf(step, "order: %s", lot.of("child", d.Orders...))
	}
	fmt.Fprintf(step, ", atOnce: %d, tolerate: %s, onFailure: %s}", 1+lot("at once", 3), lot.of("tolerate", "0", "1", "50%"), lot.of("on failure", "stop", "finish"))
	d.after(step, lot, i, reversed)
	if lot("timed", 3) == 2 {
		fmt.Fprintf(step, ", timeout: %s", lot.times("timeout", d.Timeout, 1, 20))
	}
	exhausted := lot.of("exhausted", "error", "compensate", "continue")
	d.optional[name] = exhausted == "continue"
	fmt.Fprintf(step, ", exhausted: %s", exhausted)
	if lot("when", 6) == 5 {
		step.WriteString(", when: 'input.n > 1'")
	}
	return step.String() + "}\n"
}

// timeout draws how long an attempt has, and how long one whose agent is still at it.
func (d *Drawing) timeout(lot Lot) string {
	after := lot.times("timeout", d.Timeout, 1, 10)
	if (d.Level == 0 || d.Level >= 4) && lot("patient", 3) == 2 {
		return fmt.Sprintf("{after: %s, max: %s}", after, lot.times("longest", after, 2, 6))
	}
	return after.String()
}

// sleep draws how long a step sleeps: of some orders an expression that fails.
func (d *Drawing) sleep(lot Lot) string {
	span := lot.times("slept", d.Pause, 1, 12)
	switch lot("sleep", 6) {
	case 3:
		return fmt.Sprintf(`{for: 'input.n > 2 ? duration("%s") : duration("%s")'}`, span, 2*span)
	case 4:
		return "{until: 'timestamp(\"2020-01-01T00:00:00Z\")'}" // which has passed
	case 5:
		return fmt.Sprintf("{until: 'timestamp(\"%s\") + duration(\"%s\")'}", d.Until.Format(time.RFC3339), 4*span)
	}
	return span.String()
}

// after draws what a step comes after.
func (d *Drawing) after(step *strings.Builder, lot Lot, i int, reversed bool) (after []string) {
	if !reversed && i > 0 && lot("in turn", 4) == 3 {
		return []string{fmt.Sprint("s", i-1)} // which stands above, and so need not be named
	}
	for from := range i {
		if lot("after", 2) == 1 {
			after = append(after, fmt.Sprint("s", from))
		}
	}
	fmt.Fprintf(step, ", after: [%s]", strings.Join(after, ", "))
	return after
}

// expressions draws what a step computes.
func (d *Drawing) expressions(step *strings.Builder, lot Lot, name string, after []string, undo bool) {
	draw := func(key string, choices ...string) {
		if lot(key, 6) == 0 {
			fmt.Fprintf(step, ", %s: '%s'", key, lot.of(key+" is", choices...))
		}
	}
	when, with := []string{"input != null", "true", "input.n > 1", "input.n % 3 != 0"}, []string{`{"a": input}`, "null", "input"}
	if len(after) > 0 {
		when = append(when, fmt.Sprintf(`steps.%s.state == "completed"`, after[0]))
		when = append(when, fmt.Sprintf(`steps.%s.state == "skipped"`, after[0]))
		when = append(when, fmt.Sprintf(`steps.%s.state != "timed-out"`, after[0]))
		if d.optional[after[0]] {
			when = append(when, fmt.Sprintf(`has(steps.%s.error) && steps.%s.error.code == "expired"`, after[0], after[0]))
		}
		with = append(with, `{"n": input.n, "twice": input.n * 2}`, "input.n")
		if !d.asleep[after[0]] {
			with = append(with, fmt.Sprintf("steps.%s.output", after[0]))
		}
	}
	draw("when", when...)
	draw("with", with...)
	if undo {
		draw("undoWith", fmt.Sprintf(`{"was": steps.%s.output}`, name), fmt.Sprintf("steps.%s.output", name), "input.n")
	}
}

// of draws one of some.
func (lot Lot) of(what string, some ...string) string { return some[lot(what, len(some))] }

// times draws how many times a duration.
func (lot Lot) times(what string, d time.Duration, least, most int) time.Duration {
	return d * time.Duration(least+lot(what, most-least+1))
}

// Overlaps are what schedules may say of a tick while an order of one before has not ended.
var Overlaps = []string{events.OverlapSkip, events.OverlapQueueOne, events.OverlapQueue, events.OverlapCancel, events.OverlapAllow}
