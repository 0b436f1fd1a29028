// Package orchestrator runs orders: an [Instance] is the scheduler and the
// supervisor of the pattern, over Kafka.
//
// The decisions are pure functions, (order, input, now) -> events, in package
// decide. Around them stands one lane for each partition that the instance owns,
// in package lane: the partition's single writer reads the inputs, decides,
// writes the events and the messages in one Kafka transaction, and folds the
// events into the state store. Scheduler and supervisor share it, so they never
// race. Package cluster is Kafka, as lanes reach it.
//
// A consumer group says which instance should own a partition. What makes it
// safe is a takeover: see [lane.Lane.TakeOver].
package orchestrator
