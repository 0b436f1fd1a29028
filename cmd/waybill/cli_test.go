package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/test/oracle"
)

// call is one run of the program.
type call struct {
	code      int
	out, errs string
}

func waybill(t *testing.T, stdin string, args ...string) call {
	t.Helper()
	var out, errs bytes.Buffer
	code := run(t.Context(), args, strings.NewReader(stdin), &out, &errs)
	return call{code, out.String(), errs.String()}
}

// want checks the exit code, and that out and errs hold what they should.
func (c call) want(t *testing.T, code int, out, errs string) {
	t.Helper()
	if c.code != code || !strings.Contains(c.out, out) || !strings.Contains(c.errs, errs) {
		t.Errorf("exit code %d instead of %d\nwant %q in stdout:\n%s\nwant %q in stderr:\n%s", c.code, code, out, c.out, errs, c.errs)
	}
}

// background runs the program until the test ends, and returns what it wrote
// up to and with the first line that holds mark. Its exit code must be 0.
func background(t *testing.T, fromErrs bool, mark string, args ...string) (said string, stop func()) {
	t.Helper()
	read, write := io.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan int, 1)
	go func() {
		var other bytes.Buffer
		out, errs := io.Writer(write), io.Writer(&other)
		if fromErrs {
			out, errs = errs, out
		}
		code := run(ctx, args, strings.NewReader(""), out, errs)
		_ = write.Close() // a pipe in memory
		if code != 0 {
			t.Errorf("%q ended with %d: %s", args, code, &other)
		}
		ended <- code
	}()
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			cancel()
			<-ended
		}
	}
	t.Cleanup(stop)
	lines := bufio.NewScanner(read)
	found := false
	for !found && lines.Scan() {
		said += lines.Text() + "\n"
		found = strings.Contains(lines.Text(), mark)
	}
	go func() { _, _ = io.Copy(io.Discard, read) }() // ends with the program
	if !found {
		t.Fatalf("%q ended without %q:\n%s", args, mark, said)
	}
	return said, stop
}

var (
	httpAddress  = regexp.MustCompile(`http://127\.0\.0\.1:\d+`)
	kafkaAddress = regexp.MustCompile(`Kafka +(127\.0\.0\.1:\d+)`)
)

// startDev runs dev on free ports.
func startDev(t *testing.T, dir string, args ...string) (server, brokers string, stop func()) {
	t.Helper()
	said, stop := background(t, false, "Ctrl-C", append([]string{"dev", "--data-dir", dir, "--kafka-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0"}, args...)...)
	return httpAddress.FindString(said), kafkaAddress.FindStringSubmatch(said)[1], stop
}

// clearEnvironment takes the caller's own settings out of the test.
func clearEnvironment(t *testing.T) {
	for _, pair := range os.Environ() {
		if name, _, _ := strings.Cut(pair, "="); strings.HasPrefix(name, envPrefix) {
			t.Setenv(name, "")
		}
	}
}

