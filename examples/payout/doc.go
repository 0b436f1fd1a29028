// Package payout is the example of a step that is done for each item of a list: a payout of 10,000
// payments, of which the bank refuses some, that are made anew once their accounts are open.
//
//	go run ./examples/payout/cmd/payout
//
// runs all of it on this machine.
package payout
