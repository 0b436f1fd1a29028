// Package trip is the example of orders that do steps of another: a trip is booked by an order for
// the flight, one for the hotel and one for the car, which are undone as a whole when the last one
// cannot be had.
//
// [Agents] call no external service. What they answer follows from the request alone, so
// that a repeated one gives the same ticket or payment, and not a second one.
//
//	go run ./examples/trip/cmd/trip
//
// runs all of it on this machine.
package trip