func write(t *testing.T, name, content string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

const flow = "workflow: w\nsteps:\n- {name: a, agent: nobody}\n"

func TestDev(t *testing.T) {
	clearEnvironment(t)
	dir := t.TempDir()
	server, brokers, stop := startDev(t, dir, "--partitions", "2")
	t.Setenv("WAYBILL_SERVER", server)
	t.Setenv("WAYBILL_BROKERS", brokers)

	t.Run("submit", func(t *testing.T) {
		waybill(t, "", "submit", "order-fulfilment@1", "--id", "o-1", "--input", `{"total":42}`, "--wait").want(t, 0, "Processed", "")
		waybill(t, `{"card":"declined"}`, "submit", "order-fulfilment", "--id", "o/2", "--input", "-", "--wait").want(t, 7, "card-declined", "order o/2 is Error")
		waybill(t, "", "submit", "order-fulfilment", "--input", "@"+write(t, "in.json", "{}"), "--wait", "-o", "json").want(t, 0, `"processState": "Processed"`, "")
		waybill(t, "", "submit", "order-fulfilment", "--id", "o-3").want(t, 0, "o-3\n", "")
		waybill(t, "", "submit", "order-fulfilment", "--id", "o-3b", "-o", "json", "--priority", "high", "--deadline", "2100-01-01T00:00:00Z").want(t, 0, `"orderId": "o-3b"`, "")
		oracle.Until(t, "the newest format", func() error {
			var u api.Upgrade
			c := waybill(t, "", "upgrade", "finish", "-o", "json")
			if err := json.Unmarshal([]byte(c.out), &u); err != nil || u.Format != events.JournalFormat {
				return fmt.Errorf("it is %s%s: %w", c.out, c.errs, err)
			}
			return nil
		})
		for range 2 {
			waybill(t, "", "submit", "order-fulfilment@1", "--id", "o-5", "--input", `{ "total": 42 }`, "--wait").want(t, 0, "Processed", "")
		}
		waybill(t, "", "submit", "order-fulfilment@1", "--id", "o-5", "--input", `{"total":43}`).want(t, 4, "", `the id is that of another submission: there is an order "o-5"`)
		waybill(t, "", "submit", "none", "--id", "o-4", "--wait").want(t, 4, "", "nothing was submitted: workflow none is not registered")
	})
	t.Run("order", func(t *testing.T) {
		waybill(t, "", "order", "get", "o/2").want(t, 0, "card-declined", "")
		waybill(t, "", "order", "get", "none").want(t, 3, "", `there is no order "none"`)
		c := waybill(t, "", "order", "get", "o-1", "-o", "json")
		var o map[string]any
		if err := json.Unmarshal([]byte(c.out), &o); err != nil || o["processState"] != "Processed" || o["lockedBy"] != nil || len(o["steps"].([]any)) != 3 {
			t.Errorf("%v: %s", err, c.out)
		}
		waybill(t, "", "order", "list", "--state", "Error").want(t, 0, "o/2", "")
		waybill(t, "", "order", "list", "--limit", "1").want(t, 0, "", "There are more")
		waybill(t, "", "order", "list", "--limit", "0", "-o", "json").want(t, 0, `"orders": [`, "")
		waybill(t, "", "order", "history", "o-1").want(t, 0, "order.completed", "")
		waybill(t, "", "order", "history", "o-1", "-o", "json").want(t, 0, `"type": "waybill.order.completed"`, "")
		waybill(t, "", "alerts").want(t, 0, "o/2", "")
		waybill(t, "", "alerts", "-o", "json").want(t, 0, `"step": "charge"`, "")
	})
	t.Run("text for a terminal", func(t *testing.T) {
		waybill(t, "", "submit", "order-fulfilment", "--id", "\x1b[31m", "--wait").want(t, 0, `\u001b[31m`, "")
	})
	t.Run("workflow", func(t *testing.T) {
		good, bad := write(t, "good.yaml", flow), write(t, "bad.yaml", "workflow: b\nsteps:\n- {nme: a}\n")
		waybill(t, "", "workflow", "register", good, bad).want(t, 1, "", "bad.yaml:3:4: unknown key")
		if c := waybill(t, "", "workflow", "list"); strings.Contains(c.out, "nobody") {
			t.Errorf("something was registered beside a bad file: %s", c.out)
		}
		other := strings.Replace(flow, "nobody", "someone", 1)
		waybill(t, other, "workflow", "register", good, "-").want(t, 1, "", "w@1 stands in")
		waybill(t, "", "workflow", "register", good).want(t, 0, "w@1", "")
		waybill(t, flow, "workflow", "register", "-").want(t, 0, "w@1", "")
		waybill(t, other, "workflow", "register", "-").want(t, 1, "", "another content")
		waybill(t, "", "workflow", "list").want(t, 0, "nobody", "")
		waybill(t, "", "workflow", "list", "-o", "json").want(t, 0, `"workflow": "w"`, "")
		waybill(t, "", "workflow", "show", "w").want(t, 0, "nobody", "")
		waybill(t, "", "workflow", "show", "w@2").want(t, 3, "", "w@2 is not registered")
		c := waybill(t, "", "workflow", "show", "w@1", "-o", "json")
		waybill(t, c.out, "workflow", "check", "-").want(t, 0, "w@1", "")

		waybill(t, "", "workflow", "retire", "w@1").want(t, 0, "retired w@1", "")
		waybill(t, "", "workflow", "register", good).want(t, 0, "registered  w@1  "+good+"  retired\n", "good.yaml: workflow w@1 is registered, and retired: no new order may have it until waybill workflow retire w@1 --restore\n")
		waybill(t, "", "workflow", "register", good, "-o", "json").want(t, 0, "\"retired\": [\n    \"w@1\"\n", "")
		waybill(t, "", "workflow", "show", "w").want(t, 3, "", "workflow w is retired, in every version: name one of those that waybill workflow versions w lists")
		waybill(t, "", "workflow", "show", "w@1").want(t, 0, "nobody", "")
		if c := waybill(t, "", "workflow", "list"); strings.Count(c.out, "retired\n") != 1 || !strings.Contains(c.out, "nobody") {
			t.Errorf("%s", c.out)
		}
		waybill(t, "", "workflow", "list", "-o", "json").want(t, 0, "\"retired\": [\n    \"w@1\"\n", "")
		waybill(t, "", "workflow", "retire", "w@1", "--restore").want(t, 0, "restored w@1", "")
		if c := waybill(t, "", "workflow", "register", good, "-o", "json"); c.code != 0 || c.errs != "" || strings.Contains(c.out, "retired") {
			t.Errorf("%+v", c)
		}
	})
	t.Run("giving up", func(t *testing.T) {
		waybill(t, "", "submit", "w", "--id", "waits", "--wait", "--timeout", "300ms").want(t, 8, "", "gave up waiting for order waits")
	})
	t.Run("replay", func(t *testing.T) {
		waybill(t, "", "replay").want(t, 0, "Orders", "")
		waybill(t, "", "replay", "--verify").want(t, 0, "Differences  0", "")
		waybill(t, "", "replay", "--verify", "-o", "json").want(t, 0, `"differences": 0`, "")
		waybill(t, "", "replay", "--order", "o/2").want(t, 0, "-> waybill.alerts: waybill.alert.raised", "")
		waybill(t, "", "replay", "--order", "o-1", "-o", "json").want(t, 0, `"topic": "waybill.requests.inventory"`, "")
		waybill(t, "", "replay", "--order", "none").want(t, 1, "", `no order "none"`)
		waybill(t, "", "replay", "--namespace", "none").want(t, 1, "", "no topic none.journal")
	})
	t.Run("replay of a damaged state", func(t *testing.T) {
		c := waybill(t, "", "replay", "--verify", "-o", "json", "--server", damaging(t, server))
		c.want(t, 1, "", "3 keys differ")
		for _, what := range []string{`"missing in the instance"`, `"only in the instance"`, `"another value"`} {
			c.want(t, 1, what, "")
		}
	})
	t.Run("topics", func(t *testing.T) {
		waybill(t, "", "topics", "check").want(t, 0, "as they should be", "")
		waybill(t, "", "topics", "check", "--namespace", "none").want(t, 1, "missing", "topics create")
		client, err := kgo.NewClient(kgo.SeedBrokers(brokers), kgo.DisableClientMetrics())
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		admin := kadm.NewClient(client)
		if _, err := admin.CreateTopic(t.Context(), 3, 1, nil, "odd.orders"); err != nil {
			t.Fatal(err)
		}
		waybill(t, "", "topics", "create", "--namespace", "odd", "--partitions", "2").want(t, 1, "", "odd.orders has 3 partitions, and 2 were asked for")
		if _, err := admin.CreateTopic(t.Context(), 2, 1, nil, "odd.journal"); err != nil {
			t.Fatal(err)
		}
		waybill(t, "", "topics", "create", "--namespace", "odd", "--partitions", "2").want(t, 0, "odd.replies", "")
		waybill(t, "", "topics", "check", "--namespace", "odd").want(t, 1, "partitions", "2 differences")
		waybill(t, "", "topics", "create", "--namespace", "odd", "--partitions", "5").want(t, 1, "", "odd.journal has 2 partitions, and 5 were asked for: the number can never change")

		// A namespace that is older than a topic.
		waybill(t, "", "topics", "create", "--namespace", "older", "--partitions", "3").want(t, 0, "older.commands", "")
		if _, err := admin.DeleteTopic(t.Context(), "older.commands"); err != nil {
			t.Fatal(err)
		}
		waybill(t, "", "serve", "--namespace", "older", "--data-dir", t.TempDir(), "--http-addr", "127.0.0.1:0").want(t, 1, "", "older.commands is missing: `waybill topics create` creates it")
		waybill(t, "", "topics", "create", "--namespace", "older", "--partitions", "12").want(t, 1, "", "older.journal has 3 partitions, and 12 were asked for")
		waybill(t, "", "topics", "create", "--namespace", "older", "-o", "json").want(t, 0, "\"created\": [\n    \"older.commands\"\n  ]", "")
		waybill(t, "", "topics", "check", "--namespace", "older").want(t, 0, "as they should be", "")
		waybill(t, "", "topics", "create", "--namespace", "older").want(t, 0, "All topics of namespace older are there", "")
		waybill(t, "", "topics", "create", "--namespace", "new").want(t, 0, "new.journal", "")
		waybill(t, "", "topics", "create", "--namespace", "new", "--partitions", "12").want(t, 0, "All topics", "")
	})
	t.Run("serve", func(t *testing.T) {
		waybill(t, "", "topics", "create", "--namespace", "second", "--partitions", "1", "-o", "json").want(t, 0, `"second.orders"`, "")
		args := []string{"serve", "--namespace", "second", "--data-dir", t.TempDir(), "--http-addr", "127.0.0.1:0", "--session-timeout", "2s"}
		said, _ := background(t, true, "took the partition over", args...)
		second := httpAddress.FindString(said)
		waybill(t, "", "workflow", "register", write(t, "w.yaml", flow), "--server", second).want(t, 0, "w@1", "")
		waybill(t, "", "submit", "w", "--id", "o-1", "--server", second).want(t, 0, "o-1", "")
		waybill(t, "", "serve", "--namespace", "third", "--data-dir", t.TempDir(), "--http-addr", "127.0.0.1:0").want(t, 1, "", "topics create")
	})
	t.Run("addresses in use", func(t *testing.T) {
		waybill(t, "", "dev", "--data-dir", dir).want(t, 1, "", "in use by another process")
		waybill(t, "", "dev", "--data-dir", t.TempDir(), "--kafka-addr", brokers).want(t, 1, "", "--kafka-addr")
		waybill(t, "", "dev", "--data-dir", t.TempDir(), "--kafka-addr", "127.0.0.1:0", "--http-addr", strings.TrimPrefix(server, "http://")).want(t, 1, "", "--http-addr")
	})
	stop()

	t.Run("again", func(t *testing.T) {
		waybill(t, "", "dev", "--data-dir", dir, "--kafka-addr", "127.0.0.1:0", "--partitions", "3").want(t, 1, "", "has 2 partitions")
		server, brokers, _ := startDev(t, dir)
		waybill(t, "", "order", "get", "o-1", "--server", server).want(t, 0, "Processed", "")
		waybill(t, "", "submit", "order-fulfilment", "--wait", "--server", server).want(t, 0, "Processed", "")
		waybill(t, "", "replay", "--verify", "--server", server, "--brokers", brokers).want(t, 0, "Differences  0", "")
	})
}

// damaging passes requests on to a server, and spoils the projection of
// partition 0: one key is left out, one changed, and one added at the end.
func damaging(t *testing.T, server string) string {
	to, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.ModifyResponse = func(r *http.Response) error {
		if r.Request.URL.Path != "/api/v1/partitions/0/projection" {
			return nil
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return err
		}
		lines := strings.SplitAfter(strings.TrimSpace(string(body))+"\n", "\n")
		if len(lines) < 4 {
			return fmt.Errorf("too little to damage: %q", lines)
		}
		key, _, _ := strings.Cut(lines[2], `","value":`)
		lines[1], lines[2] = "", key+`","value":"AAAA"}`+"\n"
		spoiled := strings.Join(lines, "") + `{"key":"00000000ff","value":""}` + "\n"
		r.Body = io.NopCloser(strings.NewReader(spoiled))
		r.ContentLength = -1
		return nil
	}
	listener := httptest.NewServer(proxy)
	t.Cleanup(listener.Close)
	return listener.URL
}

// What has a list lists when it is called bare, in the plural too, with the flags of the list.
func TestWhatIsCalledBareLists(t *testing.T) {
	var asked atomic.Value
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Store(r.URL.Path)
		_, _ = w.Write([]byte(`{}`))
	}))
	t.Cleanup(server.Close)
	clearEnvironment(t)
	t.Setenv("WAYBILL_SERVER", server.URL)
	for _, names := range [][]string{{"partition", "partitions"}, {"order", "orders"}, {"schedule", "schedules"}, {"limit", "limits"}, {"workflow", "workflows"}, {"dead-letters"}} {
		waybill(t, "", names[0], "list", "-o", "json").want(t, 0, "{", "")
		path := asked.Load()
		for _, name := range names {
			asked.Store("")
			waybill(t, "", name, "-o", "json").want(t, 0, "{", "")
			if asked.Load() != path {
				t.Errorf("waybill %s asked for %q, and its list for %q", name, asked.Load(), path)
			}
			waybill(t, "", name, "lits").want(t, 2, "", "unknown command")
		}
	}
}

