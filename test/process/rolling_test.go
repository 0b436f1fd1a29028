//go:build unix

package process

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/leftout"
	"github.com/waybill-dev/waybill/test/reliability"
)

// Instances of the release before are replaced by this one, one after the other
// and under load, and back again, so that both serve side by side: nothing is
// lost, doubled or stuck. At last the format rises, under load too. WAYBILL_UPGRADES
// says how often; without it the test is left out. Continuous integration runs one
// round, without the race detector.
func TestRollingUpgrade(t *testing.T) {
	rounds := number(t, "WAYBILL_UPGRADES", 0)
	if rounds == 0 {
		t.Skip(leftout.Prefix + "releases side by side, because they take minutes; say how many rounds with WAYBILL_UPGRADES")
	}
	broker := kafka.Container(t)
	old := buildPrevious(t)
	var times reliability.Figures
	replaced, claimed, orders := 0, 0, 0

	// No retry repairs in silence what a change of owners lost.
	t.Run("patient", func(t *testing.T) {
		r := rollingFrom(t, broker, old)
		registerPatient(t, r.instances[0].http)
		r.agents()
		load := startPulse(t, r.cluster)
		r.rolls(rounds)
		r.finish()
		ids := load.stop()
		r.instances[0].processed(r.instances[0].client, ids)
		r.books.check(ids)
		decisions, claims := r.journal()
		times = r.times(decisions, claims)
		replaced, claimed, orders = replaced+r.replaced, claimed+total(claims), orders+len(ids)
		r.end()
	})
	// The whole pattern: agents that fail and are silent, undos, operators.
	t.Run("drawn", func(t *testing.T) {
		r := rollingFrom(t, broker, old)
		w := draw(t, r.topics, broker.Brokers[0], r.instances[0].client, r.instances[0].http, previousLevel)
		r.rolls(rounds)
		r.registers()
		w.beside += r.passes("before", previousFormat >= events.BaggageFormat)
		r.finish()
		w.beside += r.passes("after", true)
		w.finish(r.instances[0].process)
		w.check()
		kafka, err := kgo.NewClient(kgo.SeedBrokers(broker.Brokers...))
		if err != nil {
			t.Fatal(err)
		}
		defer kafka.Close()
		if _, err := kadm.NewClient(kafka).CreateTopic(t.Context(), 2, 1, nil, told); err != nil {
			t.Fatal(err)
		}
		for n := range 5 { // of one workflow that has much of what there is
			id, s := fmt.Sprint("nests-", n), r.instances[n%len(r.instances)]
			if n%2 == 0 {
				waybill(t, "submit", "nests", "--id", id, "--server", s.http)
			} else {
				waybill(t, "signal", id, "begins", "--id", "b-1", "--server", s.http)
				id = events.StartedID(events.CorrelationID("begins", id), 1)
			}
			s.until(id+" has begun the order that does its step, which is told", func() error { // as often as it takes: it has an id
				if said, err := command(t.Context(), t, "order", "signal", events.ChildID(events.IdempotencyKey(id, "hear", 0)), "paid", "--id", "p-1", "--server", s.http).CombinedOutput(); err != nil {
					return fmt.Errorf("%w: %s", err, said)
				}
				return nil
			})
			s.until(id+" has ended with it", func() error {
				if said, err := command(t.Context(), t, "order", "get", id, "--server", s.http).CombinedOutput(); err != nil || !strings.Contains(string(said), "Processed") {
					return fmt.Errorf("%s (%v)", said, err)
				}
				return nil
			})
		}
		_, claims := r.journal()
		replaced, claimed, orders = replaced+r.replaced, claimed+total(claims), orders+int(w.load.Acked())
		r.end()
	})
	reliability.Write(t, "upgrade", fmt.Sprintf("make reliability PART=upgrade UPGRADES=%d", rounds), reliability.Figures{
		{Name: "the release before", Value: previous[:7]},
		{Name: "rounds", Value: rounds},
		{Name: "instances", Value: 3},
		{Name: "partitions", Value: partitions},
		{Name: "orders", Value: orders},
		{Name: "instances replaced", Value: replaced},
		{Name: "claims of partitions", Value: claimed},
		{Name: "times", Value: times},
	})
}

