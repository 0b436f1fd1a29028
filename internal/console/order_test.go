package console

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/internal/codec"
)

// Of what waits for decisions that page alone is decoded which has what a masked order waits for, and none once the codec has failed.
func TestWhatAnOrderAsksIsDecoded(t *testing.T) {
	approval := func(order, show string) api.Approval {
		return api.Approval{Order: order, Step: "s", Show: json.RawMessage(show)}
	}
	decoder, err := codec.New("http://127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	_, large := decoder.Decode(t.Context(), "", []jsontext.Value{jsontext.Value(`"` + strings.Repeat("x", codec.Most) + `"`)})
	var asked []string
	undecoded := ""
	server := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		page := map[string]api.ApprovalPage{
			"":  {Approvals: []api.Approval{approval("o-2", `"stored"`)}, Next: "b"},
			"b": {Approvals: []api.Approval{approval("o-3", `"stored"`), approval("o-1", `"stored"`)}, Next: "c"},
			"c": {Approvals: []api.Approval{approval("o-1", `"stored"`), approval("o-4", `"stored"`)}},
		}[q.Get("after")]
		asked = append(asked, q.Get("after")+q.Get("decode"))
		if page.Undecoded = undecoded; q.Get("decode") != "" && undecoded == "" {
			for n := range page.Approvals {
				page.Approvals[n].Show = json.RawMessage(`"plain"`)
			}
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(page); err != nil {
			t.Error(err)
		}
	})
	for name, c := range map[string]struct {
		no, fails string
		masked    bool
		want      []string
		show      string
	}{
		"whose payloads are seen": {want: []string{"", "b", "c"}, show: `"own"`},
		"that is masked":          {masked: true, want: []string{"", "b", "btrue", "c", "ctrue"}, show: `"plain"`},
		"and a codec that fails":  {masked: true, fails: "it is away", want: []string{"", "b", "btrue", "c"}, show: `"stored"`},
		"and too much before":     {masked: true, no: large.Error(), want: []string{"", "b", "btrue", "c", "ctrue"}, show: `"plain"`},
		"and one that has failed": {masked: true, no: "it is away", want: []string{"", "b", "c"}, show: `"stored"`},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/orders/o-1", http.NoBody)
		asked, undecoded = nil, c.fails
		v := &visit{Request: r, client: api.Inside(server, r, ""), decodes: true, undecoded: c.no}
		o := &api.Order{Steps: []api.Step{{Name: "s", Input: json.RawMessage(`"own"`)}}}
		o.OrderID, o.Masked = "o-1", c.masked
		all := v.asked(o, 2)
		if !slices.Equal(asked, c.want) || len(all) != 2 || v.undecoded != c.no+c.fails {
			t.Errorf("an order %s: asked %q, found %d, undecoded %q", name, asked, len(all), v.undecoded)
		}
		for _, a := range all {
			if string(a.Show) != c.show {
				t.Errorf("an order %s is shown as %s", name, a.Show)
			}
		}
	}
}
