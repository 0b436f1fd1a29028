package lane

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
)

// Broker is all that a lane asks of Kafka, for its partition. Simulations put
// another in its place.
type Broker interface {
	// Fence initialises the producer ids of slots, all at the same time. That fences whoever
	// had them, and completes or aborts the transactions that they have open. The producers
	// are in the order of the slots; on an error there are none, whatever was fenced. Unseen
	// says at any time where they must not write: an alert or a dead letter goes to another
	// partition of its topic then, and anything else fails its commit.
	Fence(ctx context.Context, unseen func(TopicPartition) bool, slots ...int) ([]Producer, error)
	// Read opens a reader of a partition of whatever topics, which reads nothing
	// before it is told from where. Readers of the committed records see no others.
	Read(partition int32, committed bool) (Reader, error)
	// Starts is where reading of an input begins that nobody has read yet, and that of
	// partitions that were added to inputs.
	Starts(ctx context.Context, added ...TopicPartition) (events.Positions, error)
	// Begins is where the partition's journal begins, 0 unless records of it were deleted.
	Begins(ctx context.Context) (int64, error)
	// End is up to where a partition can be read now: to its end, or with committed
	// only to the first transaction that is open, which may never end.
	End(ctx context.Context, at TopicPartition, committed bool) (int64, error)
	// Newest is the latest time that a record of a partition has, zero if that cannot
	// be told at the moment.
	Newest(ctx context.Context, at TopicPartition) (time.Time, error)
	// Since is the offset of the first record of a partition that is not older, or
	// its end.
	Since(ctx context.Context, at TopicPartition, t time.Time) (int64, error)
	// Open lists the transactions that are open in some places. It must know of the
	// lane's journal. Unseen are those of the others of which nobody can tell now, or not
	// soon: they have no leader, or their broker does not answer.
	Open(ctx context.Context, places ...TopicPartition) (open []OpenTransaction, unseen []TopicPartition, err error)
	// Everywhere does so on all partitions that there are. Silent is the error of a
	// broker that does not answer.
	Everywhere(ctx context.Context) (open []OpenTransaction, unseen []TopicPartition, silent, err error)
	// Wrote lists the partitions, of all that there are, to which some producers
	// have written lately.
	Wrote(ctx context.Context, producers map[int64]bool) ([]TopicPartition, error)
	// Finish ends a transaction that hangs on a partition. It fails with an
	// [kadm.AuthError] when the principal may not do that.
	Finish(ctx context.Context, t OpenTransaction, commit bool) error
	// Deliver writes records of one topic outside of any transaction, in their order, and
	// says how many from the first were taken. What Kafka refuses for what it is fails
	// with a [UndeliverableError]. After any other error they may have been written, too.
	Deliver(ctx context.Context, records []*kgo.Record) []error
	// Slots are the partition's slots, as their coordinators know them.
	Slots(ctx context.Context) ([Slots]Slot, error)
}

// Producer is one transactional producer. Any error, and above all a commit
// whose outcome is unknown, makes it unusable for good.
type Producer interface {
	// ID is the producer id, and the epoch of its next transaction.
	ID(ctx context.Context) (int64, int16, error)
	// Commit writes records in one transaction. Once it returned nil they are
	// committed, and their offsets are set. On an error nothing or everything was
	// committed.
	Commit(records []*kgo.Record) error
	// Cover ends what the producer's former owners left open on a partition, with
	// a transaction of its own that has no records. It is the last that the
	// producer does. Whoever fences it before the end aborts what it covers.
	Cover(ctx context.Context, t OpenTransaction, commit bool) error
	// Disturbed reports whether a connection was lost since it was asked last.
	Disturbed() bool
	Close()
}

