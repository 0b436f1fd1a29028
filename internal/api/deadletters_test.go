package api

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator"
	"github.com/waybill-dev/waybill/orchestrator/proof"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/oracle"
)

// listed returns the dead letters that a query finds, as name and order, page by page.
func (s *stage) listed(query string) (found []DeadLetter) {
	s.Helper()
	for after := ""; ; {
		status, _, answer := s.ask(request{path: "/api/v1/dead-letters?limit=2&" + query + "&after=" + after})
		var page DeadLetterPage
		if err := json.Unmarshal([]byte(answer), &page); status != 200 || err != nil {
			s.Fatalf("%s: %d %s (%v)", query, status, answer, err)
		}
		if len(page.DeadLetters) > 2 {
			s.Fatalf("a page of 2 has %d", len(page.DeadLetters))
		}
		found = append(found, page.DeadLetters...)
		if after = page.Next; after == "" {
			return found
		}
	}
}

// aside waits until so many are put aside of an order, and returns the path of the last.
func (s *stage) aside(order string, n int) (path string) {
	s.Helper()
	s.until(func() bool {
		found := s.listed("order=" + order)
		if len(found) == n {
			path = fmt.Sprintf("/api/v1/dead-letters/%d/%d", found[0].Partition, found[0].Offset)
		}
		return len(found) == n
	})
	return path
}

// whole is a dead letter, and its headers.
func (s *stage) whole(path string) (d WholeDeadLetter, headers map[string]string) {
	s.Helper()
	status, _, answer := s.ask(request{path: path})
	if err := json.Unmarshal([]byte(answer), &d); status != 200 || err != nil {
		s.Fatalf("%s: %d %s (%v)", path, status, answer, err)
	}
	headers = make(map[string]string)
	for _, h := range d.Headers {
		headers[h.Key] = *h.Value.Text
	}
	return d, headers
}

// replays wants what a replay is answered with.
func (s *stage) replays(path, body string, status int, want string) (r Replayed) {
	s.Helper()
	got, _, answer := s.ask(request{method: "POST", path: path + "/replay", body: body})
	if got != status || !strings.Contains(answer, want) {
		s.Errorf("replay of %s with %s: %d %s, and not %d %s", path, body, got, answer, status, want)
	}
	if err := json.Unmarshal([]byte(answer), &r); status == 200 && err != nil {
		s.Error(err)
	}
	return r
}

