package events_test

import (
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/waybill-dev/waybill/events"
)

func TestCheckLabels(t *testing.T) {
	many := func(n int) map[string]string {
		labels := make(map[string]string)
		for i := range n {
			labels["n"+strconv.Itoa(i)] = ""
		}
		return labels
	}
	for _, c := range []struct {
		labels map[string]string
		says   string // "" if nothing is wrong
	}{
		{nil, ""},
		{map[string]string{"customer": "c-7", "a": "", "0.b_c-9": "ä, b=c"}, ""},
		{map[string]string{strings.Repeat("a", 63): strings.Repeat("v", 200)}, ""},
		{many(16), ""},
		{many(17), "there are 17 labels; at most 16 are allowed"},
		{map[string]string{"": "x"}, "the name of a label is empty; use a-z"},
		{map[string]string{"Customer": "x"}, `the name of a label is "Customer"; use a-z`},
		{map[string]string{"-a": "x"}, `is "-a"; use a-z`},
		{map[string]string{"a.": "x"}, `is "a."; use a-z`},
		{map[string]string{"a=b": "x"}, `is "a=b"; use a-z`},
		{map[string]string{"\xff": "x"}, "is \"\uFFFD\"; use a-z"},
		{map[string]string{strings.Repeat("a", 64): "x"}, "has 64 bytes; at most 63 are allowed"},
		{map[string]string{"a": strings.Repeat("v", 201)}, "the label a has a value of 201 bytes; at most 200 are allowed"},
		{map[string]string{"a": "x\x00"}, `the label a has the value "x\x00", with a control character; leave it out`},
		{map[string]string{"a": "x\u0085"}, "with a control character"},
		{map[string]string{"a": "\xff"}, "the label a has a value that is not UTF-8"},
		{map[string]string{"b": "\n", "a": "\n", "c": "\n"}, "the label a has"},
	} {
		switch err := events.CheckLabels(c.labels); {
		case c.says == "" && err != nil, c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)):
			t.Errorf("%q: %v, want %q", c.labels, err, c.says)
		}
	}
}

// Any text becomes the value of a label: one that may be, and as much of the text as fits.
func TestLabelValue(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "c-7": "c-7", "a\nb\x00": "a b ", strings.Repeat("v", 1<<20): strings.Repeat("v", 200),
		strings.Repeat("v", 199) + "ä": strings.Repeat("v", 199), strings.Repeat("v", 198) + "ä": strings.Repeat("v", 198) + "ä",
		strings.Repeat("\u0085", 101) + "😀": strings.Repeat(" ", 100), strings.Repeat("\x80", 201): "",
	} {
		if got := events.LabelValue(text); got != want {
			t.Errorf("%.20q: %q", text, got)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringN(0, 250, -1).Draw(t, "text")
		value := events.LabelValue(text)
		if err := events.CheckLabelValue(value); err != nil {
			t.Fatalf("%q: %q: %v", text, value, err)
		}
	})
}