// What chooses among many is not empty, as a script has it whose variable is not set: it would choose all.
func TestNothingIsChosenByAnEmptyFlag(t *testing.T) {
	o := newOwner(t, listing("", "a Error"))
	commands := map[string][]string{
		"order list":                    {"workflow", "where", "step", "since", "until"},
		"alerts":                        {"since", "until"},
		"signals":                       {"signal", "workflow"},
		"dead-letters list":             {"reason", "topic", "order", "since", "until"},
		"order history o-1":             {"since", "until"},
		"replay":                        {"order"},
		"key new --id ci --role viewer": {"workflow", "expires"},
	}
	for _, a := range acts {
		commands["order "+a.command+" --state Error --yes --rate 0 --note why"] = []string{"workflow", "where", "step"}
	}
	for command, flags := range commands {
		for _, flag := range flags {
			waybill(t, "", append(strings.Fields(command), "--"+flag, "")...).want(t, exitUsage, "", "it is empty, and chooses nothing: give it a value, or leave the flag out")
		}
	}
	if len(o.asked) != 0 || len(o.listed) != 0 {
		t.Errorf("the server was asked: %+v, %q", o.asked, o.listed)
	}
}

func TestUsage(t *testing.T) {
	clearEnvironment(t)
	t.Setenv("WAYBILL_SERVER", "http://127.0.0.1:1")
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"ordr"}, 2, "unknown command"},
		{[]string{"topics"}, 2, "say what to do: waybill topics create|check"},
		{[]string{"order", "gte"}, 2, "unknown command"},
		{[]string{"order", "get"}, 2, "waybill order get ID"},
		{[]string{"order", "get", "a", "b"}, 2, "waybill order get ID"},
		{[]string{"order", "list", "--state", "Lost"}, 2, "Pending"},
		{[]string{"order", "list", "--until", "0001-01-01T00:00:00Z"}, 2, "--until: 0001-01-01T00:00:00Z stands for no time"},
		{[]string{"order", "list", "--limit", "-1"}, 2, "--limit"},
		{[]string{"submit", "w", "--bogus"}, 2, "--bogus"},
		{[]string{"submit", "w", "-o", "xml"}, 2, "table, wide, json, yaml, name, or jsonpath="},
		{[]string{"submit", "w", "--priority", "urgent"}, 2, "high, normal, low"},
		{[]string{"submit", "w", "--deadline", "soon"}, 2, "--deadline"},
		{[]string{"submit", "w", "--timeout", "soon"}, 2, "--timeout"},
		{[]string{"submit", "w@x"}, 2, "version"},
		{[]string{"submit", "w@1", "--version", "2"}, 2, "different versions"},
		{[]string{"submit", "@1"}, 2, "empty"},
		{[]string{"submit", "w", "--id", strings.Repeat("x", 257)}, 2, "256"},
		{[]string{"submit", "w", "--input", "{\n \"a\" 1}"}, 2, "--input:2:6: not JSON"},
		{[]string{"submit", "w", "--input", ""}, 2, "--input:1:1: not JSON: there is no JSON value"},
		{[]string{"submit", "w", "--input", "testdata/schemathesis.txt"}, 2, "for what is in that file, put @ before its name"},
		{[]string{"submit", "w", "--input", "@testdata/schemathesis.txt"}, 2, "waybill: testdata/schemathesis.txt:1:1: not JSON: "},
		{[]string{"submit", "w", "--input", "{} {}"}, 2, "more behind"},
		{[]string{"submit", "w", "--input", "@/none/there"}, 1, "/none/there"},
		{[]string{"submit", "w", "--server", "ftp://x"}, 2, "--server"},
		{[]string{"submit", "w"}, 6, "no Waybill answers at http://127.0.0.1:1: start one with `waybill dev`, or name another with --server"},
		{[]string{"alerts"}, 6, "no Waybill answers"},
		{[]string{"topics", "create", "--partitions", "0"}, 2, "--partitions"},
		{[]string{"topics", "check", "--namespace", "a b"}, 2, "namespace"},
		{[]string{"topics", "check", "--sasl-mechanism", "plain"}, 2, "--sasl-user"},
		{[]string{"topics", "check", "--sasl-user", "u"}, 2, "--sasl-mechanism"},
		{[]string{"topics", "check", "--tls-cert", "x"}, 2, "--tls-key"},
		{[]string{"topics", "check", "--tls-ca", "/none/there"}, 1, "--tls-ca"},
		{[]string{"topics", "check", "--brokers", ""}, 2, "--brokers"},
		{[]string{"replay", "--verify", "--order", "x"}, 2, "--verify"},
		{[]string{"dev", "--partitions", "0"}, 2, "--partitions"},
		{[]string{"dev", "--partitions", "many"}, 2, "--partitions"},
		{[]string{"serve", "--supervise-interval", "0s"}, 2, "--supervise-interval"},
		{[]string{"workflow", "check"}, 2, "FILE..."},
		{[]string{"workflow", "check", "/none/there"}, 1, "/none/there"},
	} {
		got := waybill(t, "", c.args...)
		if !strings.HasPrefix(got.errs, "waybill: ") && !strings.HasPrefix(got.errs, "open ") || got.out != "" {
			t.Errorf("%q: stdout %q, stderr %q", c.args, got.out, got.errs)
		}
		got.want(t, c.code, "", c.says)
	}
	waybill(t, "", "version").want(t, 0, "go1.", "")
	waybill(t, "", "version", "-o", "json").want(t, 0, `"go": "go1.`, "")
	waybill(t, "", "completion", "bash").want(t, 0, "waybill", "")
	waybill(t, "", "--help").want(t, 0, "submit", "")
	waybill(t, "", "workflow", "check", write(t, "w.yaml", flow)).want(t, 0, "w@1", "")
	waybill(t, "steps: 1", "workflow", "check", "-").want(t, 1, "", "stdin:1:")
}

