package api

import (
	"fmt"
	"slices"
	"testing"

	"github.com/waybill-dev/waybill/projections"
)

// Of the steps that alerts are about those come first of which there are most, and no more than were asked for.
func TestAlertsAtSteps(t *testing.T) {
	all := map[projections.AlertedAt]int{{Workflow: "b", Step: "x"}: 2, {Workflow: "a", Step: "y"}: 2, {Workflow: "a", Step: "x"}: 2, {Workflow: "c"}: 7, {Workflow: "d", Step: "z", Undo: true}: 1, {Workflow: "d", Step: "z"}: 1}
	for limit, want := range map[int][]string{10: {"c -: 7", "a x: 2", "a y: 2", "b x: 2", "d z: 1", "d z, undo: 1"}, 2: {"c -: 7", "a x: 2"}} {
		var got []string
		for _, at := range alertsAt(all, limit) {
			step := "-"
			if at.Step != nil {
				step = *at.Step
			}
			if at.Undo {
				step += ", undo"
			}
			got = append(got, fmt.Sprintf("%s %s: %d", at.Workflow, step, at.Number))
		}
		if !slices.Equal(got, want) {
			t.Errorf("of %d: %q, and not %q", limit, got, want)
		}
	}
}
