package events

// JournalFormat is the newest format that this release reads and writes. What is
// new in a format is written to a partition only once [PartitionRaised] says so
// there, which is once every member of the group speaks it; until then a release
// decides as the one before. A release refuses a partition of a newer format, and
// types of events that it does not know. A release with another input raises it too:
// an older one would leave that input unread.
const JournalFormat = 11

// CourierFormat is the format since which status messages for callers' own topics
// leave behind the commit, as [PartitionDelivered] tells.
const CourierFormat = 2

// KeysFormat is the format since which a resubmission keeps the idempotency keys of
// what was not answered with an error, and a step is undone under every key under
// which it may have run.
const KeysFormat = 3

// UncountedFormat is the format since which an attempt that expires while its agent
// gives no sign is not one of those that the retry policy counts.
const UncountedFormat = 3

// SilenceFormat is the format since which the journal says which agents are silent.
const SilenceFormat = 3

// ProofFormat is the format since which the journal says who answered, how the author of a
// command is known, and which replies must repeat the token of their request.
const ProofFormat = 4

// WaitsFormat is the format since which a step that waits says for whom.
const WaitsFormat = 3

// SleepFormat is the format since which steps sleep and are repeated, and an order goes on
// without a step that failed for good.
const SleepFormat = 5

// ProgressFormat is the format since which an agent that is still at it can have the
// complete-by of its attempt moved.
const ProgressFormat = 6

// ChangeFormat is the format since which the priority and the deadline of an order change.
const ChangeFormat = 6

// RaiseFormat is the format since which steps raise failures.
const RaiseFormat = 6

// TerminateFormat is the format since which orders are terminated.
const TerminateFormat = 6

// SignalsFormat is the format since which steps wait for signals, and partitions read them.
const SignalsFormat = 6

// ReplacedFormat is the format since which an agent that does not know an operation is asked again
// for some minutes, without that the retry policy counts it: another instance of it may know it.
const ReplacedFormat = 6

// RetireFormat is the format since which versions of workflows are retired.
const RetireFormat = 6

// ApproveFormat is the format since which people decide, and orders know who submitted them.
const ApproveFormat = 6

// LabelsFormat is the format since which orders have labels, by which they are found.
const LabelsFormat = 6

// RerunFormat is the format since which an order says which one it does again.
const RerunFormat = 6

// KeepFormat is the format since which orders that have ended leave the state store after a while.
const KeepFormat = 7

// ChildrenFormat is the format since which steps are done by other orders, and lanes tell each other
// what becomes of them.
const ChildrenFormat = 7

// EmitFormat is the format since which steps give topics of the user's events of theirs.
const EmitFormat = 8

// SignalKeysFormat is the format since which steps wait for signals under keys of the business.
const SignalKeysFormat = 8

// StartFormat is the format since which signals under keys start orders.
const StartFormat = 9

// EachFormat is the format since which steps are done for each item of a list.
const EachFormat = 8

// SchedulesFormat is the format since which schedules begin orders.
const SchedulesFormat = 8

// MigrateFormat is the format since which orders go on as ones of another version of their workflow.
const MigrateFormat = 8

// LimitsFormat is the format since which attempts wait for places under limits.
const LimitsFormat = 9

// LeavesFormat is the format since which an order says of a step that another does, or of an item, that something which
// ran there was not undone, and one that heard too little in time what it has heard.
const LeavesFormat = 10

// BaggageFormat is the format since which an order keeps the tracestate and the baggage of its submission.
const BaggageFormat = 11

// LeftByFormat is the format since which an order's record has which orders left something that was not undone. The events
// of before say so, too, and records that were made of them do not.
const LeftByFormat = 11
