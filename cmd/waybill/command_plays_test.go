package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// TestCommandPlays runs the files of testdata/commands. "answer PATH [STATUS]" says what the server
// answers from then on at a path, and "run" runs a command line of words without spaces;
// ” is an empty one.
func TestCommandPlays(t *testing.T) {
	clearEnvironment(t)
	datadriven.Walk(t, "testdata/commands", func(t *testing.T, path string) {
		type answer struct {
			status int
			body   string
		}
		answers := make(map[string]answer)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			a, found := answers[r.URL.Path]
			if !found {
				a = answer{http.StatusNotFound, fmt.Sprintf(`{"status":404,"detail":"there is no %s"}`, r.URL.Path)}
			}
			w.WriteHeader(a.status)
			fmt.Fprint(w, a.body)
		}))
		defer server.Close()
		t.Setenv("WAYBILL_SERVER", server.URL)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "answer":
				status := http.StatusOK
				if len(d.CmdArgs) > 1 {
					var err error
					if status, err = strconv.Atoi(d.CmdArgs[1].Key); err != nil {
						t.Fatal(err)
					}
				}
				answers[d.CmdArgs[0].Key] = answer{status, d.Input}
				return ""
			case "run":
				args := strings.Fields(d.Input)
				for i, arg := range args {
					if arg == "''" {
						args[i] = ""
					}
				}
				return strings.ReplaceAll(ending(waybill(t, "", args...)), server.URL, "SERVER")
			}
			t.Fatalf("unknown command %q", d.Cmd)
			return ""
		})
	})
}
