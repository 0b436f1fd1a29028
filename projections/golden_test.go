package projections

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/waybill-dev/waybill/events"
)

// A journal is kept for ever, so what a release wrote every later one must read,
// and read the same. testdata/golden has a directory for each release, named by
// its commit:
//
//   - journal.jsonl, all records of a journal as that release wrote them, as
//     `kcat -C -t waybill.journal -e -J` prints them, by partition and offset
//   - orders.jsonl, the state records as that release's `waybill order get -o
//     json` printed them, of all that were known still
//   - states, what the fold makes of the journal; -rewrite writes it, and must
//     change nothing in the directory of a release
//
// A release that adds types of events adds a directory. None is ever changed. In
// ae33b53 deciding panicked, by a fault that was in that build only, until a build
// without it took over. 099af1c has orders that wait for signals, of which one is
// held by such a fault. f8916d4 has all types of events but one: a release of format
// 10 began it, so that its partitions were raised, and what is held there is held
// since Kafka refused what followed.
func TestGoldenJournals(t *testing.T) {
	for _, dir := range goldenJournals(t) {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			datadriven.RunTest(t, filepath.Join(dir, "states"), func(t *testing.T, d *datadriven.TestData) string {
				g := foldGolden(t, filepath.Join(dir, "journal.jsonl"))
				g.compare(filepath.Join(dir, "orders.jsonl"))
				return g.states()
			})
		})
	}
}

func goldenJournals(t *testing.T) (dirs []string) {
	t.Helper()
	dirs, err := filepath.Glob("testdata/golden/*")
	must(t, err)
	if len(dirs) < 5 {
		t.Fatalf("golden journals of %q only", dirs)
	}
	return dirs
}

// A type that no golden journal has could come to be folded in another way unseen.
func TestGoldenJournalsHaveAllTypes(t *testing.T) {
	missing := map[events.Type]string{
		events.WaitRefused: "a thousand waits under one key come before it, which are a megabyte of journal",
	}
	had := make(map[events.Type]bool)
	for _, dir := range goldenJournals(t) {
		for _, r := range readLines[recorded](t, filepath.Join(dir, "journal.jsonl")) {
			e, err := events.Decode[events.Event]([]byte(r.Payload))
			must(t, err)
			had[e.Type] = true
		}
	}
	for _, s := range events.Specs {
		switch reason, excused := missing[s.Type]; {
		case !had[s.Type] && !excused:
			t.Errorf("no golden journal has %s: add one of this release that does, or say why none can", s.Type)
		case had[s.Type] && excused:
			t.Errorf("a golden journal has %s, and it is said that none can: %s", s.Type, reason)
		}
	}
}

// golden is a recorded journal, and what it was folded to.
type golden struct {
	*testing.T
	store      *Store
	partitions int32
	ids        []string
	of         map[string]int32 // the partition of each order
}

// recorded is a line of a recorded journal.
type recorded struct {
	Partition int32    `json:"partition"`
	Offset    int64    `json:"offset"`
	Headers   []string `json:"headers"` // names and values in turn
	Key       *string  `json:"key"`
	Payload   string   `json:"payload"`
}

func foldGolden(t *testing.T, journal string) *golden {
	t.Helper()
	g := &golden{T: t, of: make(map[string]int32)}
	g.store, _ = temporary(t)
	writers := make(map[int32]*Partition)
	for _, r := range readLines[recorded](t, journal) {
		p := writers[r.Partition]
		if p == nil {
			var err error
			p, err = g.store.Partition(r.Partition)
			must(t, err)
			writers[r.Partition] = p
			g.partitions = max(g.partitions, r.Partition+1)
		}
		var header []byte
		for i := 0; i+1 < len(r.Headers); i += 2 {
			if r.Headers[i] == events.HeaderLane {
				header = []byte(r.Headers[i+1])
			}
		}
		if header != nil { // what this release seals has the same bytes
			seal, err := events.DecodeSeal(header)
			must(t, err)
			if again := seal.Append(nil); !bytes.Equal(again, header) {
				t.Fatalf("%s is written as %s", header, again)
			}
		}
		e, err := events.Decode[events.Event]([]byte(r.Payload))
		must(t, err)
		must(t, e.Check())
		must(t, p.Fold(r.Offset, []byte(r.Payload), header))
		if r.Key != nil && !slices.Contains(g.ids, *r.Key) {
			g.ids = append(g.ids, *r.Key)
			g.of[*r.Key] = r.Partition
		}
	}
	for _, p := range writers {
		must(t, p.Flush())
	}
	slices.Sort(g.ids)
	return g
}

func readLines[T any](t *testing.T, file string) []T {
	t.Helper()
	content, err := os.ReadFile(file)
	must(t, err)
	var all []T
	for line := range bytes.Lines(content) {
		var one T
		must(t, json.Unmarshal(line, &one))
		all = append(all, one)
	}
	return all
}

