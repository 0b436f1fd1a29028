//go:build unix

package process

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/world"
)

// kcat is a client that we did not write, in another language (A7).
type kcat struct {
	*testing.T
	program, broker string
}

func newKcat(t *testing.T) *kcat {
	t.Helper()
	program, err := exec.LookPath("kcat")
	if err != nil {
		kafka.LeaveOut(t, "a client in another language, because %v; it is in the package kcat of Debian and others", err)
	}
	return &kcat{T: t, program: program}
}

func (k *kcat) run(stdin string, args ...string) string {
	k.Helper()
	cmd := exec.CommandContext(k.Context(), k.program, append([]string{"-b", k.broker}, args...)...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	if err := cmd.Run(); err != nil {
		k.Fatalf("%s: %v\n%s", cmd, err, &errs)
	}
	return out.String()
}

// read returns the records of orders on a topic, each as its key and value.
func (k *kcat) read(topic string) []string {
	k.Helper()
	var all []string
	for line := range strings.Lines(k.run("", "-C", "-t", topic, "-o", "beginning", "-e", "-q", "-f", `%k %s\n`)) {
		if line = strings.TrimSuffix(line, "\n"); !strings.HasPrefix(line, " ") { // a lane's events have no key
			all = append(all, line)
		}
	}
	slices.Sort(all)
	return all
}

// A7: a client in another language submits orders, wherever it puts them, and reads
// the journal and the status messages.
func TestKcat(t *testing.T) {
	k := newKcat(t)
	d := startDev(t)
	k.broker = d.kafka
	registerPatient(t, d.http)

	var ids []string
	var lines strings.Builder
	for n := range int64(40) {
		ids = append(ids, world.OrderID(n+1))
		fmt.Fprintf(&lines, "%s:{\"workflow\":\"patient\"}\n", ids[n])
	}
	k.run(lines.String(), "-P", "-t", d.books.topics.Orders, "-K:")
	d.processed(d.client, ids)
	d.books.check(ids)

	// librdkafka hashes keys in its own way, so most went astray.
	forwarded := 0
	for _, r := range d.books.read(d.books.topics.Orders) {
		if events.Header(r, "waybill_forwarded_from") != "" {
			forwarded++
		}
	}
	if forwarded == 0 {
		t.Error("no order was on a wrong partition")
	}
	t.Logf("%d of %d orders were forwarded", forwarded, len(ids))

	if got, want := k.read(d.books.topics.Journal), d.books.lines(d.books.topics.Journal); !slices.Equal(got, want) {
		t.Errorf("kcat reads %d events in the journal, of %d", len(got), len(want))
	}
	completed := make(map[string]int)
	for _, line := range k.read(d.books.topics.Status) {
		id, value, _ := strings.Cut(line, " ")
		var s struct {
			Order  string `json:"order"`
			Status string `json:"status"`
		}
		if err := json.Unmarshal([]byte(value), &s); err != nil || s.Order != id {
			t.Fatalf("%s: %v", line, err)
		}
		if s.Status == "completed" {
			completed[id]++
		}
	}
	for _, id := range ids {
		if completed[id] != 1 {
			t.Errorf("order %s was reported completed %d times", id, completed[id])
		}
	}
	d.stop()
}