func TestConfiguration(t *testing.T) {
	clearEnvironment(t)
	asks := func(args []string, server string) {
		t.Helper()
		waybill(t, "", append([]string{"alerts"}, args...)...).want(t, 6, "", "answers at "+server+":")
	}
	asks([]string{"--server", "http://127.0.0.1:1"}, "http://127.0.0.1:1")
	file := write(t, "waybill.yaml", "server: http://127.0.0.1:2\nbrokers: [127.0.0.1:1, 127.0.0.1:2]\npartitions: 3\n")
	asks([]string{"--config", file}, "http://127.0.0.1:2")
	t.Setenv("WAYBILL_CONFIG", file)
	asks(nil, "http://127.0.0.1:2")
	t.Setenv("WAYBILL_SERVER", "http://127.0.0.1:3")
	asks(nil, "http://127.0.0.1:3")
	asks([]string{"--server", "http://127.0.0.1:4"}, "http://127.0.0.1:4")

	bad := func(content, says string) {
		t.Helper()
		waybill(t, "", "alerts", "--config", write(t, "bad.yaml", content)).want(t, 2, "", says)
	}
	bad("servr: x\n", `bad.yaml:1:1: unknown key "servr"; did you mean "server"?; keys are the names of flags`)
	bad("kafka: {brokers: x}\n", `unknown key "kafka"`)
	bad("utc: true\nverify: true\n", "bad.yaml:2:1: verify belongs to one call: give it as a flag, --verify, and leave it out here")
	bad("output: xml\n", "bad.yaml: invalid argument")
	bad("a: [\n", "bad.yaml:1:")
	bad("- a\n", "the configuration is a mapping of keys to values")
	bad("sasl-password:\nsasl-user: ~\n", "bad.yaml:1:1: sasl-password has no value: give it one, or leave it out\n")
	bad("sasl-password:\nsasl-user: ~\n", "bad.yaml:2:1: sasl-user has no value")
	bad("brokers: [a, null]\n", "brokers has no value")
	bad("agent-bound: {payment: }\n", "agent-bound has no value")
	bad("server: x\nserver: y\n", `the key "server" is given twice`)
	bad("server: x\n---\nserver: y\n", "bad.yaml:2:1: a second document begins here")
	waybill(t, "", "alerts", "--config", "/none/there").want(t, 2, "", "/none/there")
	waybill(t, "", "alerts", "--config", t.TempDir()).want(t, 2, "", "configuration file: read ")
	asks([]string{"--config", write(t, "empty.yaml", "# nothing so far\n")}, "http://127.0.0.1:3")
	t.Setenv("WAYBILL_OUTPUT", "xml")
	waybill(t, "", "alerts").want(t, 2, "", "from WAYBILL_OUTPUT")
}

