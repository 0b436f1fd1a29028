// Package services holds the remote services of the order example: a payment
// provider and a carrier. They are real HTTP servers, apart from the agents that
// call them, and keep what they did under the caller's Idempotency-Key, so that a
// repeated call charges nobody twice and books no second parcel (A3).
//
// Each has a switch, its [Mode], which makes it fail in the ways in which remote
// services fail:
//
//	curl -X PUT localhost:8081/mode -d flaky
//	curl localhost:8081/ledger
//
// Nothing is left to chance: a mode says what becomes of the first call with a
// key, of the second, and so on.
package services
