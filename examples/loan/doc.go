// Package loan is the example of a workflow in which people decide: who applies
// for a loan is scored, one clerk grants a small one, two people grant a large one,
// the customer signs, and the bank pays.
//
// [Agents] call no external service. What they answer follows from the request alone, so
// that a repeated one gives the same mail or payment, and not a second one.
//
//	go run ./examples/loan/cmd/loan
//
// runs all of it on this machine, with people who have keys of their own.
package loan
