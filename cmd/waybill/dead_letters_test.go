package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/oracle"
)

// What was put aside is found, looked at, corrected and put back.
func TestDeadLetterCommands(t *testing.T) {
	clearEnvironment(t)
	server, brokers, _ := startDev(t, t.TempDir(), "--partitions", "2")
	t.Setenv("WAYBILL_SERVER", server)
	waybill(t, "", "dead-letters", "list").want(t, 0, "AT  DEAD LETTER  TOPIC  ORDER  REASON\n", "")
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	send := func(topic, key, value string) {
		t.Helper()
		if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Key: []byte(key), Value: []byte(value)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	const half = `{"workflow":"order-fulfilment","input":{"total":42}`
	send("waybill.orders", "bad", half)
	send("waybill.orders", "\xff", half+"}")
	send("waybill.commands", "nobody", `{"command":"cancel"}`)
	var all []api.DeadLetter
	oracle.Until(t, "all are put aside", func() error {
		var listed struct {
			DeadLetters []api.DeadLetter `json:"deadLetters"`
		}
		if err := json.Unmarshal([]byte(waybill(t, "", "dead-letters", "list", "-o", "json").out), &listed); err != nil {
			return err
		}
		if all = listed.DeadLetters; len(all) != 3 {
			return fmt.Errorf("%d are", len(all))
		}
		return nil
	})
	names := map[string]string{}
	for _, d := range all {
		names[bytesText(d.Key)] = fmt.Sprintf("%d/%d", d.Partition, d.Offset)
	}
	bad, nobody, strange := names["bad"], names["nobody"], names["base64:/w=="]
	if bad == "" || nobody == "" || strange == "" {
		t.Fatalf("%v", names)
	}

	c := waybill(t, "", "dead-letters", "list", "--topic", "orders", "--reason", "JSON", "--since", "1h")
	if c.want(t, 0, bad+"          waybill.orders  bad    not a JSON object", ""); strings.Count(c.out, "\n") != 2 {
		t.Errorf("%s", c.out)
	}
	waybill(t, "", "dead-letters", "list", "--limit", "1").want(t, 0, "AT", "There are more; see --limit.")
	if c := waybill(t, "", "dead-letters", "list", "--order", "nobody", "--limit", "0"); strings.Count(c.out, "\n") != 2 || !strings.Contains(c.out, nobody) {
		t.Errorf("%s", c.out)
	}
	if c := waybill(t, "", "dead-letters", "list", "--since", time.Now().Add(time.Hour).Format(time.RFC3339)); strings.Count(c.out, "\n") != 1 {
		t.Errorf("%s", c.out)
	}
	c = waybill(t, "", "dead-letters", "show", bad)
	for _, want := range []string{"Put aside  20", "Written    20", "Source     waybill.orders/", "Reason     not a JSON object", "Key        bad\n", "Header     waybill_reason: not a JSON", "Value      " + half + "\n"} {
		c.want(t, 0, want, "")
	}
	waybill(t, "", "dead-letters", "show", strange).want(t, 0, "Key        base64:/w==", "")
	waybill(t, "", "dead-letters", "show", strange, "-o", "json").want(t, 0, `"base64": "/w=="`, "")
	if c := waybill(t, "", "dead-letters", "show", bad, "--value"); c.code != 0 || c.out != half {
		t.Errorf("%+v", c)
	}

	waybill(t, "", "dead-letters", "replay", bad).want(t, 4, "", "it would be put aside again: not a JSON object")
	waybill(t, "", "dead-letters", "replay", strange).want(t, 4, "", "the order id is not UTF-8")
	waybill(t, "", "dead-letters", "replay", bad, "--value", "@"+write(t, "half.json", half)).want(t, 2, "", "half.json:1:52: not JSON")
	waybill(t, "", "dead-letters", "replay", bad, "--value", "@"+write(t, "whole.json", half+"}\n")).want(t, 0, "order bad: waybill.orders/", "")
	oracle.Until(t, "order bad is processed", func() error {
		if c := waybill(t, "", "order", "get", "bad"); !strings.Contains(c.out, "Processed") {
			return fmt.Errorf("%s%s", c.out, c.errs)
		}
		return nil
	})
	waybill(t, "", "dead-letters", "replay", nobody, "-o", "json").want(t, 0, `"topic": "waybill.commands"`, "")
	oracle.Until(t, "it is put aside again", func() error {
		if c := waybill(t, "", "dead-letters", "list", "--order", "nobody"); strings.Count(c.out, "\n") != 3 {
			return fmt.Errorf("%s%s", c.out, c.errs)
		}
		return nil
	})

	for _, name := range []string{"3", "3/", "/3", "a/b", "-1/0", "0/-1", "4294967296/0", "0/1/2"} {
		waybill(t, "", "dead-letters", "show", "--", name).want(t, 2, "", "names no dead letter: write PARTITION/OFFSET")
		waybill(t, "", "dead-letters", "replay", "--", name).want(t, 2, "", "names no dead letter: write PARTITION/OFFSET")
	}
	waybill(t, "", "dead-letters", "show", "0/9999").want(t, 3, "", "there is no dead letter 0/9999")
	waybill(t, "", "dead-letters", "list", "--since", "yesterday").want(t, 2, "", `--since: "yesterday" is neither a time`)
	waybill(t, "", "dead-letters", "list", "--since", "-1h").want(t, 2, "", "--since: ")
	waybill(t, "", "dead-letters", "list", "--limit", "-1").want(t, 2, "", "--limit -1")
	waybill(t, "", "dead-letters").want(t, 0, "there is no order of this id", "")
}

// A value that is no text comes on no terminal, byte for byte.
func TestAValueForATerminal(t *testing.T) {
	clearEnvironment(t)
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		kafka.LeaveOut(t, "what is asked of a terminal, because none can be had: %v", err)
	}
	defer terminal.Close()
	for value, harmless := range map[string]bool{
		`{"text":"{\n\t\"ü\": 1\r\n}"}`: true, `null`: true, `{"text":"\u001b[2J"}`: false, `{"text":"a\rb"}`: false, `{"text":null,"base64":"/w=="}`: false,
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintf(w, `{"value":%s}`, value) }))
		var errs strings.Builder
		code := run(t.Context(), []string{"dead-letters", "show", "3/17", "--value", "--server", server.URL}, strings.NewReader(""), terminal, &errs)
		if refused := code == 1 && strings.Contains(errs.String(), "not printable text"); refused == harmless || harmless && code != 0 {
			t.Errorf("%s: exit code %d, %s", value, code, &errs)
		}
		waybill(t, "", "dead-letters", "show", "3/17", "--value", "--server", server.URL).want(t, 0, "", "") // to a file
		server.Close()
	}
}

