package api

import (
	"fmt"
	"strings"

	"github.com/waybill-dev/waybill/projections"
)

// Who still has which version of a workflow is counted, and those who may not see it are told that there is none.
func (s *stage) testVersions() {
	file := func(version int) []byte {
		return fmt.Appendf(nil, "workflow: versioned\nversion: %d\nsteps: [{name: wait, listen: go}, {name: end, agent: leak, do: fail}]\n", version)
	}
	for version := 1; version <= 3; version++ {
		if err := s.client.Register(s.Context(), "w.yaml", file(version)); err != nil {
			s.Fatal(err)
		}
		for n := range version {
			id := fmt.Sprintf("versioned-%d-%d", version, n)
			if _, err := s.client.Submit(s.Context(), &Submission{ID: id, Workflow: "versioned", Version: version % 3}); err != nil { // the third is the newest
				s.Fatal(err)
			}
			s.until(func() bool {
				o, err := s.client.Order(s.Context(), id)
				return err == nil && o.Steps[0].State == projections.Listening
			})
		}
	}
	heard := func(id string) {
		if _, err := s.client.Signal(s.Context(), id, &Signal{Signal: "go"}); err != nil {
			s.Fatal(err)
		}
		s.order(id, projections.Error)
	}
	heard("versioned-2-0")
	heard("versioned-1-0")
	if status, _, said := s.ask(request{method: "POST", path: "/api/v1/orders/versioned-1-0/cancel"}); status != 200 {
		s.Fatal(said)
	}
	s.order("versioned-1-0", projections.Cancelled)
	v, err := s.client.Versions(s.Context(), "versioned")
	if err != nil || fmt.Sprint(v.Versions) != "[{3 true true 3 0} {2 true false 2 1} {1 true false 0 0}]" || v.More {
		s.Errorf("%+v, %v", v, err)
	}
	if _, err := s.client.Versions(s.Context(), "no/ne"); err == nil || !strings.Contains(err.Error(), "workflow no/ne is not registered") {
		s.Errorf("of none: %v", err)
	}
}
