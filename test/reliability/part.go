// Package reliability keeps what was broken on purpose, how often, and what
// came of it. Each part of docs/reliability.md is a test of its own, which
// leaves its figures in a file; the program in page makes the page of them.
package reliability

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// Directory is the variable of the environment that says where parts leave their
// figures. Without it they leave none.
const Directory = "WAYBILL_RESULTS"

// Figures are a JSON object whose members keep their order. A value is a number,
// a text, a truth, or figures.
type Figures []Figure

// Figure is one of them.
type Figure struct {
	Name  string
	Value any
}

// Get returns the value of a name, nil if there is none.
func (f Figures) Get(name string) any {
	if i := slices.IndexFunc(f, func(m Figure) bool { return m.Name == name }); i >= 0 {
		return f[i].Value
	}
	return nil
}

// MarshalJSON writes the figures as an object.
func (f Figures) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range f {
		if i > 0 {
			b.WriteByte(',')
		}
		name, err := json.Marshal(m.Name)
		if err != nil {
			return nil, fmt.Errorf("name %q: %w", m.Name, err)
		}
		value, err := json.Marshal(m.Value)
		if err != nil {
			return nil, fmt.Errorf("figure %q: %w", m.Name, err)
		}
		b.Write(name)
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// UnmarshalJSON reads an object.
func (f *Figures) UnmarshalJSON(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if first, err := d.Token(); err != nil || first != json.Delim('{') {
		return errors.Join(err, fmt.Errorf("%v is no object", first))
	}
	all, err := members(d)
	*f = all
	return err
}

func members(d *json.Decoder) (Figures, error) {
	all := Figures{}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, err
		}
		value, err := d.Token()
		if err != nil {
			return nil, err
		}
		switch value {
		case json.Delim('{'):
			if value, err = members(d); err != nil {
				return nil, err
			}
		case json.Delim('['):
			return nil, fmt.Errorf("figure %v is a list", name)
		}
		all = append(all, Figure{fmt.Sprint(name), value})
	}
	_, err := d.Token() // the end
	return all, err
}

// Write leaves the figures of a part, if they are wanted. Of what is lost,
// doubled or stuck, a part that counts nothing of its own has none, unless its
// test has failed.
func Write(t testing.TB, name, command string, figures Figures) {
	t.Helper()
	var all Figures
	for _, wrong := range Wrong {
		if figures.Get(wrong) == nil {
			all = append(all, Figure{wrong, none(t.Failed())})
		}
	}
	if err := Save(t.Context(), name, command, append(all, figures...)); err != nil {
		t.Error(err)
	}
}

// Save is [Write] for a part that is no test, and of which nothing is lost.
func Save(ctx context.Context, name, command string, figures Figures) error {
	dir := os.Getenv(Directory)
	if dir == "" {
		return nil
	}
	all := Figures{
		{"date", time.Now().UTC().Format(time.DateOnly)},
		{"commit", Commit(ctx)},
		{"command", command},
		{"machine", Machine()},
		{"versions", Versions(ctx)},
	}
	text, err := json.MarshalIndent(append(all, figures...), "", "  ")
	if err == nil {
		err = os.MkdirAll(dir, 0o750) //nolint:gosec // as below
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name+".json"), append(text, '\n'), 0o600) //nolint:gosec // who runs the part says where
	}
	if err != nil {
		return fmt.Errorf("the figures of %s: %w", name, err)
	}
	return nil
}

// Load returns the figures that [Save] has left, none if there are none or they are not
// wanted.
func Load(name string) (Figures, error) {
	dir := os.Getenv(Directory)
	if dir == "" {
		return nil, nil
	}
	text, err := os.ReadFile(filepath.Join(dir, name+".json")) //nolint:gosec // who runs the part says where
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var all Figures
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil {
		return nil, fmt.Errorf("the figures of %s: %w", name, err)
	}
	return all, nil
}

// Wrong is what must be nought of every part.
var Wrong = []string{"lost", "doubled", "stuck", "other rules broken"}

func none(failed bool) any {
	if failed {
		return "not nought"
	}
	return 0
}

// Times says how long something took, as a row of a table.
func Times(all []time.Duration) Figures {
	row := Figures{{"times", len(all)}}
	slices.Sort(all)
	for _, q := range []struct {
		name    string
		percent int
	}{{"p50", 50}, {"p90", 90}, {"p99", 99}, {"most", 100}} {
		text := ""
		if len(all) > 0 {
			text = brief(all[max(0, (len(all)*q.percent+99)/100-1)])
		}
		row = append(row, Figure{q.name, text})
	}
	return row
}

func brief(d time.Duration) string {
	if d < time.Second {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(100 * time.Millisecond).String()
}