// Whose signature is left out is told.
func TestAReplayWithoutItsSignature(t *testing.T) {
	clearEnvironment(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.URL.Path != "/api/v1/dead-letters/3/17/replay" || string(body) != `{"value":{"command":"pause"}}` {
			t.Errorf("%s: %s, %v", r.URL, body, err)
		}
		_, _ = w.Write([]byte(`{"topic":"waybill.commands","partition":1,"offset":7,"order":"o-1","unsigned":true}`))
	}))
	defer server.Close()
	waybill(t, `{"command":"pause"}`, "dead-letters", "replay", "3/17", "--value", "-", "--server", server.URL).want(t, 0, "order o-1: waybill.commands/1/7\n", "was known by a signature")
}

// Who discarded a dead letter, when and why, is shown, and that this is not known yet.
func TestWhoDiscardedADeadLetter(t *testing.T) {
	clearEnvironment(t)
	for answer, shown := range map[string]string{
		`"discarded":{"by":"ana","note":"sent anew","at":"2030-01-02T15:04:05.000Z"}`: "Discarded  2030-01-02T15:04:05.000Z by ana: sent anew\n",
		`"discarded":{"by":null,"note":null,"at":"2030-01-02T15:04:05.000Z"}`:         "Discarded  2030-01-02T15:04:05.000Z by -: -\n",
		`"discarded":null,"discardedUnknown":true`:                                    "Discarded  it is not known yet; ask again\n",
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintf(w, `{"reason":"r",%s}`, answer) }))
		waybill(t, "", "dead-letters", "show", "3/17", "--utc", "--server", server.URL).want(t, exitDone, shown, "")
		server.Close()
	}
}

// What was dealt with is not listed any more, and is there all the same.
func TestDiscardADeadLetter(t *testing.T) {
	clearEnvironment(t)
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		if asked = append(asked, r.Method+" "+r.URL.Path+" "+string(body)); strings.Contains(r.URL.Path, "/9/9/") {
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(`{"title":"Not Found","status":404,"detail":"there is no dead letter 9/9"}`))
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	defer server.Close()
	waybill(t, "", "dead-letters", "discard", "9/9", "3/17", "--by", "ana", "--note", "sent anew", "--server", server.URL).want(t, 1, "dead letter 3/17 is not listed any more\n", "dead letter 9/9 was not discarded: there is no dead letter 9/9")
	if want := []string{`POST /api/v1/dead-letters/9/9/discard {"by":"ana","note":"sent anew"}`, `POST /api/v1/dead-letters/3/17/discard {"by":"ana","note":"sent anew"}`}; !slices.Equal(asked, want) {
		t.Errorf("%q", asked)
	}
	waybill(t, "", "dead-letters", "discard", "9/9", "--server", server.URL).want(t, 3, "", "dead letter 9/9 was not discarded")
	waybill(t, "", "dead-letters", "discard", "3/17", "x", "--server", server.URL).want(t, 2, "", "names no dead letter")
	waybill(t, "", "dead-letters", "discard").want(t, 2, "", "")
}