// What the file says is what the flag gets, and not what YAML makes of it.
func TestTheConfigurationIsTakenAsItIsWritten(t *testing.T) {
	clearEnvironment(t)
	t.Setenv("WAYBILL_CONFIG", write(t, "waybill.yaml", `---
sasl-password: 0123
sasl-user: 1_000
namespace: 0x1F
tls: True
tls-ca: 2030-01-02
tls-cert: "null"
tls-key: ""
brokers: [1.10, 'a b', 007]
...
`))
	root, _ := newRoot()
	check, _, err := root.Find([]string{"topics", "check"})
	if err != nil {
		t.Fatal(err)
	}
	if err := check.ParseFlags(nil); err != nil {
		t.Fatal(err)
	}
	if err := configure(check); err != nil {
		t.Fatal(err)
	}
	for flag, want := range map[string]string{
		"sasl-password": "0123", "sasl-user": "1_000", "namespace": "0x1F", "tls": "true", "tls-ca": "2030-01-02", "tls-cert": "null", "tls-key": "", "brokers": "[1.10,a b,007]",
	} {
		if got := check.Flags().Lookup(flag).Value.String(); got != want || !check.Flags().Changed(flag) {
			t.Errorf("%s is %q instead of %q", flag, got, want)
		}
	}
}

