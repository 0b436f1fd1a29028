package main

import (
	"cmp"
	"os"
	"os/exec"
	"testing"

	"github.com/waybill-dev/waybill/test/kafka"
)

// Whatever schemathesis makes of /openapi.json is answered as that says: by a server that asks nobody who asks, and by one that
// does. The seed is fixed, so that it makes the same each time.
func TestTheServerIsAsOpenAPISays(t *testing.T) {
	program := cmp.Or(os.Getenv("WAYBILL_SCHEMATHESIS"), "schemathesis")
	if _, err := exec.LookPath(program); err != nil {
		kafka.LeaveOut(t, "what schemathesis finds, because it is not here (%v): install it with the requirements in cmd/waybill/testdata/schemathesis.txt, or say with WAYBILL_SCHEMATHESIS where it is", err)
	}
	clearEnvironment(t)
	file, key := accessFile(t, "admin")
	for name, c := range map[string]struct{ server, tool []string }{
		"nobody is asked": {},
		// Who comes with keys that are none is 429 soon, and not 401; TestWhoMayWhat of internal/api asks all operations without one.
		"who asks has a key": {[]string{"--access", file}, []string{"--header", "Authorization: Bearer " + key, "--exclude-checks", "ignored_auth", "--phases", "examples,fuzzing,stateful"}},
	} {
		t.Run(name, func(t *testing.T) {
			server, _, stop := startDev(t, t.TempDir(), c.server...)
			defer stop()
			cmd := exec.CommandContext(t.Context(), program, append([]string{
				"--config-file", "testdata/schemathesis.toml", "run", server + "/openapi.json", "--checks", "all", "--seed", "1", "--max-examples", "2",
				"--continue-on-failure", "--no-color", "--generation-database", "none", "--request-timeout", "60",
			}, c.tool...)...)
			if said, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, said)
			}
		})
	}
}
