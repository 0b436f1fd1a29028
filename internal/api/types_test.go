package api

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/waybill-dev/waybill/projections"
)

// At which steps an order stands is told of each, also of one that stands at none; what a server of before said nothing of is
// nothing, and not that.
func TestStandsAtIsToldAlways(t *testing.T) {
	ended := summaryOf(0, &projections.Order{ID: "o-1", State: projections.Processed}, time.Now())
	said, err := encodeSent(ended)
	if err != nil || !strings.Contains(string(said), `"standsAt":[],"standsAtAll":0,`) {
		t.Errorf("%s, %v", said, err)
	}
	of := func(o *Summary) string {
		said, err := encodeSent(o)
		return fmt.Sprintf("%s, %v", said, err)
	}
	var before, now Summary
	if err := json.Unmarshal([]byte(`{"orderId":"o-1"}`), &before); err != nil || strings.Contains(of(&before), "standsAt") {
		t.Errorf("of a server that says nothing of it: %s, %v", of(&before), err)
	}
	if err := json.Unmarshal(said, &now); err != nil || of(&now) != string(said)+", <nil>" {
		t.Errorf("of one that does: %s, %v", of(&now), err)
	}
	schemas := huma.NewMapRegistry("#/", huma.DefaultSchemaNamer)
	schema := schemas.SchemaFromRef(schemas.Schema(reflect.TypeFor[Summary](), true, "").Ref)
	for _, name := range []string{"standsAt", "standsAtAll"} {
		if p := schema.Properties[name]; !slices.Contains(schema.Required, name) || p == nil || p.Nullable {
			t.Errorf("OpenAPI does not say that there is always %s: %+v", name, p)
		}
	}
}
