package main

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// asProgram has this process be the program, and not its tests.
const asProgram = "TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	goleak.VerifyTestMain(m)
}
