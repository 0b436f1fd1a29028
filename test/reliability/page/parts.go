package main

// part is one that leaves its figures in a file of its name.
type part struct {
	name, title, text string
}

// parts are all of them, in the order of the page.
var parts = []part{
	{
		"simulation", "Simulation",
		`Up to three instances that may all believe that they own the partitions, on a Kafka and clocks that are simulated. Each
step of anybody is drawn: a record produced, a marker written, a request that is late, lost or not answered, a read that
fails, a crash, a takeover in the midst of another, a standby that follows, a zombie that wakes up, a store that is lost
or has lost its end, an input that is misrouted, unreadable or in somebody's transaction, a reply that comes late, twice
or never, a topic that is gone, a workflow that is not known yet, a producer id that runs out, a clock that jumps, Kafka
restarted; schedules that are applied, paused, backfilled and deleted, signals under keys, migrations, and dead letters
that are put back, corrected, some of them again, or long after. The lane's own loop runs, with coroutines beside it. Then trouble ends, one instance takes over, agents answer
and operators act until every order has ended. Every input is held against what came of it ([audit](../test/audit)), and
all that stands in the simulated topics and in the store against [the oracle](../test/oracle): nothing is due, nothing
hangs, what was acknowledged stands, no order came into Error by nobody's doing. In one workflow of three a step has an
hour and one attempt, so that nothing that is lost there heals by itself. What was drawn is counted, and what never came up
fails the run. All follows from the seed; a history that fails is shortened as far as it still fails.

Histories from before 2026-11-28 show less than their number says: what was meant to go wrong once in some hundred times
went wrong once in forty, one takeover in six came to its end, and nine in ten of the events were written after trouble had
ended. Since then whatever happens is as likely as it is meant to be, and an instance works on between the faults: in 10,000
histories 43 in 100 of the events are from amid the faults, and each type of them but seven must be. Before that day no
dead letters were put back either, as they were or corrected, deciding never panicked on a submission, no input named who
sent it, and no command or submission was signed, by whoever has a key or has none.`,
	},
	{
		"chaos-1", "Chaos on one broker",
		`Three instances of ` + "`waybill serve`" + ` on Apache Kafka, 12 partitions, six workflows with undo, waits, parallel steps and
conditions, agents that fail, refuse, are slow or silent, operators who interfere, callers whose transactions never end,
or who send 64 MiB in a few kilobytes. An agent's topic is deleted and made again, a caller's takes next to nothing for a
while, and partitions are added to the inputs. Faults are drawn by a seed for each instance, for Kafka, for callers and
for topics, so they come alone and on top of each other. The clock of the third instance is wrong, and differently so at
each of its starts. Then the faults stop, the clocks are right, the agents answer everything,
operators resubmit what is in Error, and all that stands on Kafka is checked: every submission was accepted once and
ended, every command was acted on once, no history breaks a rule of [the oracle](../test/oracle), every request, status
and alert left once, agents did what the journal says and nothing that it does not ask for, every attempt was begun by
the partition's last claimant, no clock within the allowance let an attempt expire early, none expired whose reply was on
its topic in time by Kafka's clock, no caller's topic was given up but the one that took nothing, and the projections of
all three instances equal a replay of the journal.

A seed draws the same faults at the same times. What they meet is not the same: the system schedules processes as it
likes. Times until partitions are served include whatever came on top, such as Kafka being down. Where an instance is
killed, others learn of it by the session time-out, which is shorter here than by default so that a run has many
takeovers. An instance with a dead process is started again, and what ends by itself is started again after a second, as
a process supervisor does it.`,
	},
	{
		"chaos-3", "Chaos on three brokers",
		`The same on a cluster of three nodes, each of them broker and controller, with three replicas of everything and
` + "`min.insync.replicas=2`" + `. What can happen to a broker happens to one of the three, or to one after the other.
One of them alone has an agent's and a caller's topic, and is killed for longer. When a reply can be read depends on the
followers of its leader, so that one in time expired is not looked for.`,
	},
	{
		"takeover", "Takeover",
		`How long a partition is not served when its owner hands it over, is killed, or hangs.`,
	},
	{
		"upgrade", "Rolling upgrades",
		`Three instances on Apache Kafka are replaced under load, one after the other: from the release before to this one, back,
and forward again, so that both serve side by side. The data directory of the third is lost each time. First with 200
orders a second that have all the time in the world, so that no retry repairs in silence what was lost; then with the
drawn orders: agents that fail, refuse or are silent, undos, operators who interfere. Everything is held against
[the oracle](../test/oracle), and the state of each instance against the journal. A pause is the longest time without a
new event in a partition's journal, of the first kind of load, from SIGTERM until the partition has 100 events more.`,
	},
	{
		"kills", "Kills of the embedded broker",
		`The broker of ` + "`waybill dev`" + ` is killed while clients write to it, most often within the end of a transaction, and started
again with its data. What was acknowledged must be there, what was aborted must not, and of a transaction whose outcome
nobody was told there must be all or nothing, after this restart and every later one.`,
	},
	{
		"dev", "Kills of waybill dev",
		"`waybill dev`" + ` is killed under load, and every order is submitted, done and told once. No retry repairs in silence what was
lost: the workflow has all the time in the world.`,
	},
	{
		"disk", "Full disks of waybill dev",
		`The same, while its disk is filled up to what the broker keeps in reserve, and emptied.`,
	},
	{
		"fuzz", "Mutated records",
		`Submissions, replies and commands with flipped bits, other types, wild numbers, depth, size, keys, headers and
timestamps, on all partitions, among orders of those who behave. All must be read, each record accounted for once, the
others' orders completed, and everything that came of it held against the oracle.`,
	},
	{
		"damage", "Damaged state stores",
		`The files of a state store are spoiled: bytes flipped, ends cut off, files removed. What is then read must be what once
was, or the store must say that it is damaged; then it is rebuilt from the journal.`,
	},
	{
		"torn", "Torn journals",
		`Journals as a Kafka without transaction version 2 may leave them, forged. The partition must stop before anything is
decided on what it cannot mean, an operator be called, and the other partitions go on.`,
	},
	{
		"flight", "Orders in flight",
		`One instance of ` + "`waybill serve`" + ` on Apache Kafka, 16 partitions, and a great many orders of three steps that wait for their
agents. One in a hundred expires while the others are accepted, as many again while all are in flight and little else is
to do: how late an expiry is, is the time of its event without the complete-by that it had. Then the instance is stopped,
killed, and loses its state; each time it has one order to decide on in every partition when it is back. At last agents
answer for some of the orders, ` + "`waybill replay --verify`" + ` rebuilds and compares all state, and journal, requests and status
messages of every order are held against what was submitted. Memory is what Linux says of the process.`,
	},
	{
		"sleepers", "Orders that sleep",
		`One instance of ` + "`waybill serve`" + ` on Apache Kafka, 16 partitions, and a great many orders that sleep for a month. Before they come, while they
sleep, and after the instance was killed, 2,000 orders come, 200 a second, that wake after two seconds each: what these take of a
processor, and how late they wake, follows from what is due, and not from what sleeps. Nobody else wakes.`,
	},
	{
		"outage", "Kafka away for minutes",
		`One instance on the only broker of an Apache Kafka, which is stopped in good order while 500 orders of two and more steps
are under way, and started again with its data. 500 more are submitted while it is away, and 500 once it is back. Half of them
have steps that expire after two seconds. All must complete: that a broker is away fails no attempt for good.`,
	},
	{
		"backlog", "Backlogs",
		`Bursts of orders for agents that take them as fast as they can and no faster, on both brokers side by side: three instances of
` + "`waybill serve`" + ` and 12 partitions, or one and 64. Agents are processes of their own: in Go with the SDK, which skips what is late, or
with a Kafka client alone, and in Python, of the message contract alone. One burst comes after the other; but those for an agent
that is away, which was known before, and those on 64 partitions last, beside the others. Of two processes of an agent one is killed
when a quarter of the orders has ended, and another started when half has; two instances are killed and started so, one after the
other. *Agent's own* is what one of that rate needs for all orders, *more* what it took beyond that, from the submission, or the
agent's return, to the end of the last order. *Left before one of high priority*: of the orders that were asked for while one of
high priority waited in their partition, how many were none of high priority; every eighth may be. At last an empty instance
joins two that know a great many orders, while orders come to all partitions, and all three are asked for what is there: an
answer is the order, or 503. The silence of a partition is the longest time without a record in its journal meanwhile.`,
	},
	{
		"mutants", "Mutants",
		`Tests that cannot fail show nothing. So one rule of Waybill is broken at a time, as [the list](../test/mutants/list) says,
and the suites that must find it run, the cheapest first, until one does. What belongs to simulation must be found by
histories that are drawn, whatever the plays say. What no suite finds is told with the reason. No suite here needs
Docker: what only a real Kafka, a kill or hours could find counts as not found.`,
	},
}

