package api

import (
	"fmt"
	"strings"
	"testing"

	"github.com/waybill-dev/waybill/projections"
)

// Who still has which version of a workflow is counted, and those who may not see it are told that there is none.
func (s *stage) testVersions() {
	file := func(version int) []byte {
		return fmt.Appendf(nil, "workflow: versioned\nversion: %d\nsteps: [{name: wait, listen: go}, {name: end, agent: leak, do: fail}]\n", version)
	}
	for version := 1; version <= 3; version++ {
		if _, err := s.client.Register(s.Context(), "w.yaml", file(version)); err != nil {
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
	if err != nil || fmt.Sprint(v.Versions) != "[{3 true true false 3 0} {2 true false false 2 1} {1 true false false 0 0}]" || v.More {
		s.Errorf("%+v, %v", v, err)
	}
	if _, err := s.client.Versions(s.Context(), "no/ne"); err == nil || !strings.Contains(err.Error(), "workflow no/ne is not registered") {
		s.Errorf("of none: %v", err)
	}
}

// An order that changes while orders are counted, and so is seen twice, counts once: as it was last.
func TestOrdersAreCountedOnce(t *testing.T) {
	v, counted := Versions{Versions: []Version{{Version: 1, Registered: true}}}, make(map[string]*projections.Order)
	seen := func(id string, version int, state projections.State) *projections.Order {
		return &projections.Order{ID: id, Version: version, State: state}
	}
	v.add(counted, []*projections.Order{seen("a", 1, projections.Pending), seen("b", 1, projections.Error), seen("c", 2, projections.Error)})
	v.add(counted, []*projections.Order{seen("a", 1, projections.Error), seen("b", 1, projections.Processing)})
	if got := fmt.Sprint(v.Versions); got != "[{1 true false false 2 1} {2 false false false 1 1}]" {
		t.Errorf("counted are %s", got)
	}
}

// Nothing new begins with a version that is retired, until that is ended; what has it goes on.
func (s *stage) testRetire() {
	for version := 1; version <= 2; version++ {
		if _, err := s.client.Register(s.Context(), "w.yaml", fmt.Appendf(nil, "workflow: retired\nversion: %d\nsteps: [{name: wait, listen: go}]\n", version)); err != nil {
			s.Fatal(err)
		}
	}
	made := 0
	submit := func(version int, want projections.State) *Order {
		s.Helper()
		made++
		id := fmt.Sprint("retired-", made)
		if _, err := s.client.Submit(s.Context(), &Submission{ID: id, Workflow: "retired", Version: version}); err != nil {
			s.Fatal(err)
		}
		return s.order(id, want)
	}
	retire := func(version int, retired bool) {
		s.Helper()
		for range 2 { // which changes nothing
			if err := s.client.Retire(s.Context(), "retired", version, retired); err != nil {
				s.Fatal(err)
			}
		}
	}
	submit(2, projections.Pending)
	retire(2, true)
	if o := submit(0, projections.Pending); o.Version != 1 {
		s.Errorf("the newest is version %d", o.Version)
	}
	if o := submit(2, projections.Rejected); *o.Reason != "workflow retired@2 is retired; name another version, or none for the newest" {
		s.Error(*o.Reason)
	}
	if v, err := s.client.Versions(s.Context(), "retired"); err != nil || fmt.Sprint(v.Versions) != "[{2 true false true 1 0} {1 true true false 1 0}]" {
		s.Errorf("%+v, %v", v, err)
	}
	if _, err := s.client.Signal(s.Context(), "retired-1", &Signal{Signal: "go"}); err != nil {
		s.Error(err)
	}
	s.order("retired-1", projections.Processed)
	if status, _, said := s.ask(request{method: "POST", path: "/api/v1/orders/retired-1/rerun", body: `{}`}); status != 409 || !strings.Contains(said, "workflow retired@2 is retired; name another version") {
		s.Errorf("run again: %d %s", status, said)
	}
	said := func(version int) string {
		s.Helper()
		retired, err := s.client.Register(s.Context(), "w.yaml", fmt.Appendf(nil, "workflow: retired\nversion: %d\nsteps: [{name: wait, listen: go}]\n", version))
		if err != nil {
			s.Fatal(err)
		}
		return retired
	}
	if now, before := said(1), said(2); now != "" || before != "workflow retired@2 is registered, and retired: no new order may have it until waybill workflow retire retired@2 --restore" {
		s.Errorf("registered again it is said %q, and %q of what is retired", now, before)
	}
	if all, err := s.client.Workflows(s.Context()); err != nil || fmt.Sprint(all.Retired) != "[retired@2]" {
		s.Errorf("listed as retired are %q, %v", all.Retired, err)
	}
	retire(1, true)
	if _, err := s.client.Workflow(s.Context(), "retired", 0); err == nil || !strings.Contains(err.Error(), "workflow retired is retired, in every version: name one") {
		s.Errorf("the newest of none: %v", err)
	}
	if _, err := s.client.Workflow(s.Context(), "retired", 1); err != nil {
		s.Error(err)
	}
	if o := submit(0, projections.Rejected); !strings.Contains(*o.Reason, "is retired, in every version") {
		s.Error(*o.Reason)
	}
	retire(2, false)
	if o := submit(0, projections.Pending); o.Version != 2 {
		s.Errorf("the newest is version %d again", o.Version)
	}
	for path, body := range map[string]string{"none": `{"version":1,"retired":true}`, "retired": `{"version":9,"retired":true}`} {
		if status, _, said := s.ask(request{method: "POST", path: "/api/v1/workflows/" + path + "/retire", body: body}); status != 404 || !strings.Contains(said, "is not registered") {
			s.Errorf("%s: %d %s", path, status, said)
		}
	}
	if status, _, said := s.ask(request{method: "POST", path: "/api/v1/workflows/retired/retire", body: `{"retired":true}`}); status != 422 {
		s.Errorf("without a version: %d %s", status, said)
	}
}
