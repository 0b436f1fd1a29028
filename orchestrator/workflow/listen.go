package workflow

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"github.com/waybill-dev/waybill/events"
)

// Listen is what a step waits for that asks nobody: signals.
type Listen struct {
	How   string   // [events.ListenOne], [events.ListenAny] or [events.ListenAll]
	Names []string // of the signals, sorted: one with [events.ListenOne], else 1 to 100
	Count int      // how many signals of the name with [events.ListenOne], 1 to 100; else 1
	// Key is a text, or a number: that of the business under which the step hears them; nil if it hears
	// those for its order.
	Key *Expression
}

// KeyOf is the key under which the step hears signals.
//
// The error says why the expression failed, in at most 1 KiB.
func (l *Listen) KeyOf(s Scope) (key string, err error) { return l.Key.keyOf(s) }

// keyOf is what an expression gives that is a key.
func (e *Expression) keyOf(s Scope) (key string, err error) {
	err = e.evaluate(s, func(v ref.Val) error {
		switch v := v.(type) {
		case types.String:
			key = string(v)
		case types.Int:
			key = strconv.FormatInt(int64(v), 10)
		case types.Uint:
			key = strconv.FormatUint(uint64(v), 10)
		case types.Double:
			if math.Trunc(float64(v)) != float64(v) || math.Abs(float64(v)) >= 1<<53 {
				return fmt.Errorf("it is a text, or a whole number below 2^53, this is %s", strconv.FormatFloat(float64(v), 'f', -1, 64))
			}
			key = strconv.FormatInt(int64(v), 10)
		default:
			return fmt.Errorf("it is a text or a whole number, this is %s", describe(v))
		}
		return events.CheckSignalKey(key)
	})
	return key, err
}

// Listens says that some step waits for signals of this name that are for its order.
func (w *Workflow) Listens(signal string) bool {
	return slices.ContainsFunc(w.Steps, func(s Step) bool {
		return s.Listen != nil && s.Listen.Key == nil && slices.Contains(s.Listen.Names, signal)
	})
}

// maxSignals is how many signals a step may wait for.
const maxSignals = 100

// listen reads what a step waits for: the name of a signal, or a mapping that says how many of one
// name, or any or all of several.
func (r *reader) listen(n ast.Node, d *draft) {
	d.Listen = &Listen{How: events.ListenOne, Count: 1}
	m, ok := n.(*ast.MappingNode)
	if !ok {
		d.Listen.Names = r.signal(n, nil)
		return
	}
	several := func(how string) func(ast.Node) {
		return func(n ast.Node) {
			d.Listen.How = how
			entries, ok := r.list(n, how)
			switch {
			case !ok:
				return
			case len(entries) == 0:
				r.add(start(n), "%s names no signal; write one", how)
			case len(entries) > maxSignals:
				r.add(start(entries[maxSignals]), "%s names %d signals; at most %d are allowed", how, len(entries), maxSignals)
				return
			}
			for _, entry := range entries {
				d.Listen.Names = r.signal(entry, d.Listen.Names)
			}
			slices.Sort(d.Listen.Names) // so that files that mean the same have the same canonical form
		}
	}
	given := r.mapping(n, "listen", []field{
		{events.ListenOne, func(n ast.Node) { d.Listen.Names = r.signal(n, nil) }},
		{"count", func(n ast.Node) { r.whole(n, "count", maxSignals, &d.Listen.Count) }},
		{events.ListenAny, several(events.ListenAny)},
		{events.ListenAll, several(events.ListenAll)},
	})
	var hows []string
	for _, how := range []string{events.ListenOne, events.ListenAny, events.ListenAll} {
		if given[how] != nil {
			hows = append(hows, how)
		}
	}
	switch {
	case given == nil:
	case len(hows) > 1:
		r.add(given[hows[1]], "a step listens for one signal, for any or for all of several; remove %q or %q", hows[0], hows[1])
	case len(hows) == 0:
		r.add(start(m), "listen names no signal; write \"one\", \"any\" or \"all\"")
	case given["count"] != nil && hows[0] != events.ListenOne:
		r.add(given["count"], "count is of the signals of one name; remove it, or write \"one\"")
	}
}

// signal reads the name of a signal that is not among the others, and adds it to them.
func (r *reader) signal(n ast.Node, others []string) []string {
	name, at := r.checked(n, "the signal's name", CheckSignal)
	if slices.Contains(others, name) {
		r.add(at, "the signal %s is named twice in this list; remove one", quote(name))
		return others
	}
	return append(others, name)
}

// listening is a step that waits for signals: what is said of an operation has no effect there, but
// for the timeout, without which it waits for ever.
func (r *reader) listening(given map[string]*token.Token, d draft) draft {
	r.only(given, "listen", "a step that listens asks nobody", "timeout")
	d.Step = Step{Name: d.Name, Listen: d.Listen, Timeout: r.patience(given, &d, "nobody is still at it while a step listens")}
	d.with, d.undoWith, d.enough = nil, nil, nil
	return d
}
