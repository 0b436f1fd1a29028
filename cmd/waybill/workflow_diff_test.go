package main

import "testing"

// What cannot be compared is told apart from what differs.
func TestDiffOfNothing(t *testing.T) {
	clearEnvironment(t)
	waybill(t, flow, "workflow", "diff", "-").want(t, exitUsage, "", "usage: waybill workflow diff FROM TO")
	waybill(t, flow, "workflow", "diff", "-", "none.yaml").want(t, exitUsage, "", "open none.yaml")
}