// told is the topic that a step of that workflow gives an event.
const told = "rolling.told"

func total(claims map[int32][]time.Time) (n int) {
	for _, of := range claims {
		n += len(of)
	}
	return n
}

// rolling are instances whose release is changed.
type rolling struct {
	*measuring
	old      string
	replaced int // instances
}

// rollingFrom starts instances of the release before.
func rollingFrom(t *testing.T, broker *kafka.Broker, old string) *rolling {
	t.Helper()
	c := newCluster(t, broker)
	c.createTopics()
	c.program = old
	r := &rolling{measuring: &measuring{cluster: c}, old: old}
	for _, id := range []string{"one", "two", "three"} {
		r.serve(id)
	}
	for _, s := range r.instances {
		s.ready(s.client)
	}
	r.instances[0].owned(r.instances...)
	return r
}

// rolls goes to this release and back as often as that, and then to this release.
func (r *rolling) rolls(rounds int) {
	r.Helper()
	r.goesOn()
	r.change(nil, "nothing", r.goesOn)
	for range rounds {
		r.all("upgrade", "")
		r.all("downgrade", r.old)
	}
	r.all("upgrade", "")
}

// registers registers what the orders are of by which the releases are told apart, or that have much of what there is.
func (r *rolling) registers() {
	r.Helper()
	register := func(name, steps string, more ...string) {
		file := fileOf(r.T, fmt.Sprintf("workflow: %s\n%s\nsteps: [%s]", name, strings.Join(more, "\n"), steps))
		waybill(r.T, "workflow", "register", file, "--server", r.instances[0].http)
	}
	register("listens", "{name: hear, listen: paid}")
	register("nests", "{name: hear, order: listens}, {name: nap, each: {items: '[1, 2]', steps: [{name: nap, sleep: 10ms}]}}, {name: tell, emit: {topic: "+told+", type: com.acme.told}}", "start: begins", "concurrency: {key: '\"all\"'}")
	register("naps", "{name: nap, sleep: 10ms}")
}

// passes: an order keeps the baggage of its submission, from the end of the upgrade on if the release before does not write it. It
// returns how many it submits.
func (r *rolling) passes(when string, keeps bool) (submitted int64) {
	r.Helper()
	for n, s := range r.instances {
		id := fmt.Sprint("passes-", when, "-", n)
		q, err := http.NewRequestWithContext(r.Context(), http.MethodPost, "http://"+s.http+"/api/v1/orders", strings.NewReader(fmt.Sprintf(`{"id":%q,"workflow":"naps"}`, id)))
		if err != nil {
			r.Fatal(err)
		}
		q.Header.Set("Content-Type", "application/json")
		q.Header.Set("Baggage", "tenant=a")
		answer, err := http.DefaultClient.Do(q)
		if err != nil {
			r.Fatal(err)
		}
		if answer.Body.Close(); answer.StatusCode != http.StatusAccepted {
			r.Fatalf("order %s: %s", id, answer.Status)
		}
		submitted++
		s.until(id+" has ended", func() error {
			said, err := command(s.Context(), r.T, "order", "history", id, "-o", "json", "--server", s.http).CombinedOutput()
			if err != nil || !strings.Contains(string(said), "order.completed") {
				return fmt.Errorf("%s (%v)", said, err)
			}
			if strings.Contains(string(said), "tenant=a") != keeps {
				r.Errorf("%s the upgrade is finished, order %s has its baggage: %t\n%s", when, id, !keeps, said)
			}
			return nil
		})
	}
	return submitted
}

// finish has every partition rise at once: what follows is decided, and callers' own
// topics are told, as only this release does.
func (r *rolling) finish() {
	r.Helper()
	r.change(nil, "upgrade finish", func() {
		for _, s := range r.instances {
			s.until("the upgrade is finished", func() error {
				if said, err := command(s.Context(), r.T, "upgrade", "finish", "--server", s.http).CombinedOutput(); err != nil {
					return fmt.Errorf("%w: %s", err, said)
				}
				return nil
			})
		}
		r.goesOn()
	})
	raised, _ := r.books.formats(events.JournalFormat)
	for p := range int32(partitions) { // now; where the release before writes the format, too, when it began, if at all
		if raised[p] > 1 || raised[p] == 0 && previousFormat < events.JournalFormat {
			r.Errorf("partition %d was raised %d times", p, raised[p])
		}
	}
}

