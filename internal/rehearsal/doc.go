// Package rehearsal performs tests that users write of their workflows: a file in YAML beside
// the workflow's says what is submitted, how agents answer, what operators do meanwhile, and
// what is expected of the order. See docs/workflows.md.
//
// Nothing about orders is decided here. [Test.Perform] asks package decide, as a lane does, and
// is to it what surrounds a lane: a clock that jumps to what comes next, agents that answer by
// a script, and topics that are slices in memory. Orders that do steps of others are played by a
// script, too, or decided on as well, where the file of their workflow is named.
package rehearsal
