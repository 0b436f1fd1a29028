package main

import (
	"errors"
	"fmt"
	"strings"
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

// figures are those of docs/reliability.md.
func figures(all []result, took time.Duration) reliability.Figures {
	var found, survived reliability.Figures
	for i := range all {
		r := &all[i]
		breaks := reliability.Figure{Name: "breaks", Value: r.breaks}
		switch {
		case r.err != nil:
			survived = append(survived, reliability.Figure{Name: r.id, Value: reliability.Figures{breaks, {Name: "why", Value: "it could not be tried"}}})
		case r.test != "":
			found = append(found, reliability.Figure{Name: r.id, Value: reliability.Figures{breaks, {Name: "found by", Value: r.by()}}})
		default:
			why := r.survives
			if why == "" {
				why = "no suite finds it yet"
			}
			survived = append(survived, reliability.Figure{Name: r.id, Value: reliability.Figures{breaks, {Name: "why", Value: why}}})
		}
	}
	return reliability.Figures{
		{Name: "mutants", Value: len(all)},
		{Name: "found", Value: len(found)},
		{Name: "not found", Value: len(survived)},
		{Name: "took", Value: took.Round(time.Second).String()},
		{Name: "mutant that survives", Value: survived},
		{Name: "mutant that is found", Value: found},
	}
}
