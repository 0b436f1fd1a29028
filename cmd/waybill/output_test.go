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

// Members come as they are written; slices, unions and descendants as RFC 9535 has them.
func TestWhatAPathSelectsIsInOrder(t *testing.T) {
	const document = `{"z":{"y":1,"b":[2,3],"x":{"q":4,"c":5}},"a":6,"m":[7,8,9],"k":10,"j":11,"i":12,"h":13,"a":14}`
	for expression, want := range map[string]string{
		"$.*":              `[{"b":[2,3],"x":{"c":5,"q":4},"y":1} 14 [7,8,9] 10 11 12 13]`,
		"$[?@ > 9]":        "[14 10 11 12 13]",
		"$['i','z'].*":     `[1 [2,3] {"c":5,"q":4}]`,
		"$['k','a','z'].q": "[]",
		"$['k','a']":       "[10 14]",
		"$.m[::-1]":        "[9 8 7]",
		"$.m[2,0,-2]":      "[9 7 8]",
		"$..[?@ < 8]":      "[1 2 3 4 5 7]",
		"$..x":             `[{"c":5,"q":4}]`,
		"$.z..*":           `[1 [2,3] {"c":5,"q":4} 2 3 4 5]`,
		"$":                "[" + `{"a":14,"h":13,"i":12,"j":11,"k":10,"m":[7,8,9],"z":{"b":[2,3],"x":{"c":5,"q":4},"y":1}}` + "]",
	} {
		all, err := selects(jsonpath.MustParse(expression), []byte(document))
		texts := make([]string, len(all))
		for i := range all {
			if texts[i], err = nodeText(all[i]); err != nil {
				t.Fatal(err)
			}
		}
		if got := fmt.Sprint(texts); err != nil || got != want {
			t.Errorf("%s: %s, %v, and not %s", expression, got, err, want)
		}
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
