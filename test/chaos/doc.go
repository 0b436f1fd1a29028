// Package chaos runs Waybill as it is run in production, three instances on
// Apache Kafka, and breaks things while orders come in: instances are killed,
// stopped for so long that others take over and then woken up, cut off from
// Kafka, robbed of their state stores, given a clock that is wrong; Kafka itself
// is killed, or one of its brokers; topics of agents and callers are out of
// reach, deleted or too small; inputs get partitions, and batches that take too
// much memory. Some submissions are cut short, and operators put them back, mended.
// Then the faults stop, all orders must come to an end, and everything that stands
// on Kafka is held against the rules of test/oracle, against what the agents did,
// and against what was submitted.
//
// `make chaos` runs it, `make reliability PART=chaos-3` leaves its figures for
// docs/reliability.md. A seed draws the faults, and draws the same faults again.
package chaos
