//go:build unix

package process

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/waybill-dev/waybill/events"
	fulfilment "github.com/waybill-dev/waybill/examples/order-fulfilment"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/audit"
	"github.com/waybill-dev/waybill/test/child"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/leftout"
	"github.com/waybill-dev/waybill/test/world"
)

// example is where the agent in Python is.
const example = "../../examples/python-agent"

// python runs programs in Python that use the packages of the example.
type python struct {
	*testing.T
	program string
	env     []string
}

func newPython(t *testing.T) *python {
	t.Helper()
	lacking := func(err error) {
		t.Helper()
		kafka.LeaveOut(t, "the agent in Python, because %v; install python3 and pip", err)
	}
	program, err := exec.LookPath("python3")
	if err != nil {
		lacking(err)
	}
	home, err := filepath.Abs(example)
	if err != nil {
		t.Fatal(err)
	}
	p := &python{T: t, program: program}
	path := home + string(os.PathListSeparator) + os.Getenv("PYTHONPATH")
	// Nothing is to be left in the source tree.
	p.env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", "PYTHONPATH="+path)
	if _, err := p.try("-c", "import confluent_kafka"); err == nil {
		return p
	}
	packages := t.TempDir()
	if said, err := p.try("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile", "--target", packages,
		"--requirement", filepath.Join(home, "requirements.txt")); err != nil {
		lacking(fmt.Errorf("pip does not install confluent-kafka: %w\n%s", err, said))
	}
	p.env = append(p.env, "PYTHONPATH="+packages+string(os.PathListSeparator)+path)
	return p
}

func (p *python) command(args ...string) *exec.Cmd {
	cmd := exec.Command(p.program, args...)
	cmd.Env, cmd.SysProcAttr = p.env, child.DieWithUs()
	return cmd
}

func (p *python) try(args ...string) (string, error) {
	said, err := p.command(args...).CombinedOutput()
	return string(said), err
}

// warehouse is the ledger of the example agent.
type warehouse struct {
	python *python
	file   string
}

// read returns the key of each order's reservation, released or not, and how often something left the shelf and came back.
func (w *warehouse) read() (keys map[string]string, left, back int) {
	w.python.Helper()
	const dump = `
import json, sqlite3, sys
db = sqlite3.connect(sys.argv[1])
keys = dict(db.execute("SELECT customer_order, key FROM reservation WHERE state <> 'refused'"))
moved = [item for item, in db.execute("SELECT item FROM movement")]
print(json.dumps({"keys": keys, "left": moved.count(-1), "back": moved.count(1)}))`
	said, err := w.python.try("-c", dump, w.file)
	var found struct {
		Keys map[string]string `json:"keys"`
		Left int               `json:"left"`
		Back int               `json:"back"`
	}
	if err == nil {
		err = json.Unmarshal([]byte(said), &found)
	}
	if err != nil {
		if strings.Contains(said, "no such table") {
			return nil, 0, 0 // it has not begun
		}
		w.python.Fatalf("%v\n%s", err, said)
	}
	return found.Keys, found.Left, found.Back
}

// C1, A6: the warehouse of the example takes back what was done under the key that an undo
// names, once, and refuses what comes under it later. An undo of an older orchestrator
// names none, and is one for all keys of its step.
func TestAnUndoInPython(t *testing.T) {
	t.Parallel()
	py := newPython(t)
	const ask = `
import json, sys, agent
warehouse = agent.Warehouse(sys.argv[1])
try:
    print(json.dumps(getattr(warehouse, sys.argv[2])({"order": "o", "step": "s", **json.loads(sys.argv[3])})))
except agent.Permanent as fault:
    print(fault.code)`
	reserve := func(key, answer string) [3]string {
		return [3]string{"reserve", fmt.Sprintf(`{"idempotencyKey":%q}`, key), answer}
	}
	release := func(key, answer string) [3]string {
		request := fmt.Sprintf(`{"idempotencyKey":%q,"stepKey":%q}`, key+":undo", key)
		if key == "" {
			request = `{"idempotencyKey":"o/s:undo"}`
		}
		return [3]string{"release", request, fmt.Sprintf(`{"released": %s}`, answer)}
	}
	done := func(key string) string { return fmt.Sprintf(`{"reservation": %q}`, key) }
	for name, c := range map[string]struct {
		asked      [][3]string
		left, back int
	}{
		"under two keys": {[][3]string{
			reserve("o/s", done("o/s")), reserve("o/s:2", done("o/s:2")), reserve("o/s", done("o/s")),
			release("o/s:2", "true"), release("o/s:2", "true"), reserve("o/s:2", "released"),
			reserve("o/s", done("o/s")), release("o/s", "true"), reserve("o/s", "released"),
		}, 2, 2},
		"nothing under one of them": {[][3]string{
			reserve("o/s:2", done("o/s:2")), release("o/s:2", "true"), release("o/s", "false"), release("o/s", "false"), reserve("o/s", "released"),
		}, 1, 1},
		"all keys at once": {[][3]string{
			reserve("o/s", done("o/s")), reserve("o/s:2", done("o/s:2")), release("", "true"), release("", "true"), reserve("o/s", "released"), reserve("o/s:3", "released"),
		}, 2, 2},
		"nothing, at once": {[][3]string{release("", "false"), reserve("o/s", "released"), release("", "false")}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			shelf := &warehouse{&python{t, py.program, py.env}, filepath.Join(t.TempDir(), "warehouse.db")}
			for n, request := range c.asked {
				if said, err := py.try("-c", ask, shelf.file, request[0], request[1]); err != nil || strings.TrimSpace(said) != request[2] {
					t.Errorf("request %d, %s %s: %v: %s", n+1, request[0], request[1], err, said)
				}
			}
			if _, left, back := shelf.read(); left != c.left || back != c.back {
				t.Errorf("%d left the shelf, %d came back", left, back)
			}
		})
	}
}

