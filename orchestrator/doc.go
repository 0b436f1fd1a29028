// Package orchestrator runs orders: it is the scheduler and the supervisor of
// the pattern, over Kafka.
//
// The decisions are pure functions, (order, input, now) -> events: [Submit] and
// [TakeReply] are the scheduler, [Supervise] is the supervisor, and [Outbox]
// says which messages follow from an event. They do no I/O and read no clock.
//
// Around them stands one lane for each partition that the [Instance] owns. A
// lane is the partition's single writer: it reads the inputs, decides, writes
// the events and the messages in one Kafka transaction, and folds the events
// into the state store. Scheduler and supervisor share it, so they never race.
//
// A consumer group says which instance should own a partition. What makes it
// safe is a takeover: see [lane.takeOver].
package orchestrator