// What was put aside is listed, shown, corrected and put back, by who may. Who may not read all there is
// sees none of it.
func TestDeadLetters(t *testing.T) {
	var log bytes.Buffer
	s, keys := known(t, slog.New(slog.NewTextHandler(&log, nil)), map[string]string{
		"root": "roles: [admin]", "read": "roles: [payload-reader]", "part": "roles: [payload-reader], workflows: [leaky]", "view": "roles: [viewer]",
	})
	topics := s.instance.Topics()
	if all := s.listed(""); len(all) != 0 {
		t.Errorf("there is none, and listed are %+v", all)
	}
	began := time.Now().Add(-time.Minute)

	signer := proof.New([]proof.Key{{ID: "k", Secret: []byte("s")}}, proof.Off, nil)
	command := []byte(`{"command":"cancel","id":"c-1","by":"ana"}`)
	signature := signer.Sign(topics.Namespace, "nobody", command, &events.Actor{Method: "key", Roles: []string{"operator"}, At: events.Time(time.Now())})
	header := func(key, value string) kgo.RecordHeader { return kgo.RecordHeader{Key: key, Value: []byte(value)} }
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	s.outside.Produce(&kgo.Record{Topic: topics.Orders, Key: []byte("bad"), Value: []byte(`{"workflow":"leaky"`), Headers: []kgo.RecordHeader{header("traceparent", trace)}})
	s.outside.Produce(&kgo.Record{Topic: topics.Orders, Key: []byte("strayed"), Value: []byte(`{"order":"strayed","step":"a","attempt":1,"status":"completed"}`), Headers: []kgo.RecordHeader{header(events.HeaderType, string(events.StepReplied))}})
	s.outside.Produce(&kgo.Record{Topic: topics.Commands, Key: []byte("nobody"), Value: command, Headers: []kgo.RecordHeader{header(events.HeaderActor, string(signature))}})
	s.outside.Produce(&kgo.Record{Topic: topics.Orders, Key: []byte("\xff"), Value: []byte(`{"workflow":"leaky"}`)})
	s.outside.Produce(&kgo.Record{Topic: topics.Replies, Value: []byte("\xfe")})
	s.outside.Produce(&kgo.Record{Topic: topics.Orders, Key: []byte("@own"), Value: []byte(`{"workflow":"leaky"}`)})
	s.until(func() bool { return len(s.listed("")) == 6 })
	for query, want := range map[string]string{
		"topic=orders&order=bad":                "bad",
		"topic=" + topics.Orders + "&order=bad": "bad",
		"reason=there%20is%20no%20order":        "nobody",
		"topic=replies":                         "-",
		"topic=signals":                         "",
		"topic=internal":                        "",
		"order=%FF":                             "/w==",
		"reason=does%20not%20belong":            "strayed",
		"reason=ids%20that%20begin%20with":      "@own",
		"since=" + began.UTC().Format(time.RFC3339) + "&topic=commands": "nobody",
		"since=2100-01-01T00:00:00Z":                                    "",
	} {
		var got []string
		for _, d := range s.listed(query) {
			switch {
			case d.Key == nil:
				got = append(got, "-")
			case d.Key.Text == nil:
				got = append(got, base64.StdEncoding.EncodeToString(d.Key.Base64))
			default:
				got = append(got, *d.Key.Text)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
	all := s.listed("")
	// Of one partition the last is first: two lanes may put aside there, and the one that looked at its clock last be first.
	if !slices.IsSortedFunc(all, func(a, b DeadLetter) int {
		if a.Partition == b.Partition {
			return cmp.Compare(b.Offset, a.Offset)
		}
		return b.At.Compare(a.At.Time)
	}) {
		t.Errorf("the newest is not first: %+v", all)
	}
	for query, status := range map[string]int{"after=x": 422, "after=bnVsbA": 422, "since=yesterday": 422, "limit=0": 422, "limit=1001": 422} {
		if got, _, answer := s.ask(request{path: "/api/v1/dead-letters?" + query}); got != status {
			t.Errorf("%s: %d %s", query, got, answer)
		}
	}
	for path, status := range map[string]int{"0/9999": 404, "99/0": 404, "4294967296/0": 422, "-1/0": 422, "0/x": 422} {
		if got, _, answer := s.ask(request{path: "/api/v1/dead-letters/" + path}); got != status {
			t.Errorf("%s: %d %s", path, got, answer)
		}
	}

	bad, nobody, strayed := s.aside("bad", 1), s.aside("nobody", 1), s.aside("strayed", 1)
	d, headers := s.whole(bad)
	if *d.Key.Text != "bad" || *d.Value.Text != `{"workflow":"leaky"` || d.ValueSize != 19 || headers["traceparent"] != trace || headers["waybill_reason"] != d.Reason || headers["waybill_source"] != *d.Source || headers["waybill_put_aside"] != string(events.AppendTime(nil, d.At.Time)) || d.Written == nil || *d.Topic != topics.Orders {
		t.Errorf("%+v with %v", d, headers)
	}
	if _, headers := s.whole(nobody); !strings.HasPrefix(headers[events.HeaderActor], `{"method":"key"`) || strings.Contains(headers[events.HeaderActor], "k.") {
		t.Errorf("with what is shown the command could be sent again: %s", headers[events.HeaderActor])
	}
	if found := s.listed("topic=replies"); len(found) != 1 || found[0].Key != nil {
		t.Errorf("%+v", found)
	} else if d, _ := s.whole(fmt.Sprintf("/api/v1/dead-letters/%d/%d", found[0].Partition, found[0].Offset)); d.Value.Text != nil || string(d.Value.Base64) != "\xfe" || d.Value.Size != 1 {
		t.Errorf("%+v", d.Value)
	}

	for who, want := range map[string][3]int{"view": {403, 403, 403}, "part": {403, 403, 403}, "read": {200, 200, 403}} {
		own := *s
		own.token = keys[who]
		for n, r := range []request{{path: "/api/v1/dead-letters"}, {path: bad}, {method: "POST", path: nobody + "/replay"}} {
			if status, _, answer := own.ask(r); status != want[n] || status == 403 && strings.Contains(answer, "leaky") {
				t.Errorf("%s of %s: %d %s", r.path, who, status, answer)
			}
		}
	}

	// What would be put aside again is not put back, and who corrects something says so.
	s.replays(bad, "", 409, "it would be put aside again: not a JSON object")
	s.replays(bad, "{}", 409, "it would be put aside again: not a JSON object")
	s.replays(bad, `{"value":[]}`, 409, "it would be put aside again: not a JSON object")
	s.replays(bad, `{"value":{"workflow":"leaky"}}`, 409, `write \"by\":\"root\" into it`)
	s.replays(bad, `{"value":{`, 400, "")
	s.replays(strayed, "", 409, "does not belong on")
	s.replays(s.aside("@own", 1), "", 409, "it would be put aside again: ids that begin with @ are those of orders that Waybill itself makes")
	s.replays("/api/v1/dead-letters/0/9999", "", 404, "there is no dead letter 0/9999")
	corrected := s.replays(bad, `{"value":{"workflow":"leaky", "by":"root"}}`, 200, `"order":"bad"`)
	if o := s.order("bad", projections.Error); *o.SubmittedBy != "root" {
		t.Errorf("it is of %v", o.SubmittedBy)
	}
	// As it came it has its signature still, and none over another value. Both are put aside again.
	s.replays(nobody, "", 200, `"order":"nobody"`)
	again := s.aside("nobody", 2)
	if _, headers := s.whole(again); "/api/v1/"+strings.TrimPrefix(headers["waybill_replayed_from"], topics.Namespace+".") != nobody {
		t.Errorf("%s was %s", headers["waybill_replayed_from"], nobody)
	}
	if r := s.replays(again, `{"value":{"command":"pause","by":"root"}}`, 200, `"unsigned":true`); r.Topic != topics.Commands {
		t.Errorf("%+v", r)
	}
	s.aside("nobody", 3)
	var signed []string
	for _, r := range oracle.Read(t, s.outside.Broker.Brokers, topics.Commands) {
		signed = append(signed, events.Header(r, events.HeaderActor))
	}
	if !slices.Equal(signed, []string{string(signature), string(signature), ""}) {
		t.Errorf("the signatures are %q", signed)
	}
	for _, r := range oracle.Read(t, s.outside.Broker.Brokers, topics.Orders) {
		if r.Partition == corrected.Partition && r.Offset == corrected.Offset {
			if string(r.Value) != `{"workflow":"leaky", "by":"root"}` || len(r.Headers) != 3 || events.Header(r, events.HeaderSource) != "/waybill/"+topics.Namespace+"/api" || events.Header(r, "traceparent") != trace || "/api/v1/"+strings.TrimPrefix(events.Header(r, "waybill_replayed_from"), topics.Namespace+".") != bad {
				t.Errorf("%+v: %s", r.Headers, r.Value)
			}
		}
	}
	if code, _, answer := s.ask(request{path: "/api/v1/dead-letters?topic=order"}); code != 422 || !strings.Contains(answer, "is no input") {
		t.Errorf("%d %s", code, answer)
	}
	reader, before := *s, len(s.listed(""))
	reader.token = keys["read"]
	for _, c := range []struct {
		as     *stage
		path   string
		body   string
		status int
	}{
		{&reader, nobody, "", 403},
		{s, nobody, `{"by":"ana"}`, 403},
		{s, nobody, `{"note":"` + strings.Repeat("x", maxDiscardNote+1) + `"}`, 422},
		{s, "/api/v1/dead-letters/0/999", "", 404},
		{s, nobody, `{"note":"sent anew"}`, 204},
		{s, nobody, "", 204},
	} {
		if status, _, answer := c.as.ask(request{method: "POST", path: c.path + "/discard", body: c.body}); status != c.status {
			t.Errorf("discard %s with %.50s: %d %s", c.path, c.body, status, answer)
		}
	}
	if after := reader.listed(""); len(after) != before-1 || slices.ContainsFunc(after, func(d DeadLetter) bool {
		return fmt.Sprintf("/api/v1/dead-letters/%d/%d", d.Partition, d.Offset) == nobody
	}) {
		t.Errorf("%d are listed of %d: %+v", len(after), before, after)
	}
	marks := 0
	for _, r := range oracle.Read(t, s.outside.Broker.Brokers, topics.DeadLetters) {
		if of := events.Header(r, orchestrator.HeaderDiscards); of != "" && nobody == fmt.Sprintf("/api/v1/dead-letters/%d/%s", r.Partition, of) && strings.Contains(string(r.Value), `"by":"root"`) {
			marks++
		}
	}
	if marks != 1 {
		t.Errorf("%d marks say who did it", marks)
	}
	for path, want := range map[string]string{nobody: "root: sent anew", bad: ""} {
		d, _ := s.whole(path)
		says := ""
		if d.Discarded != nil && d.Discarded.At != nil {
			says = *d.Discarded.By + ": " + *d.Discarded.Note
		}
		if says != want || d.DiscardedUnknown {
			t.Errorf("%s was discarded by %q, %v", path, says, d.DiscardedUnknown)
		}
	}
	name := strings.TrimPrefix(bad, "/api/v1/dead-letters/")
	for _, want := range []string{
		"audit.what=act audit.who=root audit.method=key audit.from=127.0.0.1 audit.operation=replay-dead-letter audit.on=\"" + name + " on " + topics.Orders + " of order bad, corrected\" audit.status=200",
		`audit.what="payloads were read" audit.who=read audit.method=key audit.from=127.0.0.1 audit.operation=get-dead-letter audit.of=` + name,
		`audit.who=read audit.method=key audit.from=127.0.0.1 audit.operation=list-dead-letters`,
		"audit.who=root audit.method=key audit.from=127.0.0.1 audit.operation=discard-dead-letter audit.on=" + strings.TrimPrefix(nobody, "/api/v1/dead-letters/") + " audit.status=204",
	} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log does not say %s", want)
		}
	}
}

// Where the orchestrators may not read the dead letters, that is said.
func TestDeadLettersThatMayNotBeRead(t *testing.T) {
	s := newStage(t)
	s.attach()
	denied := s.outside.Broker.Fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Topic: s.instance.Topics().DeadLetters, Err: kerr.TopicAuthorizationFailed, Count: -1})
	defer denied.Remove()
	for _, r := range []request{{path: "/api/v1/dead-letters"}, {path: "/api/v1/dead-letters/0/0"}, {method: http.MethodPost, path: "/api/v1/dead-letters/0/0/replay"}} {
		if status, _, answer := s.ask(r); status != 503 || !strings.Contains(answer, "and that the orchestrators may read it") {
			t.Errorf("%s: %d %s", r.path, status, answer)
		}
	}
}

