// Package httpagent is a ready agent: it carries out the steps of orders by HTTP
// calls that a file describes, so that a service needs no code to take part.
//
//	agent: payment
//	base: https://payments.internal
//	headers: {Authorization: "Bearer ${PAYMENT_TOKEN}"}
//	operations:
//	  charge:
//	    url: /charges/{order}
//	  refund:
//	    url: /charges/{output.id}/refunds
//
// [Read] checks such a file as a whole, and reports all that is wrong with it by
// line and column; [Agent.Serve] serves what it describes with package agents,
// whose promises hold: at least once (A6), silence after the complete-by (A4),
// retries and a circuit breaker around the calls (A2).
//
// # What may come from where
//
// The file is trusted, and so is the environment that it refers to. A request is
// not: what comes from an order fills the places that the file has for it and
// nothing else. It cannot choose the host, leave its segment of the path, add a
// header or another parameter to the query, whatever it holds. What the service
// answers is trusted as data only: it is bounded, never followed to another
// host, and in messages shortened.
//
// Values from the environment are secrets: neither logs nor replies show them,
// also where a service repeats one in an error.
package httpagent
