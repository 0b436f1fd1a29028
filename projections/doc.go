// Package projections turns the journal into state.
//
// [Order] is the pure part: the state record of one order, the fold of its
// events. [Store] keeps the records of all partitions in Pebble, together with
// what is needed to find them: an index of deadlines, listings by state and
// workflow, and for each partition how far the journal was folded.
//
// The store holds nothing that a replay of the journal would not give back
// (T1). It is therefore written without sync: the journal offset stands in the
// same batch as the records, so a crash loses the last batches whole, and they
// are folded again from the journal.
//
// A partition's transactions are folded one by one through a [Partition], the
// only writer of that partition's keys. It lives in two places: in the lane
// that owns the partition, which folds what it has just committed, and in the
// follower of an instance that does not own it. The fold is the same.
package projections
