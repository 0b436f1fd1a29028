package api

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"

	"github.com/waybill-dev/waybill/orchestrator/workflow"
)

// OpenAPI shows what the bodies and parameters are that people write first, and each example is what its schema takes.
func TestExamples(t *testing.T) {
	s := New(Config{Version: "test"})
	var shown []string
	try := func(name string, schema *huma.Schema, examples []any) {
		for _, example := range examples {
			text, err := json.Marshal(example)
			if err != nil {
				t.Fatal(err)
			}
			var value any
			if err := json.Unmarshal(text, &value); err != nil {
				t.Fatal(err)
			}
			var found huma.ValidateResult
			huma.Validate(s.schemas, schema, huma.NewPathBuffer(nil, 0), huma.ModeWriteToServer, value, &found)
			if len(found.Errors) > 0 {
				t.Errorf("the example of %s, %s, is not as its schema says: %v", name, text, found.Errors)
			}
			shown = append(shown, name)
		}
	}
	for name, schema := range s.schemas.Map() {
		for member, of := range schema.Properties {
			try(name+"."+member, of, of.Examples)
		}
	}
	var spec struct {
		Paths map[string]map[string]struct {
			Parameters []struct {
				Name   string          `json:"name"`
				In     string          `json:"in"`
				Schema json.RawMessage `json:"schema"`
			} `json:"parameters"`
			RequestBody struct {
				Content map[string]struct {
					Example json.RawMessage `json:"example"`
				} `json:"content"`
			} `json:"requestBody"`
		} `json:"paths"`
	}
	if err := json.Unmarshal(send(t, s, http.MethodGet, "/openapi.json", "", "").Body.Bytes(), &spec); err != nil {
		t.Fatal(err)
	}
	for path, methods := range spec.Paths {
		for _, op := range methods {
			for _, p := range op.Parameters {
				if !strings.Contains(string(p.Schema), `"examples"`) {
					continue
				}
				var schema huma.Schema
				text := strings.Replace(string(p.Schema), `["array","null"]`, `"array"`, 1) // huma reads but one type
				if err := json.Unmarshal([]byte(text), &schema); err != nil {
					t.Fatal(err)
				}
				schema.PrecomputeMessages()
				try(p.In+" "+p.Name+" of "+path, &schema, schema.Examples)
			}
		}
	}
	for name := range strings.FieldsSeq("Submission.workflow Submission.input Signal.signal Signal.data KeySignal.signal KeySignal.key KeySignal.id KeySignal.data Retirement.version Retirement.retired Rerun.id Rerun.input Termination.by Termination.note Correction.value") {
		if !slices.Contains(shown, name) {
			t.Errorf("nothing shows what %s is", name)
		}
	}
	for _, name := range []string{"query where of /api/v1/orders", "query since of /api/v1/orders", "query until of /api/v1/orders", "query since of /api/v1/dead-letters", "query wait of /api/v1/orders", "header Prefer of /api/v1/orders", "query wait of /api/v1/orders/{id}"} {
		if !slices.Contains(shown, name) {
			t.Errorf("nothing shows what the %s is", name)
		}
	}
	if _, err := workflow.Parse("example", spec.Paths["/api/v1/workflows"]["post"].RequestBody.Content["application/yaml"].Example); err != nil {
		t.Errorf("the example of a workflow: %v", err)
	}
}
