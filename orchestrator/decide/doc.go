// Package decide holds the decisions of the pattern as pure functions,
// (order, input, now) -> events: [Submit] and [TakeReply] are the scheduler,
// [Supervise] is the supervisor, [Operate] is what operators may do, and [On]
// finds the one for an input. [Outbox] says which messages follow from an event.
//
// What an order has to get done is a task: a step, or the undo of one. All tasks are
// numbered, retried and given up alike. How one begins, and what follows when its
// time is over, is up to the kind of its step: an operation of an agent, a sleep, a wait
// for signals, or a failure that it raises.
//
// They do no I/O, read no clock and know no Kafka. What they need stands in
// [Env]. Whoever runs them, package lane on Kafka, sees to it that what they
// decided happens once.
package decide
