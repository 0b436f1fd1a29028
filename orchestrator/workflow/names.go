package workflow

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// How long a name may be, in bytes, and the code of an error, and an operation, in characters.
const (
	maxName      = 100
	maxCode      = 200
	maxOperation = 200
)

// checkName says what is wrong with the name of a workflow or a step. They
// become parts of keys, headers and URLs.
func checkName(name string) error {
	const form = "use lower-case letters, digits and hyphens, the first and last no hyphen"
	switch {
	case name == "":
		return fmt.Errorf("is empty; %s", form)
	case len(name) > maxName:
		return fmt.Errorf("%s has %d bytes; at most %d are allowed", quote(name), len(name), maxName)
	case name[0] == '-' || name[len(name)-1] == '-':
		return fmt.Errorf("%s begins or ends with a hyphen; %s", quote(name), form)
	}
	for _, r := range name {
		if !strings.ContainsRune("abcdefghijklmnopqrstuvwxyz0123456789-", r) {
			return fmt.Errorf("%s holds %q; %s", quote(name), r, form)
		}
	}
	return nil
}

// topical are the characters of the name of a Kafka topic.
const topical = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"

// CheckAgent says what is wrong with the name of an agent. It becomes a part
// of the name of a Kafka topic, and has the form of one.
func CheckAgent(name string) error {
	const form = "it becomes part of a topic's name: use letters, digits, '.', '_' and '-'"
	if name == "." || name == ".." {
		return fmt.Errorf("%q is no name for a topic; %s, and more than dots", name, form)
	}
	return checkTopical(name, form)
}

// CheckSignal says what is wrong with the name of a signal.
func CheckSignal(name string) error {
	return checkTopical(name, "use letters, digits, '.', '_' and '-'")
}

// checkTopical says what is wrong with a name that has the characters of a topic's. The form says
// which these are.
func checkTopical(name, form string) error {
	switch {
	case name == "":
		return fmt.Errorf("is empty; %s", form)
	case len(name) > maxName:
		return fmt.Errorf("%s has %d bytes; at most %d are allowed", quote(name), len(name), maxName)
	}
	for _, r := range name {
		if !strings.ContainsRune(topical, r) {
			return fmt.Errorf("%s holds %q; %s", quote(name), r, form)
		}
	}
	return nil
}

// checkCode says what is wrong with the code of an error, which is an agent's word as an
// operation is; what an agent's code has beyond that is not recorded.
func checkCode(code string) error {
	if code == "" {
		return errors.New("is empty; remove it, or write a code")
	}
	if len(code) > maxCode {
		return fmt.Errorf("%s has %d bytes; at most %d are allowed", quote(code), len(code), maxCode)
	}
	return nil
}

// checkOperation says what is wrong with the name of an operation, of which the file need not say any.
func checkOperation(name string) error {
	err := checkWord(name)
	if name == "" {
		return fmt.Errorf("%w, or leave the key away", err)
	}
	return err
}

// checkWord says what is wrong with a word that means something only to others, such as agents, so any
// script will do.
func checkWord(name string) error {
	const form = "use printable characters and no spaces"
	if name == "" {
		return fmt.Errorf("is empty; %s", form)
	}
	if n := utf8.RuneCountInString(name); n > maxOperation {
		return fmt.Errorf("%s has %d characters; at most %d are allowed", quote(name), n, maxOperation)
	}
	for _, r := range name {
		if r == ' ' || r == utf8.RuneError || !unicode.IsPrint(r) {
			return fmt.Errorf("%s holds %q; %s", quote(name), r, form)
		}
	}
	return nil
}