// states prints all that the store has: heads, deadlines and orders. What is
// zero is left out, so that what a later release adds does not show.
func (g *golden) states() string {
	g.Helper()
	var out strings.Builder
	for id := range g.partitions {
		p, err := g.store.Partition(id)
		must(g.T, err)
		fmt.Fprintf(&out, "partition %d: %s\n", id, plain(g.T, p.Head(), jsontext.SpaceAfterComma(true)))
		due, err := p.Due(time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), 1000)
		must(g.T, err)
		for _, d := range due {
			fmt.Fprintf(&out, "  due %s: %s/%s\n", events.AppendTime(nil, d.At), d.Order, d.Step)
		}
	}
	for _, id := range g.ids {
		o, offsets, err := g.store.Order(g.of[id], id)
		switch {
		case errors.Is(err, ErrNotFound): // a schedule began it, and it is forgotten
			fmt.Fprintf(&out, "order %s, in partition %d: nothing is left\n", id, g.of[id])
			continue
		case !errors.Is(err, ErrForgotten):
			must(g.T, err)
		}
		fmt.Fprintf(&out, "order %s, in partition %d at %v\n%s\n", id, g.of[id], offsets, plain(g.T, o, jsontext.WithIndent("  ")))
	}
	return out.String()
}

func plain(t *testing.T, what any, options ...json.Options) []byte {
	t.Helper()
	options = append(options, json.OmitZeroStructFields(true), json.Deterministic(true), json.WithMarshalers(json.JoinMarshalers(json.MarshalToFunc(plainPositions), json.MarshalToFunc(plainDuration))))
	text, err := json.Marshal(what, options...)
	must(t, err)
	return text
}

// plainPositions leaves those out that are 0.
func plainPositions(e *jsontext.Encoder, p events.Positions) error {
	text := strings.NewReplacer(`"orders":0,`, "", `"replies":0,`, "", `,"commands":0`, "").Replace(p.String())
	return e.WriteValue(jsontext.Value(text))
}

// plainDuration writes one as Go does, for JSON has no way of its own.
func plainDuration(e *jsontext.Encoder, d time.Duration) error {
	return e.WriteToken(jsontext.String(d.String()))
}

// told is a state record as a release printed it, as far as the contract goes.
type told struct {
	OrderID      string
	Workflow     string
	Version      int
	ProcessState State
	LockedBy     string
	CompleteBy   time.Time
	FailureCount int
	Held         bool
	Waiting      int
	Input        jsontext.Value
	Output       jsontext.Value
	Steps        []toldStep
}

type toldStep struct {
	Name           string
	State          StepState
	Attempt        int
	CompleteBy     time.Time
	FailureCount   int
	IdempotencyKey string
	Output         jsontext.Value
	Error          *toldError
}

type toldError struct {
	Code, Message string
	Permanent     bool
}

// compare holds the orders against what the release that wrote the journal made
// of them.
func (g *golden) compare(file string) {
	g.Helper()
	all, kept := readOrders(g.T, file), 0
	for _, id := range g.ids {
		switch _, _, err := g.store.Order(g.of[id], id); {
		case errors.Is(err, ErrForgotten), errors.Is(err, ErrNotFound):
		default:
			must(g.T, err)
			kept++
		}
	}
	if len(all) != kept {
		g.Errorf("%d orders of %d", kept, len(all))
	}
	for _, want := range all {
		o, _, err := g.store.Order(g.of[want.OrderID], want.OrderID)
		must(g.T, err)
		have := told{
			Steps:   []toldStep{},
			OrderID: o.ID, Workflow: o.Workflow, Version: o.Version, ProcessState: o.State, LockedBy: o.LockedBy,
			CompleteBy: o.CompleteBy(time.Time{}), FailureCount: o.FailureCount,
			Held: o.Hold != nil, Waiting: len(o.Waiting), Input: compact(g.T, o.Input), Output: compact(g.T, o.Output()),
		}
		for i := range o.Steps {
			s := &o.Steps[i]
			step := toldStep{
				Name: s.Name, State: s.State, Attempt: s.Attempt, FailureCount: s.FailureCount,
				IdempotencyKey: s.IdempotencyKey, Output: compact(g.T, s.Output),
			}
			if step.CompleteBy = s.CompleteBy; s.Error != nil {
				step.Error = &toldError{s.Error.Code, s.Error.Message, s.Error.Permanent}
			}
			have.Steps = append(have.Steps, step)
		}
		if !reflect.DeepEqual(have, want) {
			g.Errorf("order %s is\n%s\nand was\n%s", want.OrderID, plain(g.T, have), plain(g.T, want))
		}
	}
}

func readOrders(t *testing.T, file string) []told {
	t.Helper()
	content, err := os.ReadFile(file)
	must(t, err)
	var all []told
	for line := range bytes.Lines(content) {
		var one told
		must(t, json.Unmarshal(line, &one, json.MatchCaseInsensitiveNames(true)))
		one.Input, one.Output = compact(t, one.Input), compact(t, one.Output)
		for i := range one.Steps {
			one.Steps[i].Output = compact(t, one.Steps[i].Output)
		}
		all = append(all, one)
	}
	return all
}

// compact leaves out what is no part of a value, and takes null for none.
func compact(t *testing.T, v jsontext.Value) jsontext.Value {
	t.Helper()
	if v == nil || v.Kind() == 'n' {
		return nil
	}
	v = v.Clone()
	must(t, v.Compact())
	return v
}