// settings are the flags that the environment and the configuration file may give to a command that does one thing and ends: where it
// asks, as whom, and what whoever calls it likes. Any other of its flags belongs to one call. One of a single command has its path before it.
var settings = []string{
	"server", "context", "token", "token-file", "ca", "cert", "key", "owner-hosts", "by",
	"brokers", "namespace", "tls", "tls-ca", "tls-cert", "tls-key", "sasl-mechanism", "sasl-user", "sasl-password",
	"output", "utc", "workflow graph format", "rate", "log-level", "log-format",
	"topics create partitions", "topics create replication", "bench partitions", "health admin-addr", "health http-addr",
	"submit reply-to", "submit priority", "submit timeout", "order rerun timeout", // of all that a caller submits
}

// What belongs to one call comes from its flags, and is nothing that another command of the same environment is told, as WAYBILL_ID,
// the name of an instance. A flag that is added is decided on here.
func TestOneCallsFlagsComeFromFlags(t *testing.T) {
	goesOn := []string{"serve", "dev", "agent http"} // the flags of these are settings
	root, _ := newRoot()
	var walk func(cmd *cobra.Command, path string)
	walk = func(cmd *cobra.Command, path string) {
		for _, sub := range cmd.Commands() {
			walk(sub, strings.TrimSpace(path+" "+sub.Name()))
		}
		if slices.Contains(goesOn, path) {
			return
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if configurable(f) && !slices.Contains(settings, f.Name) && !slices.Contains(settings, path+" "+f.Name) {
				t.Errorf("%s of waybill %s becomes --%s: keep it out with onlyByFlag, or have it among the settings", envName(f.Name), path, f.Name)
			}
		})
	}
	walk(root, "")

	o := newOwner(t)
	o.answer = func(_ string, _ int, w http.ResponseWriter) { fmt.Fprint(w, `{"outcome":"kept"}`) }
	for name, value := range map[string]string{"ID": "the-name-of-an-instance", "DATA": "1", "KEEP": "1h", "REPLY_TO": "others"} {
		t.Setenv(envPrefix+name, value)
	}
	waybill(t, "", "order", "signal", "o-1", "paid").want(t, 0, "kept", "")
	if body := o.asked["o-1"][0].body; body["id"] == "the-name-of-an-instance" || len(body) != 2 {
		t.Errorf("the environment became the signal %v", body)
	}
}