// Submissions that came cut short are put back at once, mended, by more callers than may read dead letters at a time, and
// every tenth twice: each order is taken once.
func TestManyDeadLetters(t *testing.T) {
	t.Run("a hundred", func(t *testing.T) { putBack(t, 100) })
	t.Run("a thousand", func(t *testing.T) { putBack(t, 1000) })
}

func putBack(t *testing.T, many int) {
	t.Helper()
	s := newStage(t)
	s.attach()
	if _, err := s.client.Register(t.Context(), "w.yaml", []byte("workflow: calm\nsteps:\n  - {name: rest, sleep: {for: 1ms}}\n")); err != nil {
		t.Fatal(err)
	}
	for n := range many {
		s.outside.Produce(&kgo.Record{Topic: s.instance.Topics().Orders, Key: fmt.Appendf(nil, "o-%d", n), Value: fmt.Appendf(nil, `{"workflow":"calm","input":%d`, n)})
	}
	var letters []DeadLetter
	s.until(func() bool {
		letters = letters[:0]
		for after := ""; ; {
			page, err := s.client.DeadLetters(t.Context(), LetterFilter{Topic: "orders"}, many, after)
			if err != nil {
				t.Fatal(err)
			}
			letters = append(letters, page.DeadLetters...)
			if after = page.Next; after == "" {
				return len(letters) == many
			}
		}
	})
	var callers sync.WaitGroup
	left := make(chan int)
	for range 16 {
		callers.Go(func() {
			for n := range left {
				letter := &letters[n]
				mended := fmt.Appendf(nil, `{"workflow":"calm","input":%s}`, strings.TrimPrefix(*letter.Key.Text, "o-"))
				if _, err := s.client.Replay(t.Context(), letter.Partition, letter.Offset, mended); err != nil {
					t.Errorf("%d/%d: %v", letter.Partition, letter.Offset, err)
				}
			}
		})
	}
	for n := range letters {
		if left <- n; n%10 == 0 {
			left <- n
		}
	}
	close(left)
	callers.Wait()
	for n := range many {
		s.order(fmt.Sprintf("o-%d", n), projections.Processed)
	}
	if again := s.outside.Audit(); again.Accounts.Inputs < 2*many+many/10 {
		t.Errorf("%d inputs were accounted for", again.Accounts.Inputs)
	}
}
