package events

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// What an order may be found by, at most: so many labels, of which the name and the value
// have so many bytes.
const (
	MaxLabels     = 16
	MaxLabelName  = 63
	MaxLabelValue = 200
)

// CheckLabels says what is wrong with the first of the labels, by name, nil if nothing.
func CheckLabels(labels map[string]string) error {
	if len(labels) > MaxLabels {
		return fmt.Errorf("there are %d labels; at most %d are allowed", len(labels), MaxLabels)
	}
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		if err := CheckLabelName(name); err != nil {
			return fmt.Errorf("the name of a label %w", err)
		}
		if err := CheckLabelValue(labels[name]); err != nil {
			return fmt.Errorf("the label %s %w", name, err)
		}
	}
	return nil
}

// CheckLabelName says what is wrong with the name of a label, nil if nothing.
func CheckLabelName(name string) error {
	const form = "use a-z, 0-9, '.', '_' and '-', the first and last a letter or digit"
	const inner = "abcdefghijklmnopqrstuvwxyz0123456789._-"
	switch {
	case name == "":
		return fmt.Errorf("is empty; %s", form)
	case len(name) > MaxLabelName:
		return fmt.Errorf("begins with %q and has %d bytes; at most %d are allowed", strings.ToValidUTF8(name[:MaxLabelName], "\uFFFD"), len(name), MaxLabelName)
	case strings.Trim(name, "._-") != name, strings.ContainsFunc(name, func(r rune) bool { return !strings.ContainsRune(inner, r) }):
		return fmt.Errorf("is %q; %s", strings.ToValidUTF8(name, "\uFFFD"), form)
	}
	return nil
}

// CheckLabelValue says what is wrong with the value of a label, nil if nothing.
func CheckLabelValue(value string) error {
	switch {
	case len(value) > MaxLabelValue:
		return fmt.Errorf("has a value of %d bytes; at most %d are allowed", len(value), MaxLabelValue)
	case !utf8.ValidString(value):
		return errors.New("has a value that is not UTF-8")
	case strings.ContainsFunc(value, unicode.IsControl):
		return fmt.Errorf("has the value %q, with a control character; leave it out", value)
	}
	return nil
}

// LabelValue makes a text the value of a label: each control character becomes a space, and
// what is more than fits is cut off.
func LabelValue(text string) string {
	if len(text) > MaxLabelValue {
		n := MaxLabelValue
		for n > 0 && !utf8.RuneStart(text[n]) {
			n--
		}
		text = text[:n]
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
}
