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
// Requests are executed up to [Config.Concurrency] at a time over all partitions
// and operations, so a slow one does not hold up the others behind it, and the
// service sees no more calls at a time than that. A handler goes on when its partition
// moves. If the instance gets that back, as after a session that ended, the request
// takes another place beside it.
//
// # Priority
//
// An instance reads up to 4096 requests, or 64 MiB of them, ahead of what it
// executes, and takes those of high priority first, then normal, then low, each
// in the order of the log (P5). Every eighth time it takes the oldest, whatever
// its priority, and at once when half of the time up to its complete-by is over, so
// none starves. A high request that lies further back is seen when the window
// reaches it. What was read and not started is uncommitted: when a partition moves,
// or the agent stops, it comes again elsewhere.
//
// # Time
//
// Every request has a complete-by. It is the deadline of the handler's context,
// and the bound for whatever retries the handler makes (A2). Once it has passed,
// nothing is sent, not even an error (A4): the orchestrator's supervisor notices
// by itself. A request that was fetched too late is not executed at all, and no
// retry begins then. The
// agent goes by its own clock, which should agree with the orchestrator's to
// well below the steps' timeouts.
//
// A handler that takes longer calls [Extend] from time to time, where the workflow
// allows that: its complete-by moves, and the deadline of its context. One that leaves
// the answer to somebody else returns [ErrLater], and whoever has the [Token] of the attempt answers
// with an [Answerer].
//
// The clock is last read when the reply is handed to the Kafka client. A reply
// that then waits for an unreachable broker may arrive late, and is discarded by
// the orchestrator.
//
// # Errors
//
// [Permanent] says that no retry can heal a fault, and is replied at once (A5).
// [Transient] says that one may, and so does any other error: [Config.Retry], if
// there is one, calls the handler again while the time allows (A2, A6); then the
// last error is replied, and the orchestrator decides. A panic is a permanent
// error.
//
// # A service that fails
//
// With a [Config.Breaker], an instance whose calls keep failing stops fetching and
// leaves the consumer group, so that the work moves to healthy instances (A6, P5)
// and the orders do not use up their retries on it. It comes back by itself.
//
// # Undo
//
// An undo is a request like others, with [Request.Undo], what the step replied
// ([Request.Output]), under which key ([Request.StepKey]), and a key of its own. With [Request.OutcomeUnknown] the step
// may have run, or not: the handler finds out, and succeeds when there is nothing
// to undo.
package agents
