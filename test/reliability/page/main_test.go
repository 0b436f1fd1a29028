package main

import (
	"os"
	"testing"
)

// Whoever changes the page changes this program, or the figures.
func TestThePageIsMadeOfTheFigures(t *testing.T) {
	all, err := read("../../../docs/reliability")
	if err != nil {
		t.Fatal(err)
	}
	have, err := os.ReadFile("../../../docs/reliability.md")
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != render(all) {
		t.Error("docs/reliability.md is not what the figures say: make reliability PART=none")
	}
}
