package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waybill-dev/waybill/orchestrator"
	"github.com/waybill-dev/waybill/test/oracle"
	"github.com/waybill-dev/waybill/test/waybill"
)

// S4: whatever lists orders, or what is beside them, says of which partitions it has none: those that another instance
// keeps, and those of which the journal is not read to its end. Which answers are such is said by their schema.
func TestEveryListSaysWhatItLeavesOut(t *testing.T) {
	w := waybill.New(t)
	var instances [2]*waybill.Instance
	for n := range instances {
		instances[n] = w.Begin(fmt.Sprintf("i-%d", n+1), t.TempDir(), func(cfg *orchestrator.Config) { cfg.Standby = orchestrator.StandbyOwned })
	}
	s := &stage{T: t, server: New(Config{Version: "test", Metrics: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler)}), instance: instances[0].Instance, outside: w}
	s.listen()
	s.server.Attach(s.instance)
	oracle.Until(t, "each instance serves its part of the partitions", func() error {
		mine, others := instances[0].Owned(), instances[1].Owned()
		if mine == 0 || others == 0 || mine+others != waybill.Partitions {
			return fmt.Errorf("one has %d partitions, and the other %d", mine, others)
		}
		return errors.Join(instances[0].Ready(), instances[1].Ready())
	})

	w.Register(instances[0], "workflow: nap\nsteps: [{name: nap, sleep: 1h}]\n")
	act := s.prepare(&BulkRequest{Command: "cancel", Filter: BulkFilter{State: "Error"}})
	known := strings.NewReplacer("{name}", "nap", "{id}", act.ID, "/keys", "/keys?key=k")
	elsewhere := s.instance.Elsewhere()
	tried := 0
	for _, p := range s.leavesOut() {
		status, _, body := s.ask(request{path: known.Replace(p)})
		var said LeftOut
		if err := json.Unmarshal([]byte(body), &said); err != nil || status != 200 {
			t.Errorf("%s: %d %s", p, status, body)
			continue
		}
		if !reflect.DeepEqual(said, LeftOut{Elsewhere: elsewhere}) {
			t.Errorf("%s says that it leaves %+v out, and of %v nothing is known here", p, said, elsewhere)
		}
		tried++
	}
	if tried < 9 {
		t.Errorf("%d lists were asked for", tried)
	}
}

// leavesOut are the paths whose answer may say what it leaves out.
func (s *stage) leavesOut() (paths []string) {
	s.Helper()
	var doc struct {
		Paths map[string]struct {
			Get struct {
				Responses map[string]struct {
					Content map[string]struct {
						Schema struct {
							Ref string `json:"$ref"`
						} `json:"schema"`
					} `json:"content"`
				} `json:"responses"`
			} `json:"get"`
		} `json:"paths"`
		Components struct {
			Schemas map[string]struct {
				Properties map[string]any `json:"properties"`
			} `json:"schemas"`
		} `json:"components"`
	}
	_, _, text := s.ask(request{path: "/openapi.json"})
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		s.Fatal(err)
	}
	for path, of := range doc.Paths {
		name := strings.TrimPrefix(of.Get.Responses["200"].Content["application/json"].Schema.Ref, "#/components/schemas/")
		if _, lists := doc.Components.Schemas[name].Properties["elsewhere"]; lists {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	return paths
}