// Reader reads one partition of some topics.
type Reader interface {
	// Seek makes the reader read these topics, each from an offset, and nothing
	// else.
	Seek(from map[string]int64)
	// Add makes it read another partition, too.
	Add(at TopicPartition, from int64)
	// Poll waits for at most limit records. When ctx ends before any is there,
	// its error is that of the fetches. A batch that cannot be read is told once, as
	// a [kgo.ErrDecompressTooLarge], and reading goes on behind it.
	Poll(ctx context.Context, limit int) kgo.Fetches
	// Pause makes it read a partition no more until Resume; what was polled before comes.
	Pause(at TopicPartition)
	Resume(at TopicPartition)
	Close()
}

// OpenTransaction is a transaction that a partition has open.
type OpenTransaction struct {
	Transaction
	TopicPartition
	Offset  int64 // of its first record
	Written int64 // when its last record was written, in ms since 1970
	// Coordinator is the epoch of the coordinator that wrote its producer's last
	// marker there.
	Coordinator int32
	// slot is the one that it hangs of, [spent] if its producer id has run out.
	slot int
}

// same says whether another look found the same one.
func (t OpenTransaction) same(other OpenTransaction) bool {
	return t.Transaction == other.Transaction && t.TopicPartition == other.TopicPartition
}

// TopicPartition is a partition of a topic.
type TopicPartition struct {
	Topic     string
	Partition int32
}

// Transaction names one: the epoch of a producer changes with each.
type Transaction struct {
	Producer int64
	Epoch    int16
}

// Slot is a slot as its coordinator knows it.
type Slot struct {
	Transaction // the producer id, and the epoch of its next transaction
	// Owed are the partitions whose marker of the last transaction the coordinator has yet to write.
	Owed []TopicPartition
}

// World is what the instance knows besides: workflows, and what can be written
// where. It is safe for concurrent use.
type World interface {
	// Workflow finds a definition, version 0 meaning the newest; nil if it is not
	// known so far.
	Workflow(name string, version int) *workflow.Workflow
	// Newer is the level of the language of a definition that this release cannot run, 0
	// for any other.
	Newer(name string, version int) int
	// Starts finds the workflow whose orders a signal under a key starts, nil if none is known so far.
	Starts(signal string) *workflow.Workflow
	// Retired says that nothing new begins with a version; with version 0, with none of that name.
	Retired(name string, version int) bool
	// RequestTopics are the queues of all agents that some workflow names.
	RequestTopics() []string
	// Seek begins to read the workflows topic to where it ends now, and returns the
	// number of that question; Found says whether that is done.
	Seek() uint64
	Found(question uint64) bool
	// CatchUp reads the workflows topic to where it ends now.
	CatchUp(ctx context.Context) error
	// Learn has Kafka asked which of the topics can be written, where that is not known
	// or was asked long ago. Nobody waits for it: the channel is closed once Kafka has
	// answered something.
	Learn(topics []string) (answered <-chan struct{})
	// Known says whether Kafka has said anything of a topic; if not, it is asked.
	Known(topic string) bool
	// Partitions is how many a topic has, as far as Kafka has said; 0 if it has not.
	Partitions(topic string) int32
	// Refuses says why Kafka would never take a record of size bytes on topic, "" if
	// it would as far as is known.
	Refuses(topic string, size int) string
	// Away says why a record of size bytes cannot be written now, though it may be
	// later, "" if it can as far as is known. It is one of an order, or of any if that is
	// empty.
	Away(at TopicPartition, order string, size int) string
	// Format is the one in which may be written, since every member of the group has
	// spoken it for long enough. Newest is the one that all of them speak now.
	Format() int
	Newest(ctx context.Context) int
	// Added are partitions that somebody added to inputs, as far as is known, each with
	// the offset at which it begins.
	Added() map[TopicPartition]int64
	// Refused tells that a record of an order, of size bytes, was not taken, and why.
	// Alone says that it was not in a batch with others.
	Refused(at TopicPartition, order string, size int, alone bool, err error)
	// Took tells that a record was committed.
	Took(at TopicPartition)
}
