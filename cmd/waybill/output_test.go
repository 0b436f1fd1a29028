package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/theory/jsonpath"
)

// Where a command says that ids stand is JSONPath.
func TestNamesAreWellSaid(t *testing.T) {
	root, _ := newRoot()
	seen := 0
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		if flag := cmd.Flags().Lookup("output"); flag != nil {
			if o, is := flag.Value.(*output); is {
				for _, names := range o.names {
					seen++
					path, _, _ := strings.Cut(names, ": ")
					if _, err := jsonpath.Parse(path); err != nil {
						t.Errorf("%s: %v", cmd.CommandPath(), err)
					}
				}
			}
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(root)
	if seen < 30 {
		t.Errorf("%d commands have ids", seen)
	}
}

// An id that cannot be printed as it is would, written otherwise, be that of another order.
func TestNamesThatCannotBePrinted(t *testing.T) {
	clearEnvironment(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"orders":[{"orderId":"a\nb"},{"orderId":"a b"},{"orderId":"a\\u000ab"},{"orderId":"\u001b"}]}`)
	}))
	defer server.Close()
	c := waybill(t, "", "order", "list", "-o", "name", "--server", server.URL)
	if c.code != exitDone || c.out != "a b\na\\u000ab\n" || !strings.HasPrefix(c.errs, "2 ids are left out") {
		t.Errorf("%+v", c)
	}
	waybill(t, "", "order", "list", "-o", "jsonpath=$.orders[0].orderId", "--server", server.URL).want(t, exitDone, `a\u000ab`+"\n", "")
}