// A7, A1, A3, A6, S6: an agent that was written in another language, of the
// contract alone, takes part beside agents in Go. Killed in the middle of a step
// and started again it finds what it has done under the key, and does it once.
// Its replies go to wrong partitions, for its client hashes keys in its own way.
// Orders are compensated through it (C1).
func TestAgentInPython(t *testing.T) {
	t.Parallel()
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		if b.Kind == kafka.KindContainer {
			leftout.UnlessLong(t, "an agent in Python, on Apache Kafka")
		}
		py := newPython(t)
		c := newCluster(t, b)
		c.createTopics()
		s := c.serve("one")
		s.ready(s.client)
		registerSource(t, s.http, `
workflow: polyglot
steps:
  - {name: reserve, agent: inventory, undo: release, timeout: 1h}
  - {name: charge, agent: payment, timeout: 1h, exhausted: compensate}
  - {name: ship, agent: shipping, timeout: 1h}
`)
		c.agent("payment", fulfilment.Payments)
		c.agent("shipping", fulfilment.Shipping)
		shelf := &warehouse{py, filepath.Join(t.TempDir(), "warehouse.db")}
		agent := func(name, program string) *process {
			return startCommand(t, name, py.command(program, "--brokers", strings.Join(b.Brokers, ","), "--namespace", c.topics.Namespace,
				"--ledger", shelf.file, "-X", "partitioner=consistent_random"))
		}
		submit := func(id, input string) {
			waybill(t, "submit", "polyglot", "--id", id, "--input", input, "--server", s.http)
		}

		hanging := agent("the agent that hangs", "testdata/hangs.py")
		submit("killed", `{}`)
		hanging.until("the reservation is written", func() error {
			if keys, _, _ := shelf.read(); keys["killed"] == "" {
				return fmt.Errorf("there is none: %v", keys)
			}
			return nil
		})
		hanging.kill()
		if o := s.state(s.client, "killed", projections.Processing); o.Steps[0].State != projections.Running {
			t.Errorf("it was not killed in the middle of the step: %+v", o.Steps[0])
		}

		whole := agent("the agent in Python", filepath.Join(example, "agent.py"))
		ids := []string{"killed"}
		for n := range int64(12) {
			ids = append(ids, world.OrderID(n))
			submit(world.OrderID(n), `{"customer":"c-7"}`)
		}
		submit("declined", `{"card":"declined"}`)
		for _, id := range ids {
			whole.state(s.client, id, projections.Processed)
		}
		whole.state(s.client, "declined", projections.Compensated)
		whole.stop()

		keys, left, back := shelf.read()
		for _, id := range append(ids, "declined") {
			if keys[id] != id+"/reserve" {
				t.Errorf("the reservation of order %s stands under the key %q", id, keys[id])
			}
		}
		if n := len(ids) + 1; len(keys) != n || left != n || back != 1 {
			t.Errorf("%d orders: %d reservations, %d left the shelf, %d came back", n, len(keys), left, back)
		}
		forwarded := 0
		for _, r := range c.books.read(c.topics.Replies) {
			if events.Header(r, "waybill_forwarded_from") != "" {
				forwarded++
			}
		}
		if forwarded == 0 {
			t.Error("no reply was on a wrong partition")
		}
		books := audit.Namespace(t, b.Brokers, c.topics, true)
		if got := books.Statuses("declined"); got != "received compensating compensated" {
			t.Errorf("the caller of the declined order heard %s", got)
		}
		t.Logf("%s; %d replies were forwarded", books, forwarded)
		s.stop()
	})
}
