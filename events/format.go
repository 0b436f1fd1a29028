package events

// JournalFormat is the newest format that this release reads and writes. What is
// new in a format is written to a partition only once [PartitionRaised] says so
// there, which is once every member of the group speaks it; until then a release
// decides as the one before. A release refuses a partition of a newer format, and
// types of events that it does not know. A release with another input raises it too:
// an older one would leave that input unread.
const JournalFormat = 2