// all replaces one instance after the other. The last one comes back without
// what it had on disk.
func (r *rolling) all(what, program string) {
	r.Helper()
	for n, s := range r.instances {
		what := what
		if n == len(r.instances)-1 {
			what += ", data directory lost"
		}
		r.change(s, what, func() {
			s.stop()
			if n == len(r.instances)-1 {
				if err := os.RemoveAll(s.dir); err != nil {
					r.Fatal(err)
				}
			}
			s.program = program
			s.again()
			s.ready(s.client)
			s.owned(r.instances...)
			r.goesOn()
		})
		r.replaced++
	}
}

// goesOn waits until every partition has more events.
func (r *rolling) goesOn() {
	r.Helper()
	s := r.instances[0]
	var from []int64
	s.until("every partition goes on", func() error {
		all, err := s.client.Partitions(s.Context())
		if err != nil {
			return err
		}
		if from == nil {
			for _, p := range all {
				from = append(from, p.Offset)
			}
		}
		for i, p := range all {
			if p.Offset < from[i]+100 {
				return fmt.Errorf("partition %d has %d new events", p.Partition, p.Offset-from[i])
			}
		}
		return nil
	})
}

// end holds the state of every instance against the journal, and stops them.
func (r *rolling) end() {
	r.Helper()
	for _, s := range r.instances {
		waybill(r.T, append([]string{"replay", "--verify", "--server", s.http}, r.flags...)...)
	}
	for _, s := range r.instances {
		s.stop()
	}
}

// Once a release has used what the one before does not know, that one decides
// nothing, also on the state store that the newer one has folded, and says why.
// The newer one goes on where it was.
func TestDowngradeThatIsRefused(t *testing.T) {
	leftout.UnlessLong(t, "a downgrade")
	c := newCluster(t, kafka.Embedded(t))
	c.createTopics()
	newer := buildNewer(t)
	c.program = newer
	s := c.serve("one", "--upgrade-after", "0s")
	s.ready(s.client)
	registerPatient(t, s.http)
	c.agents()
	load := submitting(t, c.topics, c.broker.Brokers...)
	c.raised(s)
	load.more(s.process, 50)
	s.stop()

	s.program = ""
	s.again()
	s.until("the older release says why it serves nothing", func() error {
		var problem *api.Problem
		if err := s.client.Ready(s.Context()); !errors.As(err, &problem) || !strings.Contains(problem.Error(), projections.ErrNewer.Error()) {
			return fmt.Errorf("it says %w", err)
		}
		return nil
	})
	load.more(s.process, 50)
	s.stop()

	s.program = newer
	s.again()
	ids := load.stop(s.process)
	s.processed(s.client, ids)
	c.books.check(ids)
	s.stop()
}

// buildNewer builds a release to come: this one, with a newer journal.
func buildNewer(t *testing.T) string {
	t.Helper()
	root, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(string(bytes.TrimSpace(root)), "events", "format.go")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const rule = "const JournalFormat = %d"
	newer := bytes.Replace(text, fmt.Appendf(nil, rule, events.JournalFormat), fmt.Appendf(nil, rule, events.JournalFormat+1), 1)
	if bytes.Equal(newer, text) {
		t.Fatalf("%s does not say what the format is", file)
	}
	dir := t.TempDir()
	replacement, overlay, program := filepath.Join(dir, "format.go"), filepath.Join(dir, "overlay.json"), filepath.Join(dir, "waybill-newer")
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{file: replacement}})
	if err := errors.Join(err, os.WriteFile(replacement, newer, 0o600), os.WriteFile(overlay, replace, 0o600)); err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-overlay", overlay, "-o", program, "github.com/waybill-dev/waybill/cmd/waybill")
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", build, err, said)
	}
	return program
}
