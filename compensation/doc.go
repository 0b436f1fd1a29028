// Package compensation says what is to be undone of an order, and in which
// order: the completed steps, and those that may have run, against the
// direction of the workflow's graph (C1). It is pure: the orchestrator asks it
// after every event of an order that is being compensated, and does what it
// says.
//
// A step's undo may begin once nothing runs any more, and nothing is left to be
// undone, of all that comes after the step. What was parallel is undone at the
// same time. An undo that failed for good holds up no other one; its errors are
// gathered by [Failures] for an operator (C2). What has no undo, and what was
// passed over, is named by [Outcome] (C3).
package compensation
