//go:build unix

package chaos

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/waybill-dev/waybill/test/kafka"
)

// table is the report's middle part: what was done, and what came of it.
func (f *findings) table(r *run) string {
	var b strings.Builder
	row := func(what, format string, args ...any) {
		fmt.Fprintf(&b, "| %s | %s |\n", what, fmt.Sprintf(format, args...))
	}
	died := 0
	for _, i := range r.instances {
		died += i.died
	}
	b.WriteString("| what | how much |\n| --- | --- |\n")
	row("faults for", "%s, then %s until all was ready and every order had ended", r.duration, r.ended.Sub(r.calm).Round(time.Second))
	row("orders", "%d, %d submissions were tried again", r.load.acked.Load(), r.load.again.Load())
	row("events in the journal", "%d", f.events)
	row("requests to agents", "%d", f.requests)
	row("calls of the agents' services", "%d", r.service.calls)
	row("commands of operators", "%d", r.office.count)
	row("claims of partitions", "%d", f.claims)
	row("zombies: instances that woke up when others owned their partitions", "%d, of %d partitions", f.woken.instances, f.woken.partitions)
	row("zombies: instances that reached Kafka again when others owned their partitions", "%d, of %d partitions", f.reached.instances, f.reached.partitions)
	row("transactions that hung, and were aborted", "%d", f.said["aborted a transaction that hung"])
	row("state stores that were found damaged, and rebuilt by themselves", "%d",
		f.said["the state store is set aside and rebuilt from the journal"]+f.said["the state store is damaged; it is removed and rebuilt from the journal"])
	row("lanes that ended and took their partition over again", "%d", f.said["the lane ended; taking the partition over again"])
	row("instances that ended without being told to, and were started again", "%d", died)
	row("instances that did not end well within 30 s of SIGTERM", "%d", r.forced)
	row("**lost**", "**%d**", len(f.lost))
	row("**doubled**", "**%d**", len(f.doubled))
	row("**stuck**", "**%d**", len(f.stuck))
	row("**other rules broken**", "**%d**", len(f.broken))

	b.WriteString("\n| fault | times |\n| --- | --- |\n")
	for _, k := range kinds {
		if r.without != nil && r.without.MatchString(string(k)) {
			row(string(k), "left out")
			continue
		}
		n, left := 0, 0
		for _, d := range r.faults {
			switch {
			case d.Kind != k:
			case d.Left == "":
				n++
			default:
				left++
			}
		}
		if left > 0 {
			row(string(k), "%d, left out %d times: no file system could be mounted", n, left)
		} else {
			row(string(k), "%d", n)
		}
	}

	b.WriteString("\n| how long | times | p50 | p90 | p99 | most |\n| --- | --- | --- | --- | --- | --- |\n")
	for _, m := range []struct {
		what string
		all  []time.Duration
	}{
		{"takeover of a partition: fencing its former owner", f.fences},
		{"takeover of a partition: until it is served", f.totals},
		{"from a kill until all partitions of the dead are served", f.afterKill},
		{"the same, for kills while Kafka was well", f.kafkaUp},
		{"from a SIGSTOP until others serve all partitions", f.afterFreeze},
		{"from a SIGTERM until all partitions are served", f.afterTerm},
		{"from Kafka's return until every partition has a new event", f.afterUp},
	} {
		slices.Sort(m.all)
		if len(m.all) == 0 {
			fmt.Fprintf(&b, "| %s | 0 | | | | |\n", m.what)
			continue
		}
		fmt.Fprintf(&b, "| %s | %d", m.what, len(m.all))
		for _, q := range []int{50, 90, 99, 100} {
			fmt.Fprintf(&b, " | %s", brief(m.all[max(0, (len(m.all)*q+99)/100-1)]))
		}
		b.WriteString(" |\n")
	}
	return b.String()
}

