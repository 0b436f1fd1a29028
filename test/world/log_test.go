package world

import (
	"fmt"
	"sync"
	"testing"
)

// A log has every line whole, and who listens can read it.
func TestLog(t *testing.T) {
	heard := 0
	log := &Log{}
	log.Heard = func() { heard = len(log.String()) }
	fmt.Fprint(log, "one\n")
	if heard != len("one\n") {
		t.Errorf("who listens reads %d bytes", heard)
	}
	log.Heard = nil
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() { fmt.Fprint(log, "more\n") })
	}
	all.Wait()
	if len(log.String()) != len("one\n")+10*len("more\n") {
		t.Errorf("it has %q", log)
	}
}