// row is one of the scoreboard: what must be survived.
type row struct {
	what string
	// from are the figures that say how often it came up, each by its part and its
	// names in there.
	from []source
}

type source struct {
	part  string
	names []string
}

func inChaos(names ...string) []source {
	return []source{{"chaos-1", names}, {"chaos-3", names}}
}

func of(part string, names ...string) source { return source{part, names} }

// rows are those of the scoreboard that are run.
var rows = []row{
	{"instances killed", append(inChaos("faults", "kill -9 of an instance"), of("simulation", "drawn", "an instance was killed"), of("kills", "kills"), of("dev", "kills"))},
	{"brokers killed", append(inChaos("faults", "kill -9 of Kafka"), of("chaos-3", "faults", "kill -9 of a broker"))},
	{"brokers paused", inChaos("faults", "broker paused")},
	{"only brokers of an agent's and a caller's topic killed", []source{of("chaos-3", "faults", "kill -9 of the broker that alone has an agent's and a caller's topic")}},
	{"topics of agents deleted, and made again", []source{of("chaos-1", "faults", "an agent's topic deleted, and made again")}},
	{"topics of callers that take next to nothing", inChaos("faults", "a caller's topic takes next to nothing (max.message.bytes)")},
	{"partitions added to the inputs", inChaos("faults", "a partition added to each input")},
	{"batches that take more memory than one may", inChaos("faults", "a batch of zeros on an input that takes more memory than one may")},
	{"brokers restarted", append(inChaos("faults", "Kafka restarted in good order"),
		of("chaos-3", "faults", "broker restarted in good order"), of("chaos-3", "faults", "all brokers restarted, one after the other"), of("outage", "restarts"))},
	{"answers to commits that were lost", append(inChaos("answers to commits that were swallowed"), of("simulation", "drawn", "end is not answered"))},
	{"zombies: owners that come back after they were replaced", append(inChaos("partitions that a zombie came back to"), of("simulation", "drawn", "a zombie was fenced"))},
	{"network cut, held back or slow", append(inChaos("faults of the network"), of("chaos-3", "faults", "network between an instance and one broker cut"))},
	{"clocks that differ, or jump", append(inChaos("starts with a wrong clock"), of("simulation", "drawn", "a clock jumps"))},
	{"disk full", append(inChaos("faults", "disk of the state store full"), of("disk", "times the disk was full"))},
	{"state store damaged", append(inChaos("state stores that were found damaged, and rebuilt by themselves"), of("damage", "stores spoiled"))},
	{"malformed input", []source{of("fuzz", "mutated records")}},
	{"transactions that hang", append(inChaos("transactions that hung, and were ended"), of("simulation", "drawn", "a marker was forgotten, and a transaction hung"))},
	{"producer ids that run out", []source{of("simulation", "drawn", "a producer id ran out")}},
	{"transactions of callers that never end", inChaos("faults", "transaction of a caller left open on the inputs")},
	{"inputs on which deciding panics", []source{of("simulation", "drawn", "poison")}},
	{"journals that are torn", []source{of("torn", "journals")}},
	{"takeovers", append(inChaos("claims of partitions"), of("simulation", "takeovers"), of("upgrade", "claims of partitions"))},
	{"instances replaced by one of the release before or after", []source{of("upgrade", "instances replaced")}},
	{"orders in flight at once, while the instance is stopped, killed and loses its state", []source{of("flight", "orders")}},
}

