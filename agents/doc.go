// Package agents is the SDK for agents: programs that carry out the steps of
// orders by calling one remote service or resource each (A1).
//
// An agent maps the operations that workflows ask of it to Go functions and
// serves them until its context ends:
//
//	err := agents.Serve(ctx, agents.Config{
//		Agent:   "payment",
//		Brokers: []string{"127.0.0.1:9092"},
//	}, agents.Operations{
//		"charge": agents.Do(charge),
//		"refund": agents.Do(refund),
//	})
//
// Start as many instances of an agent as its load asks for: they share the
// agent's queue, <namespace>.requests.<agent>, as one consumer group,
// <namespace>.agent.<agent>. Agents in other languages need only a Kafka client
// and the published message contract (A7); this package has no privileges.
//
// # What is promised
//
// A request is executed at least once. Its offset is committed only after Kafka
// has acknowledged the reply, or when the request was finished without one, and
// only up to the oldest request of the partition that is still unfinished. So
// after a crash, and when a partition moves to another instance, everything
// above that point comes again, whether it was answered or not. Orchestrators
// discard a repeated reply; the remote service recognises a repeated call by
// [Request.IdempotencyKey], which is the same for every automatic retry of a
// step (A3). Operations must be idempotent under that key (A6).
//
// Requests are executed in no particular order, up to [Config.Concurrency] at a
// time over all partitions, so a slow one does not hold up the others behind it.
//
// # Time
//
// Every request has a complete-by. It is the deadline of the handler's context,
// and the bound for whatever retries the handler makes (A2). Once it has passed,
// nothing is sent, not even an error (A4): the orchestrator's supervisor notices
// by itself. A request that was fetched too late is not executed at all. The
// agent goes by its own clock, which should agree with the orchestrator's to
// well below the steps' timeouts.
//
// The clock is last read when the reply is handed to the Kafka client. A reply
// that then waits for an unreachable broker may arrive late, and is discarded by
// the orchestrator.
//
// # Errors
//
// [Permanent] says that no retry can heal a fault (A5), [Transient] that one may;
// any other error is transient. Both become a reply at once, as long as the
// complete-by lies ahead.
package agents
