// Package subscription is the example of a schedule that an order begins, and ends once a signal says so: a
// subscription that renews until it is cancelled.
//
//	go run ./examples/subscription/cmd/subscription
//
// runs all of it on this machine.
package subscription