// notRun says what is not run, and why.
const notRun = `- Agents that consume by share groups: Waybill's agents do not.
- Days: memory that grows slowly would not be seen. A run of weeks needs a machine of its own.
- Releases side by side that are further apart than one from the next. That their journals are read is one of the
  ordinary tests.
- Loss and reordering of packets below TCP: the network is a proxy that cuts, holds back, delays and swallows.
- Networks that are cut between brokers: they share one.
- A disk that reports errors other than that it is full, or that lies about what it has written.
- Power failure: a process is killed, the system goes on, and what was written to its page cache stays.
- Under load and by lot: rights that are taken away, retention that deletes what was not read, quotas, partitions that are
  moved to other brokers, and a disk of Kafka's that is full. Some of them are tried one by one, in the ordinary tests.
- A state store that fails to flush, in the simulation: disks are filled and stores damaged in other parts.
`

// found are the faults of Waybill that these parts found. Who mends one says so here.
const found = `| what | found with | state |
| --- | --- | --- |
| A partition is stopped for ever: Kafka, one broker without replicas, is restarted in good order and leaves a transaction hanging ([ADR 0006](adr/0006-abort-what-kafka-leaves-hanging.md)); the lane survives and commits more behind it; then the hanging one is aborted, and the journal has a gap | ` + "`make chaos SEED=11`" + ` at 088de4e | mended: it ends as it was acknowledged |
| An instance that starts while a broker comes back ends, because topics are missing: the broker answers before it knows them. It is started again, and nothing is lost | ` + "`make chaos BROKERS=3 SEED=31 DURATION=2m`" + ` at 5ca5015 | mended: it asks again for three seconds |
| An instance that starts while a broker is down ends, because it asked that one for the topics. It is started again, and nothing is lost | ` + "`make chaos BROKERS=3 SEED=31 DURATION=5m`" + ` at 019e8b9 | mended: it tries on |
| While one of three brokers is down, clients that ask that one first give up: takeovers fail and begin anew, and partitions are silent for up to 77 s. Nothing is lost | ` + "`make chaos BROKERS=3 SEED=31 DURATION=5m`" + ` at 019e8b9 | mended: they ask another |
| A standby begins a partition again from the beginning of its journal, because a broker that has come back does not know the topic yet. Nothing is lost | ` + "`make chaos BROKERS=3 SEED=36 DURATION=2m`" + ` at ae33b53 | mended: it goes on where it was |
| A signal is put aside, as there is no order of its id, while the submission of that was acknowledged and stands behind somebody's open transaction | ` + "`make chaos SEED=1 DURATION=60s`" + ` before 7bff3dc | mended: it waits, for ninety seconds at least |
| The same where the submission came in the partition of another partitioner and is forwarded: the signal overtakes it on the way | ` + "`make chaos SEED=1 DURATION=60s`" + ` at 201e087 | mended: it follows the submission |
| An instance that is told to stop while Kafka is down never ends, because a submission over HTTP waits for an answer that cannot come any more. Its partitions are given up, and nothing is lost | ` + "`make chaos SEED=3 DURATION=60s RATE=10`" + ` with the commit before | mended: the submission ends with its caller |
| A transaction whose commit had succeeded is not in the journal: the client had aborted it, because it believed that nothing was written. It can, when it meets a topic for the first time and is held up between handing the records out and storing the partitions | once, on the embedded broker, in ` + "`make test RACE=1`" + ` at 91ad58b | mended: a commit that the client did not ask for counts as failed |
| An instance has folded a transaction that Kafka acknowledged and left hanging; another aborts it; the first takes over again, before anything else was committed, and goes on from what is not in the journal | ` + "`TestSimulation`" + `, about one history in 15,000 without the repair | mended: what was folded last must be in the journal |
| A transaction that hangs is ended by one of its producer; its owner dies between the beginning and the end of that one, and what was to be committed is aborted | ` + "`TestSimulation`" + `, about one history in 5,000 without the repair | mended: the marker is written, which is one act |
| Two instances end the same hanging transaction at the same time, one by a commit and one by an abort, each on some topics | ` + "`TestSimulation`" + `, one history in 275,000 | mended: all follow what the journal then says |
| The next transaction of a producer begins on top of one that hangs, and aborts it with itself | ` + "`TestSimulation`" + `, about one history in 2,000 without the repair | mended: after a lost connection a lane looks first |
| An instance has folded a transaction that Kafka acknowledged and left hanging; another aborts it; the first follows the partition meanwhile, and so hides it from its next takeover, which goes on from what is not in the journal | ` + "`TestSimulation`" + ` once instances followed, about one history in 5,000 | mended: a standby, too, begins at what was folded last |
| A transaction hangs under a producer id that has run out: nobody finds it, and no instance can take the partition over | ` + "`TestSimulation`" + ` with ids of five epochs, one history in 30 | mended: what nobody else can have written is ours |
| A transaction hangs only on a caller's topic, among alerts, or on another partition's inputs, where a record was forwarded: nobody looks there, and the readers stand still | ` + "`TestSimulation`" + ` with several partitions, one history in 50 | mended: a takeover looks everywhere |
| A transaction that hangs on the journal is aborted though what it had forwarded is committed: the record is forwarded a second time | ` + "`TestSimulation`" + ` with several partitions, one history in 50 | mended: all to which its producer wrote is read |
| An instance that may not alter the cluster ends what hangs, and initialises that slot again, alone; another has taken the partition over meanwhile, and both write | ` + "`TestSimulation`" + ` once instances had no such right, about one history in 30,000 | mended: it initialises all slots, in order |
| An order goes to Error because its new owner has not read of its workflow yet, which was registered a moment ago | ` + "`TestSimulation`" + ` once instances read of workflows late, about one history in 15,000 | mended: a new owner reads of all first |
| A record that was forwarded, and says that it is of another time, hangs: it is aborted, though its transaction was committed | ` + "`TestSimulation`" + ` with replies stamped minutes ahead | mended: the journal is read back to where the transaction stands |
| A lane whose clock is set back to before its takeover counts what it asks for twice: what waits for that agent does so for up to twice the timeout longer | ` + "`TestSimulation`" + `, one history in 200,000 | mended: what leaves from then on is its own |
`
