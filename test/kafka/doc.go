// Package kafka gives test suites a broker to run on.
//
// [Embedded] is a Kafka-protocol broker in memory: there at once, everywhere,
// and one for each test. [Container] is Apache Kafka, one container for the
// whole test binary, and for all of them where `make test` has started one, so
// tests keep apart by [Namespace]. [Each] runs a suite on both, which is how a
// suite should run unless it needs what only one of them has: the embedded
// broker injects faults, the container has the race between a commit and its
// markers that an in-memory broker cannot have. A test that stops its broker
// has an [Own] container.
//
// A package that uses the container hands its tests to [Main]:
//
//	func TestMain(m *testing.M) { kafka.Main(m) }
//
// Where no Docker engine answers, or Kafka's image can neither be found nor
// pulled, the container's suites are skipped with a reason that begins with
// [leftout.Prefix]. With WAYBILL_REQUIRE_DOCKER=1 they fail instead: a run that must
// not leave them out says so.
package kafka
