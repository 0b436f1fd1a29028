package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/waybill-dev/waybill/test/reliability"
)

// fate says in a few words what became of a mutant.
func (r *result) fate() string {
	switch {
	case r.err != nil:
		return "ERROR"
	case r.test != "" && r.survives != "":
		return "found, and is listed as a survivor"
	case r.test != "":
		return "found"
	case r.survives != "":
		return "survives, as known"
	}
	return "SURVIVES"
}

func (r *result) by() string {
	if r.test == "" {
		return ""
	}
	return r.suite + ": " + r.test
}

func (r *result) line() string {
	line := fmt.Sprintf("mutant   %-40s %s  %s  %s", r.id, r.fate(), r.by(), r.took.Round(100*time.Millisecond))
	if r.err != nil {
		line += "\n" + r.err.Error()
	}
	return line
}

// right says that it is as the list says.
func (r *result) right() bool { return r.err == nil && (r.test != "") == (r.survives == "") }

func table(all []result) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "MUTANT\tFATE\tFOUND BY\tBREAKS")
	for i := range all {
		r := &all[i]
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", r.id, r.fate(), r.by(), r.breaks)
	}
	_ = w.Flush() // a Builder takes everything
	return b.String()
}

func summary(all []result) string {
	count := make(map[string]int)
	var fates []string
	for i := range all {
		fate := all[i].fate()
		if count[fate]++; count[fate] == 1 {
			fates = append(fates, fate)
		}
	}
	for i, fate := range fates {
		fates[i] = fmt.Sprintf("%d %s", count[fate], fate)
	}
	return fmt.Sprintf("%d mutants: %s", len(all), strings.Join(fates, ", "))
}

// verdict is nil if all is as the list says.
func verdict(all []result) error {
	var wrong []error
	for i := range all {
		if r := &all[i]; !r.right() {
			wrong = append(wrong, fmt.Errorf("%s: %s", r.id, r.fate()))
		}
	}
	return errors.Join(wrong...)
}

// record is what became of each mutant of the list when it was last tried: all of them
// take hours, so a run of some leaves of the others what is known.
type record struct {
	mu   sync.Mutex
	list []mutant
	rows map[string]reliability.Figures
}

const (
	survivors = "mutant that survives"
	finds     = "mutant that is found"
)

// newRecord begins with what earlier runs have left.
func newRecord(list []mutant) (*record, error) {
	earlier, err := reliability.Load("mutants")
	if err != nil {
		return nil, err
	}
	r := &record{list: list, rows: make(map[string]reliability.Figures)}
	for _, fate := range []string{survivors, finds} {
		rows, _ := earlier.Get(fate).(reliability.Figures)
		for _, row := range rows {
			if figures, ok := row.Value.(reliability.Figures); ok {
				r.rows[row.Name] = figures
			}
		}
	}
	return r, nil
}

// add notes what became of a mutant, at a commit, and leaves all for docs/reliability.md.
func (r *record) add(ctx context.Context, of *result, commit string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	row := reliability.Figures{{Name: "breaks", Value: of.breaks}}
	switch {
	case of.err != nil:
		row = append(row, reliability.Figure{Name: "why", Value: "it could not be tried"})
	case of.test != "":
		row = append(row, reliability.Figure{Name: "found by", Value: of.by()})
	default:
		row = append(row, reliability.Figure{Name: "why", Value: cmp.Or(of.survives, "no suite finds it yet")})
	}
	r.rows[of.id] = append(row, reliability.Figure{Name: "at", Value: commit})
	return reliability.Save(ctx, "mutants", "make mutants", r.figures())
}

func (r *record) figures() reliability.Figures {
	var found, survived reliability.Figures
	tried := 0
	for i := range r.list {
		id := r.list[i].id
		row := r.rows[id]
		switch {
		case row == nil:
			continue
		case row.Get("why") != nil:
			survived = append(survived, reliability.Figure{Name: id, Value: row})
		default:
			found = append(found, reliability.Figure{Name: id, Value: row})
		}
		tried++
	}
	return reliability.Figures{
		{Name: "mutants", Value: len(r.list)},
		{Name: "tried", Value: tried},
		{Name: "found", Value: len(found)},
		{Name: "not found", Value: len(survived)},
		{Name: survivors, Value: survived},
		{Name: finds, Value: found},
	}
}
