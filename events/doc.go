// Package events is Waybill's vocabulary: the messages that cross Kafka, their
// JSON, their CloudEvents headers, and the names of the topics they live on.
//
// Everything here is a value. Nothing does I/O, reads a clock or imports
// another package of Waybill, so that agents, applications and tools can use
// the words without the machine.
//
// Three rules hold for every message:
//
//   - the JSON value is self-sufficient: a reader may ignore all headers;
//   - decoding ignores fields it does not know, so a newer release may add some;
//   - times are RFC 3339 in UTC, cut to milliseconds by [Time].
package events
