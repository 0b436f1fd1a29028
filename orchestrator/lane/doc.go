// Package lane has the single writer of a partition. A [Lane] takes the partition
// over, reads its inputs, has package decide decide on them, writes what follows in
// one Kafka transaction, and folds it into the state store. A [Follower] folds the
// journals of partitions that others own.
//
// What a lane asks of Kafka stands in [Broker], and what it knows of workflows and
// topics in [World].
package lane