func brief(d time.Duration) string {
	if d < time.Second {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(100 * time.Millisecond).String()
}

// found are the faults of Waybill that this runner found. Who mends one says so here.
const found = `| what | found with | state |
| --- | --- | --- |
| A partition is stopped for ever: Kafka, one broker without replicas, is restarted in good order and leaves a transaction hanging ([ADR 0006](adr/0006-abort-what-kafka-leaves-hanging.md)); the lane survives and commits more behind it; then the hanging one is aborted, and the journal has a gap | ` + "`make chaos SEED=11`" + ` | open |
`

// write writes the report.
func (f *findings) write(r *run, file string) error {
	verdict := "This run found nothing wrong."
	if r.Failed() {
		verdict = "**This run found something wrong.**"
	}
	omitted, leftOut := "", ""
	if r.without != nil {
		omitted = fmt.Sprintf(" WITHOUT='%s'", r.without)
		leftOut = "- The faults that the table calls left out.\n"
	}
	text := fmt.Sprintf(`# Reliability

Written by `+"`make chaos`"+`; the next run writes it again.

Three instances of `+"`waybill serve`"+` on Apache Kafka, 12 partitions, four workflows with undo, waits, parallel steps and
conditions, agents that fail, refuse, are slow or silent, operators who interfere. Faults are drawn by a seed for each
instance and for Kafka, so they come alone and on top of each other. Then they stop, the agents answer everything,
operators resubmit what is in Error, and all that stands on Kafka is checked: every submission was accepted once and
ended, every command was acted on once, no history breaks a rule of [the oracle](../test/oracle), every request, status
and alert left once, agents did what the journal says and nothing that it does not ask for, every attempt was begun by
the partition's last claimant, and the projections of all three instances equal a replay of the journal.

%s

| | |
| --- | --- |
| date | %s |
| commit | %s |
| run again with | `+"`make chaos DURATION=%s SEED=%d RATE=%g%s`"+` |
| versions | %s, franz-go %s, %s |
| machine | %s |
| session time-out | %s |

%s
A seed draws the same faults at the same times. What they meet is not the same: the system schedules processes as it
likes. Times until partitions are served include whatever came on top, such as Kafka being down.

Where an instance is killed, others learn of it by the session time-out; it is %s here so that a run has many
takeovers, and 10 s by default. An instance with a dead process is started again, and what ends by itself is started
again after a second, as a process supervisor does it.

## Found

%s
## Not run

%s- More than one broker: Kafka is one node here, with replication 1. What it does when the leader of a partition moves is
  not tried.
- Clocks that differ: a process cannot have a clock of its own without support in the program or the kernel.
- Loss and reordering of packets below TCP: the network is a proxy that cuts, holds back and delays.
- A disk that reports errors other than that it is full, or that lies about what it has written.
- Power failure: a process is killed, the system goes on, and what was written to its page cache stays.
- Days: memory that grows slowly would not be seen.
- Releases side by side: all instances are of one build.
`, verdict, r.ended.UTC().Format(time.DateOnly), r.commit, r.duration, r.seed, r.rate, omitted, runtime.Version(), franz(), kafka.Image,
		machine(), r.session, f.table(r), r.session, found, leftOut)
	return os.WriteFile(file, []byte(text), 0o644)
}

func said(name string, args ...string) string {
	out, err := exec.Command(name, args...).Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

// commit is that of the program, which is in the directories named here.
func commit() string {
	hash := said("git", "rev-parse", "--short", "HEAD")
	shipped := []string{"cmd", "internal", "orchestrator", "compensation", "projections", "events", "agents", "go.mod"}
	changed := []string{"-C", "../..", "status", "--porcelain", "--untracked-files=no", "--"}
	if said("git", append(changed, shipped...)...) != "" {
		hash += ", and changes on top of it"
	}
	return hash
}

func franz() string {
	return said("go", "list", "-m", "-f", "{{.Version}}", "github.com/twmb/franz-go")
}

func machine() string {
	m := fmt.Sprintf("%d cores, %s/%s", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH)
	info, _ := os.ReadFile("/proc/cpuinfo") // not everywhere
	if name := regexp.MustCompile(`model name\s*:\s*(.*)`).FindSubmatch(info); name != nil {
		m += ", " + string(name[1])
	}
	memory, _ := os.ReadFile("/proc/meminfo")
	var kib int
	if _, err := fmt.Sscanf(string(memory), "MemTotal: %d kB", &kib); err == nil {
		m += fmt.Sprintf(", %d GiB", (kib+1<<19)>>20)
	}
	return m + "; Kafka, agents and callers run on it too"
}