// A flag that takes names and numbers takes them from the configuration file, too.
func TestBoundsInTheConfiguration(t *testing.T) {
	clearEnvironment(t)
	path := filepath.Join(t.TempDir(), "waybill.yaml")
	for content, wrong := range map[string]string{
		"agent-bound: {payment: 0}\nagent-rate: 5\n":       "--agent-bound payment=0: it must be 1 or more",
		"agent-bound: {payment: 3, \"pay ment\": 4}\n":     "\"pay ment\" holds ' '",
		"agent-bound: payment=3,shipping=-1\n":             "--agent-bound shipping=-1: it must be 1 or more",
		"agent-rate: 0\n":                                  "--agent-rate must be more than 0",
		"reply-to-topics: [shop.*, \"[a\"]\n":              `--reply-to-topics "[a": it is no pattern`,
		"agent-bound: {payment: many, shipping: twenty}\n": "payment=many",
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, command := range []string{"serve", "dev"} {
			waybill(t, "", command, "--config", path, "--data-dir", t.TempDir()).want(t, 2, "", wrong)
		}
	}
}

// A bound that the partitions cannot share as it was asked for is told as it is.
func TestBoundsInAllPartitions(t *testing.T) {
	clearEnvironment(t)
	said, stop := background(t, true, "agent=two", "dev", "--data-dir", t.TempDir(), "--kafka-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0",
		"--agent-bound", "even=8,six=6", "--agent-bound", "two=2")
	stop()
	for _, agent := range []string{"agent=six asked=6", "agent=two asked=2"} {
		if !strings.Contains(said, agent+` is="1 for each of 4 partitions, 4 in all"`) {
			t.Errorf("not a word of %s:\n%s", agent, said)
		}
	}
	if strings.Contains(said, "agent=even") {
		t.Errorf("it complains of what is as it was asked for:\n%s", said)
	}
}

// What was not known when it was submitted comes out by the order: another submission
// made it.
func TestSubmitThatCameSecond(t *testing.T) {
	clearEnvironment(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			w.WriteHeader(http.StatusAccepted)
			fmt.Fprint(w, `{"orderId":"o-1"}`)
			return
		}
		fmt.Fprintf(w, `{"orderId":"o-1","processState":"Processed","digest":%q}`, (&events.Submission{Workflow: "w", Input: []byte("1")}).Digest())
	}))
	defer server.Close()
	t.Setenv("WAYBILL_SERVER", server.URL)
	waybill(t, "", "submit", "w", "--id", "o-1", "--input", "1.0", "--wait").want(t, 0, "Processed", "")
	waybill(t, "", "submit", "w", "--id", "o-1", "--input", "2", "--wait").want(t, 1, "", "order o-1 was made by another submission")
}
