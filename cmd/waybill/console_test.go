package main

import (
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/oracle"
)

// browser asks as one does: it keeps cookies, and says where a form stands.
type browser struct {
	*testing.T
	*http.Client
	server string
}

func newBrowser(t *testing.T, server string) *browser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	transport := new(http.Transport)
	t.Cleanup(transport.CloseIdleConnections)
	return &browser{t, &http.Client{Jar: jar, Transport: transport}, server}
}

// page wants a status, and texts on the page. One that begins with ! must not be there.
func (b *browser) page(status int, path string, texts ...string) string {
	b.Helper()
	answer, err := b.Get(b.server + path)
	return b.want(answer, err, status, texts)
}

// send sends a form, and goes where that leads.
func (b *browser) send(status int, path, form string, texts ...string) {
	b.Helper()
	r, err := http.NewRequestWithContext(b.Context(), http.MethodPost, b.server+path, strings.NewReader(form))
	if err != nil {
		b.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Origin", b.server)
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	answer, err := b.Do(r)
	b.want(answer, err, status, texts)
}

func (b *browser) want(answer *http.Response, err error, status int, texts []string) string {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
	defer answer.Body.Close()
	said, err := io.ReadAll(answer.Body)
	if err != nil {
		b.Fatal(err)
	}
	what := fmt.Sprintf("%s %s", answer.Request.Method, answer.Request.URL.RequestURI())
	if answer.StatusCode != status {
		b.Errorf("%s: %s, want %d\n%s", what, answer.Status, status, said)
	}
	for _, text := range texts {
		if text, not := strings.CutPrefix(text, "!"); strings.Contains(string(said), text) == not {
			b.Errorf("%s: %q is there: %t\n%s", what, text, not, said)
		}
	}
	return string(said)
}

const asksFlow = `
workflow: asks
search: {customer: input.customer}
steps:
  - {name: credit, approve: {roles: [clerk], outcomes: [granted, declined], show: input}}
  - {name: paid, listen: paid, after: []}
  - {name: last, agent: nobody, when: 'input.customer != "</title><script>"', after: [credit, paid]}
`

// What people see of orders, and do to them, in a browser without scripts: what they may, as the HTTP API has
// it, and nothing that an order holds is taken for a part of the page.
func TestConsole(t *testing.T) {
	clearEnvironment(t)
	server, _, stop := startDev(t, t.TempDir())
	b := newBrowser(t, server)
	b.page(200, "/", "What needs somebody", "None.", "/static/")
	waybill(t, "", "workflow", "register", write(t, "asks.yaml", asksFlow), "--server", server).want(t, 0, "asks@1", "")
	const evil = `<script>alert(1)</script>`
	waybill(t, "", "submit", "asks", "--id", "a/1", "--input", `{"customer":"`+evil+`"}`, "--server", server).want(t, 0, "a/1", "")
	waybill(t, "", "submit", "order-fulfilment", "--id", "o-1", "--input", `{"card":"declined"}`, "--wait", "--server", server).want(t, 7, "", "o-1 is Error")
	waybill(t, "", "submit", "order-fulfilment", "--id", "o-2", "--wait", "--server", server).want(t, 0, "Processed", "")

	b.page(200, "/", `href="/orders/o-1"`, `href="/orders/a%2F1`, "card-declined")
	b.page(200, "/orders?state=Error", "o-1", "<td>charge failed</td>", "!o-2", "!a/1")
	b.page(200, "/orders?where=customer%3D"+url.QueryEscape(evil), "a/1", "!o-1", "!"+evil)
	b.page(200, "/orders/a%2F1", "&lt;script&gt;", "!<script>", "is-waits", "granted", "step.listening")
	b.page(200, "/orders/o-2", "is-good", "order.completed", "attempt 1", "tracking", `href="/workflows/order-fulfilment?version=1"`, "Run again", "!Cancel")
	b.page(200, "/find?q=o-2", "order.completed")
	b.page(200, "/find?q=customer%3Dx", "None.")
	b.page(200, "/find?q=asks", "Version 1")
	b.page(404, "/find?q=o-9", "There is no order")
	b.page(404, "/find?q=ref-7", "nothing under it as a key")
	waybill(t, "", "workflow", "register", write(t, "hears.yaml", "workflow: hears\nconcurrency: {key: input}\nsteps: [{name: paid, listen: paid, key: input, timeout: 24h}]"), "--server", server).want(t, 0, "hears@1", "")
	waybill(t, "", "submit", "hears", "--id", "k/1", "--input", `"ref-7"`, "--server", server).want(t, 0, "k/1", "")
	client := must(api.NewClient(server))
	defer client.Close()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for len(must(client.Key(t.Context(), "ref-7")).Homes) < 2 { // the step listens a moment later
		<-tick.C
	}
	b.page(200, "/find?q=ref-7", "Key ref-7", "Signals paid", "Turns of orders of hears", `href="/orders/k%2F1"`, "<td>has the turn</td>", "<td>paid</td><td>waits</td>", "!kept")
	waybill(t, "", "signal", "ref-9", "late", "--id", "<s>", "--server", server).want(t, 0, "kept", "")
	b.page(200, "/find?q=ref-9", "Signals late", "&lt;s&gt;", "nobody heard it yet", `href="/orders/@ref-9%2Fsignal.late"`, "Nobody waits.")
	b.page(422, "/keys?key=", "Unprocessable")

	// What waits for signals, and those that are sent from there.
	b.page(200, "/signals", "aria-current=\"page\">Signals<", `href="/orders/k%2F1"`, "paid, under key ref-7", `action="/signals"`, `name="under" value="&#34;ref-7&#34;"`, `href="/orders/a%2F1"`, `action="/orders/a%2F1/signal"`, "!None")
	b.page(200, "/signals?signal=paid&workflow=hears", "k/1", "!a/1", `name="signal" value="paid"`, `name="workflow" value="hears"`, `name="ofSignal" value="paid"`)
	b.page(200, "/signals?signal=nothing", "None.")
	b.page(422, "/signals?after=bad", "after is not a place that a page gave")
	b.send(422, "/signals", "key=s-k&signal=paid&under=%22ref-7%22&data=no+json", "is no JSON")
	b.send(422, "/signals", "key=s-k&signal=paid&under=", "does not say under which key")
	b.send(200, "/signals", "key=s-k&signal=paid&under=%22ref-7%22&data=1&ofWorkflow=hears", "a step heard it", `name="workflow" value="hears"`)
	becomes(t, server, "k/1", projections.Processed)
	b.page(200, "/signals?workflow=hears", "None.", "!k/1")
	b.page(404, "/orders/o-9", "there is no order")
	b.page(404, "/nothing", "There is no page")
	b.page(422, "/orders?state=No&workflow=asks&where=nonsense", `role="alert"`, `name="workflow" value="asks"`, `name="where" value="nonsense"`, "<button class=\"act\">Filter", "!None.", "!Do the same")
	for _, path := range []string{"/alerts", "/approvals", "/approvals?mine=true", "/signals", "/dead-letters", "/workflows", "/schedules", "/limits", "/agents", "/partitions"} {
		b.page(200, path, "<h1>")
	}

	b.page(200, "/partitions", "<h2>Instances</h2>", `<td class="wide">dev</td><td class="wide">0, 1, 2, 3</td><td>–</td>`, "!not said by Kafka")

	// An order is repaired, and again: under one key it is done once.
	fix := "key=k-1&note=new+card&step=charge&input=" + url.QueryEscape(`{"card":"c-2","total":1}`)
	b.send(200, "/orders/o-1/resubmit", fix, "Resubmit: done.")
	b.send(200, "/orders/o-1/resubmit", fix)
	becomes(t, server, "o-1", projections.Processed)
	history := b.page(200, "/orders/o-1", "order.resubmitted", "new card")
	if n := strings.Count(history, ">order.resubmitted<"); n != 1 {
		t.Errorf("it was resubmitted %d times", n)
	}
	// As it was: before the repair, with nothing to do; and its attempts side by side.
	b.page(200, "/orders/o-1?event=5", "As it was after event 5, step.failed", "card-declined", "!Run again", "As it is now", `href="/orders/o-1?event=4"`, `href="/orders/o-1?event=6"`)
	b.page(200, "/orders/o-1?event=1", "As it was after event 1, order.accepted", "not-started", `!href="/orders/o-1?event=0"`)
	b.page(404, "/orders/o-1?event=99", "and no event 99")
	b.page(422, "/orders/o-1?event=x", "is the number of one")
	b.page(200, "/orders/o-1", `/orders/o-1/attempts?of=charge`, "!attempts?of=reserve")
	b.page(200, "/orders/o-1/attempts?of=charge", "Attempts of charge", `<mark>  &#34;card&#34;: &#34;declined&#34;</mark>`, `<mark>  &#34;card&#34;: &#34;c-2&#34;`, "<mark>card-declined", "step.failed", "step.completed")
	b.page(404, "/orders/o-1/attempts?of=reserve", "no two attempts")
	b.page(404, "/orders/o-1/attempts?of=charge&left=2", "No attempt of")
	b.send(422, "/orders/a%2F1/skip-step", "step=last&output=no+json", "is no JSON")
	b.send(409, "/orders/o-1/cancel", "", "Processed")
	b.send(404, "/orders/a%2F1/nonsense", "")
	b.send(200, "/orders/a%2F1/change", "priority=high&deadline=%2B2h", "order.changed", "priority high")
	b.send(200, "/orders/a%2F1/change", "priority=low&deadline=", "priority low; deadline 20", "!no deadline")
	b.send(422, "/orders/a%2F1/change", "priority=&deadline=", "Nothing is to be changed")
	b.send(422, "/orders/a%2F1/change", "priority=high&deadline=soon", "is not a time")
	b.send(200, "/orders/a%2F1/label", "labels=team%3Dred+of%3Dx", "team=red")
	b.send(200, "/orders/a%2F1/label", "labels=of%3D", `&lt;/script&gt;, team=red</dd>`)
	b.send(409, "/orders/a%2F1/label", "key=l-1&labels=customer%3D")
	b.send(200, "/orders/a%2F1/label", "key=l-1&labels=corrected%3Dyes", "corrected=yes") // under the key of what was refused
	b.page(200, "/orders/o-1?done=cancel", "!Cancel: done")
	b.send(422, "/orders/a%2F1/signal", "key=s-0&signal=paid&data=no+json", "is no JSON")
	b.send(404, "/orders/a%2F1/signals%3Fx", "", "Nothing that can be done")
	b.page(404, "/orders/"+strings.Repeat("x", 257), "bytes")
	b.page(404, "/orders/%FF")
	b.send(200, "/orders/a%2F1/signal", "key=s-1&signal=paid&data=%7B%22by%22%3A%22card%22%7D", "a step heard it", "step.heard")
	b.send(200, "/orders/a%2F1/decide", "key=d-1&step=credit&outcome=granted&by=ana&note=known&back=%2Fapprovals", "What you decided is recorded.")
	b.send(200, "/orders/a%2F1/terminate", "note=enough", "Terminated")
	b.send(200, "/orders/o-2/rerun", "key=r-1&input=", "Run again: done.", "Rerun of", "order.accepted")

	// No page of somebody else has a browser do anything.
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server+"/orders/a%2F1/label", strings.NewReader("labels=x%3Dy"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Origin", "http://evil.example")
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	answer, err := b.Do(r)
	b.want(answer, err, 403, []string{"other origins"})
	answer, err = b.Get(server + "/")
	if b.want(answer, err, 200, nil); !strings.Contains(answer.Header.Get("Content-Security-Policy"), "default-src 'none'") || strings.Contains(answer.Header.Get("Content-Security-Policy"), "unsafe") {
		t.Errorf("a page may load: %q", answer.Header.Get("Content-Security-Policy"))
	}

	// A schedule, and workflows.
	waybill(t, "", "schedule", "apply", write(t, "s.yaml", "{schedule: nightly, cron: '30 3 * * *', workflow: order-fulfilment}"), "--server", server).want(t, 0, "nightly", "")
	b.page(200, "/schedules/nightly", "30 3 * * *", "Next ticks")
	b.send(200, "/schedules/nightly/pause", "", "Pause: done.", "paused")
	b.send(200, "/schedules/nightly/delete", "", "Deleted.")
	b.send(422, "/workflows", "source="+url.QueryEscape("workflow: w\nsteps: [{name: a}]"), "workflow:2")
	b.send(200, "/workflows", "source="+url.QueryEscape("workflow: w\nsteps: [{name: a, agent: b}]"), "Registered.", "b/a")
	b.send(200, "/workflows/w/retire", "version=1&retired=true", "may not have it")
	b.page(200, "/find?q=w", "may not have it")
	b.send(200, "/workflows", "source="+url.QueryEscape("workflow: w\nsteps: [{name: a, agent: b}]"), "Registered before, and retired")

	// What is too large, or too deep, to be laid out is shown as it is, and no more of it than people read.
	deep := strings.Repeat("[", 2000) + strings.Repeat("1,", 5000) + "1" + strings.Repeat("]", 2000)
	waybill(t, "", "submit", "order-fulfilment", "--id", "deep", "--input", deep, "--wait", "--server", server)
	large := `{"customer":"` + strings.Repeat("x", 200_000) + `"}`
	waybill(t, "", "submit", "order-fulfilment", "--id", "large", "--input", large, "--wait", "--server", server)
	for _, id := range []string{"deep", "large"} {
		if page := b.page(200, "/orders/"+id); len(page) > 1<<20 {
			t.Errorf("the page of order %s has %d bytes", id, len(page))
		}
	}
	b.page(200, "/orders/large", "That is not all of it")
	many := "workflow: many\nsteps:\n- {name: s0, agent: a}\n"
	for n := 1; n < 200; n++ {
		var after []string
		for i := max(0, n-40); i < n; i++ {
			after = append(after, fmt.Sprint("s", i))
		}
		many += fmt.Sprintf("- {name: s%d, agent: a, after: [%s]}\n", n, strings.Join(after, ", "))
	}
	b.send(200, "/workflows", "source="+url.QueryEscape(many), "Registered.", "!<svg")
	chain := "workflow: chain\nsteps:\n" + strings.Repeat("- {name: s, agent: a}\n", 70)
	for n := range 70 {
		chain = strings.Replace(chain, "name: s,", fmt.Sprintf("name: s%d,", n), 1)
	}
	b.send(200, "/workflows", "source="+url.QueryEscape(chain), "Registered.", "!<svg")

	// Records that are no orders say what they are.
	waybill(t, "", "limit", "apply", write(t, "l.yaml", "{limit: crm, atATime: 4}"), "--server", server).want(t, 0, "crm", "")
	b.page(200, "/orders/"+url.PathEscape("@/limit.crm"), "the home of limit crm", "!Pending", "limit.applied")
	stop()
}

// What a later page of events says goes on from what happened before.
func TestConsoleLaterEvents(t *testing.T) {
	clearEnvironment(t)
	server, _, _ := startDev(t, t.TempDir())
	waybill(t, "", "workflow", "register", write(t, "naps.yaml", "workflow: naps\nsteps: [{name: nap, sleep: 10h}]"), "--server", server).want(t, 0, "naps@1", "")
	waybill(t, "", "submit", "naps", "--id", "n-1", "--server", server).want(t, 0, "n-1", "")
	client, err := api.NewClient(server)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for n := range 210 {
		if _, err := client.Command(t.Context(), "n-1", &events.Command{Command: events.CommandLabel, ID: fmt.Sprint("l-", n), Labels: map[string]*string{"n": new(fmt.Sprint(n))}}); err != nil {
			t.Fatal(err)
		}
	}
	waybill(t, "", "order", "pause", "n-1", "--server", server).want(t, 0, "", "")
	waybill(t, "", "order", "resume", "n-1", "--server", server).want(t, 0, "", "")
	b := newBrowser(t, server)
	_, rest, _ := strings.Cut(b.page(200, "/orders/n-1", "What happened then"), `From the beginning`)
	if rest != "" {
		t.Error("the first page is none of the first events")
	}
	first := b.page(200, "/orders/n-1")
	_, rest, _ = strings.Cut(first, `href="/orders/n-1?after=`)
	next, _, _ := strings.Cut(rest, `"`)
	page := b.page(200, "/orders/n-1?after="+html.UnescapeString(next), "order.resumed", "nap until 20", "From the beginning")
	_, events, _ := strings.Cut(page, `<section id="events">`)
	if _, row, _ := strings.Cut(events, "</time></td>"); !strings.HasPrefix(row, `<td class="number">&#43;`) {
		t.Errorf("the first row does not say how long after the one before it was: %s", row)
	}
}

// Times are those of the zone that a browser was told to have, in words too; what is written without a zone is of that one.
func TestConsoleInAZone(t *testing.T) {
	clearEnvironment(t)
	server, _, _ := startDev(t, t.TempDir())
	waybill(t, "", "workflow", "register", write(t, "asks.yaml", asksFlow), "--server", server).want(t, 0, "asks@1", "")
	waybill(t, "", "submit", "asks", "--id", "a/1", "--server", server).want(t, 0, "a/1", "")
	client, err := api.NewClient(server)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	o, err := client.Order(t.Context(), "a/1")
	if err != nil {
		t.Fatal(err)
	}
	at := o.AcceptedAt.UTC()
	there := at.Add(5*time.Hour + 30*time.Minute)
	const form = "2006-01-02 15:04:05"

	b := newBrowser(t, server)
	b.page(200, "/orders/a%2F1", "Times are UTC", at.Format(form), "!"+there.Format(form))
	b.send(200, "/zone", "zone=Asia%2FKolkata", "Times are Asia/Kolkata")
	b.page(200, "/orders/a%2F1", "!Times are UTC", there.Format(form+".000"), `<time datetime="`+at.Format("2006-01-02T15:04:05Z")+`" title="`+at.Format("2006-01-02T15:04:05Z")+`">`+there.Format(form)+`<`)
	b.page(200, "/orders/a%2F1?event=1", "order.accepted, "+there.Format(form+".000"))
	b.page(200, "/orders", `title="`+there.Format(form)+`" data-ago>`)
	b.send(200, "/orders/a%2F1/change", "deadline=2100-01-02+10%3A00", "deadline 2100-01-02T10:00:00.000&#43;05:30", "the one that it has, 2100-01-02T10:00:00.000&#43;05:30")
	if o, err = client.Order(t.Context(), "a/1"); err != nil || !o.Deadline.Equal(time.Date(2100, 1, 2, 4, 30, 0, 0, time.UTC)) {
		t.Errorf("the deadline is %v, %v", o.Deadline, err)
	}
	b.send(422, "/orders/a%2F1/change", "deadline=10%3A00", "which is Asia/Kolkata as the times on the page")
	for _, none := range []string{"", "Mars%2FBase", "Local", "..%2F..%2Fetc%2Fpasswd", strings.Repeat("x", 1000)} {
		b.send(422, "/zone", "zone="+none, "There is no time zone", "Times are Asia/Kolkata")
	}
	b.send(200, "/zone", "zone=Europe%2FBerlin&here=UTC", "Times are UTC") // a button beside the field

	// It goes back to where the form was, and to nobody else; and what no browser should have is not believed.
	for referer, leads := range map[string]string{"/orders?state=Error": "/orders?state=Error", "//evil.example/x": "/", "": "/"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server+"/zone", strings.NewReader("zone=UTC"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Referer", server+referer)
		b.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		answer, err := b.Do(r)
		b.want(answer, err, 303, nil)
		if to := answer.Header.Get("Location"); to != leads {
			t.Errorf("from %s it goes to %s", referer, to)
		}
	}
	for _, cookie := range b.Jar.Cookies(must(url.Parse(server))) {
		cookie.Value = "Mars/Base"
		b.Jar.SetCookies(must(url.Parse(server)), []*http.Cookie{cookie})
	}
	b.page(200, "/", "Times are UTC")
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// What was put aside is looked at, put back as it is corrected, and not listed any more once it is dealt with.
func TestConsoleDeadLetters(t *testing.T) {
	clearEnvironment(t)
	server, brokers, _ := startDev(t, t.TempDir(), "--partitions", "1")
	client := must(kgo.NewClient(kgo.SeedBrokers(brokers)))
	defer client.Close()
	for _, id := range []string{"bad-1", "bad-2"} {
		if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: "waybill.orders", Key: []byte(id), Value: []byte(`{"workflow":"order-fulfilment","input":{"total":42}`)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	asked := must(api.NewClient(server))
	defer asked.Close()
	var first, second string
	oracle.Until(t, "both are put aside", func() error {
		page, err := asked.DeadLetters(t.Context(), api.LetterFilter{}, 10, "")
		if err != nil {
			return err
		}
		if len(page.DeadLetters) != 2 {
			return fmt.Errorf("%d are", len(page.DeadLetters))
		}
		first, second = fmt.Sprint("/dead-letters/0/", page.DeadLetters[1].Offset), fmt.Sprint("/dead-letters/0/", page.DeadLetters[0].Offset)
		return nil
	})
	inFirst, inSecond := fmt.Sprintf("href=%q", first), fmt.Sprintf("href=%q", second)
	b := newBrowser(t, server)
	b.page(200, "/dead-letters", inFirst, inSecond)
	b.page(200, first, "bad-1", "not a JSON object", "Put it back corrected", "Discard")
	b.send(409, first, "", "it would be put aside again")
	b.send(422, first, "corrected=true&value="+url.QueryEscape(`{"workflow":`), "The value is no JSON")
	b.send(200, first, "corrected=true&value="+url.QueryEscape(`{"workflow":"order-fulfilment","input":{"customer":"c-7","total":42}}`), "Put back", "bad-1")
	becomes(t, server, "bad-1", projections.Processed)
	b.send(200, first+"/discard", "note=dealt+with", "Discarded", `!href=first`, inSecond)
	b.page(200, first, "bad-1", "<dt>Discarded</dt>", " by 127.0.0.1: dealt with</dd>", `!<button class="act">Discard</button>`)
	b.send(422, second+"/discard", "note="+strings.Repeat("x", 1025), "at most 1024")
	b.send(404, "/dead-letters/0/77/discard", "", "there is no dead letter")
	b.page(200, "/dead-letters", inSecond)
}

// A browser keeps lists under names, so many and no more, and nobody else has them.
func TestConsoleViews(t *testing.T) {
	clearEnvironment(t)
	server, _, _ := startDev(t, t.TempDir(), "--http-base", "/tools/waybill")
	b := newBrowser(t, server+"/tools/waybill")
	b.page(200, "/orders", "!Views of this browser", "!aria-label=\"Views\"")
	b.page(200, "/orders?step=charge", "Views of this browser")
	const mine = "state=Error&where=customer%3Dc-7&where=team%3Da%26b"
	b.send(200, "/views", "name=My+%3Cb%3Elist&workflow=&"+mine, "Kept as a view", `href="/tools/waybill/orders?state=Error&amp;where=customer%3Dc-7&amp;where=team%3Da%26b" aria-current="page">My &lt;b&gt;list</a>`)
	b.page(200, "/orders", `where=team%3Da%26b">My &lt;b&gt;list</a>`, "!aria-current=\"page\">My")
	b.send(200, "/views", "name=My+%3Cb%3Elist&state=Pending", `orders?state=Pending" aria-current="page">My`, "!team%3Da") // another by the same name
	newBrowser(t, server).page(200, "/orders", "!My &lt;b")

	b.send(422, "/views", "name=all&state=&where=+", "Nothing is filtered")
	b.send(422, "/views", "name=+&state=Error", "has a name of")
	b.send(422, "/views", "name=a%0Ab&state=Error", "has a name of")
	b.send(422, "/views", "name="+strings.Repeat("x", 61)+"&state=Error", "has a name of")
	b.send(422, "/views", "name=large&where=a%3D"+strings.Repeat("%26", 900), "no more than")
	for n := range 19 {
		b.send(200, "/views", fmt.Sprintf("name=%d&state=Error", n), "Kept as a view")
	}
	b.send(422, "/views", "name=one+more&state=Error", "Remove one first")
	b.send(200, "/views", "name=18&state=Pending", "Kept as a view") // which is there
	b.send(404, "/views/remove", "name=nothing", "keeps no view")
	b.send(200, "/views/remove", "name=18&state=Error", "The view is removed.", `name="state" value="Error"`, "!>18</a>", ">17</a>")
	b.send(200, "/views", "name=one+more&state=Error", "Kept as a view")

	u := must(url.Parse(server + "/tools/waybill/orders"))
	for _, cookie := range b.Jar.Cookies(u) {
		if strings.HasSuffix(cookie.Name, "-views") {
			cookie.Value, cookie.Path = "a=%zz&b=state%3DError", "/tools/waybill/" // what no form made
			b.Jar.SetCookies(u, []*http.Cookie{cookie})
		}
	}
	b.page(200, "/orders", "!one more")
}

// becomes waits until an order is in a state.
func becomes(t *testing.T, server, id string, state projections.State) {
	t.Helper()
	waybill(t, "", "order", "wait", id, "--timeout", "20s", "--server", server)
	waybill(t, "", "order", "get", id, "--server", server).want(t, 0, string(state), "")
}

// Who comes to the console says who it is, and sees and does what it may: what the HTTP API lets it.
func TestWhoComesToTheConsole(t *testing.T) {
	clearEnvironment(t)
	admin, ann := aKey(t, "ann", "admin")
	viewer, vic := aKey(t, "vic", "viewer")
	server, _, stop := startDev(t, t.TempDir(), "--access", write(t, "access.yaml", "keys:\n"+admin+viewer), "--http-base", "/tools/waybill")
	t.Setenv("WAYBILL_TOKEN", ann)
	waybill(t, "", "submit", "order-fulfilment", "--id", "o-1", "--input", `{"card":"declined","secret":"s3cr3t"}`, "--wait", "--server", server).want(t, 7, "", "o-1 is Error")

	b := newBrowser(t, server)
	b.page(401, "/orders/o-1", "Log in", `value="/orders/o-1"`, "!card", "!<nav", "/tools/waybill/static/")
	b.page(200, "/login", "Log in")
	b.send(401, "/login", "key=wbk_ann_nonsense&to=%2F", "not taken", "Log in")
	b.send(422, "/login", "key=a%0Ab&to=%2F")
	b.send(422, "/login", "key="+strings.Repeat("x", 5000)+"&to=%2F", "as long as this")
	if u, err := url.Parse(server); err != nil || len(b.Jar.Cookies(u)) > 0 {
		t.Errorf("a browser that did not come in has %v", b.Jar.Cookies(u))
	}

	b.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	for to, leads := range map[string]string{"//evil.example/": "/tools/waybill/", "https://evil.example": "/tools/waybill/", `/\evil.example`: "/tools/waybill/", "/\t/evil.example": "/tools/waybill/", "/orders?state=Error": "/tools/waybill/orders?state=Error"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server+"/login", strings.NewReader("key="+vic+"&to="+url.QueryEscape(to)))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Origin", "https"+strings.TrimPrefix(server, "http")) // a proxy before it speaks TLS
		answer, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close() // there is nothing in it
		said := answer.Header.Get("Set-Cookie")
		if answer.StatusCode != http.StatusSeeOther || answer.Header.Get("Location") != leads || !strings.Contains(said, "HttpOnly") || !strings.Contains(said, "SameSite=Lax") || !strings.Contains(said, "Secure") {
			t.Errorf("to %s: %s to %q, cookie %q", to, answer.Status, answer.Header.Get("Location"), said)
		}
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	b.CheckRedirect = nil

	for _, c := range []struct {
		key  string
		sees []string
	}{
		{vic, []string{"vic", "left out", "!s3cr3t", "!Resubmit"}},
		{ann, []string{"ann", "s3cr3t", "Resubmit"}},
	} {
		b := newBrowser(t, strings.TrimSuffix(server, "/")+"/tools/waybill")
		b.send(200, "/login", "key="+c.key+"&to=%2Forders%2Fo-1", c.sees...)
		b.page(200, "/", `href="/tools/waybill/orders/o-1"`)
		if c.key == vic {
			b.send(403, "/orders/o-1/cancel", "", "does not have the role operator")
			b.page(403, "/dead-letters", "payload-reader")
		}
		b.send(200, "/logout", "", "Log in")
		b.page(401, "/orders/o-1", "!s3cr3t")
	}

	// What a proxy says of who asks does not count against what a browser came in with.
	proxied := newBrowser(t, server)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server+"/login", strings.NewReader("key="+vic+"&to=%2Forders%2Fo-1"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Authorization", "Basic YTpi")
	answer, err := proxied.Do(r)
	proxied.want(answer, err, 200, []string{"vic", "order.accepted"})

	// What is known of who asks is what the HTTP API says.
	client, err := api.NewClient(server, api.WithToken(vic))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	caller, err := client.Caller(t.Context())
	if err != nil || caller.Subject == nil || *caller.Subject != "vic" || !caller.May("viewer", "") || caller.May("operator", "") {
		t.Errorf("vic is %+v, %v", caller, err)
	}
	stop()
}

// The same is done to many orders: first it is shown which, and then those are acted on, and no others.
func TestConsoleBulk(t *testing.T) {
	clearEnvironment(t)
	server, _, _ := startDev(t, t.TempDir())
	b := newBrowser(t, server)
	for _, id := range []string{"o-1", "o-2"} {
		waybill(t, "", "submit", "order-fulfilment", "--id", id, "--input", `{"card":"declined"}`, "--wait", "--server", server).want(t, 7, "", id+" is Error")
	}
	b.page(200, "/orders", "!Do the same to all of them", "filter the list by") // that would be all that there are
	b.page(200, "/orders?state=Error", "Do the same to all of them", `name="state" value="Error"`)
	b.page(200, "/bulk", "None.")
	b.send(200, "/bulk", "command=terminate&state=Error&note=it+was+a+%3Cb%3Etest", "Terminate: 2 orders", "Nothing was done yet", "o-1", "o-2", "it was a &lt;b&gt;test", `class="danger"`)
	b.send(422, "/bulk", "command=terminate&state=Error", "note")
	b.send(422, "/bulk", "command=cancel", "selects all orders")
	b.send(404, "/bulk", "command=decide&state=Error", "Nothing that can be done to many orders")
	b.send(422, "/bulk", "command=resubmit&state=Error&toVersion=x", "is no number")
	b.send(422, "/bulk", "command=skip-step&state=Error", "step")
	b.page(404, "/bulk/none", "knows no bulk act")

	waybill(t, "", "submit", "order-fulfilment", "--id", "o-3", "--input", `{"card":"declined"}`, "--wait", "--server", server).want(t, 7, "", "o-3 is Error")
	list := b.page(200, "/bulk", "prepared", "terminate", "it was a &lt;b&gt;test")
	_, rest, _ := strings.Cut(list, `href="/bulk/`)
	id, _, _ := strings.Cut(rest, `"`)
	b.send(404, "/bulk/"+id+"/burn", "", "one of these is: start, stop.")
	b.send(200, "/bulk/"+id+"/start", "")
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for !strings.Contains(b.page(200, "/bulk/"+id), "Came later") {
		<-again.C
	}
	b.page(200, "/bulk/"+id, `good">done`, "1, which were not touched", "!http-equiv", "Given, and taken: it was ended", "Now, of 2 orders: 2 Terminated.")
	becomes(t, server, "o-1", projections.Terminated)
	becomes(t, server, "o-2", projections.Terminated)
	waybill(t, "", "order", "get", "o-3", "--server", server).want(t, 0, "Error", "")
	waybill(t, "", "order", "history", "o-1", "--server", server).want(t, 0, "it was a <b>test", "")
	b.send(200, "/bulk/"+id+"/start", "", "2 orders") // once more: nothing
	b.send(200, "/bulk", "command=resubmit&state=Error&keys=newKey", "Resubmit: 1 order", "&#34;newKey&#34;: true", "All that failed takes a new key", "charge failed")
}

// The page of an order says which orders left something that was not undone, of steps and of items, and what that is.
func TestConsoleOfWhatOrdersLeft(t *testing.T) {
	clearEnvironment(t)
	server, _, _ := startDev(t, t.TempDir())
	waybill(t, "", "workflow", "register", write(t, "sale.yaml", "workflow: sale\nsteps: [{name: reserve, agent: inventory}, {name: gone, raise: {code: gone}}]\n"), "--server", server).want(t, 0, "sale@1", "")
	waybill(t, "", "workflow", "register", write(t, "letter.yaml", "workflow: letter\nsteps: [{name: tell, order: sale, with: '{}', exhausted: continue}, {name: each, each: {items: input, order: sale, onFailure: finish}}]\n"), "--server", server).want(t, 0, "letter@1", "")
	waybill(t, "", "submit", "letter", "--id", "a/1", "--input", "["+strings.Repeat("{},", 20)+"{}]", "--wait", "--server", server).want(t, 7, "", "Error")
	b := newBrowser(t, server)
	page := b.page(200, "/orders/a%2F1", `not undone of order <a href="/orders/@a%2F1%2Ftell">@a/1/tell</a>: reserve<`, "of 21 something was not undone", "item 20, failed", "!item 21, failed", "There are more")
	if n := strings.Count(page, "not undone of order"); n != 21 {
		t.Errorf("%d orders left something", n)
	}
	b.page(200, "/orders/a%2F1?event=4", `@a/1/tell</a>: reserve<`, "!item 20, failed")
}

// What two versions of a workflow have different is marked by signs, and nothing of it is taken for a part of the page.
func TestConsoleComparesVersions(t *testing.T) {
	clearEnvironment(t)
	server, _, _ := startDev(t, t.TempDir())
	b := newBrowser(t, server)
	const evil = `'input.x != "<script>"'`
	for _, source := range []string{
		"workflow: two\nsteps: [{name: a, agent: b}, {name: old, agent: b}]",
		"workflow: two\nversion: 2\nsteps: [{name: a, agent: c, when: " + evil + "}, {name: fresh, agent: b}]",
	} {
		b.send(200, "/workflows", "source="+url.QueryEscape(source), "Registered.")
	}
	b.page(200, "/workflows/two", `name="version" value="2"`, `<select name="from"><option>2</option><option selected>1</option>`, `<select name="to"><option selected>2</option><option>1</option>`, "!From version")
	b.page(200, "/workflows/two?from=1&to=2", "From version 1 to 2", "<td>old</td>", "− removed", "<td>fresh</td>", "+ added",
		`<td>agent</td><td class="wide bad">− b</td><td class="wide good">+ c</td>`, `<td>when</td><td class="wide">–</td><td class="wide good">+ input.x != &#34;&lt;script&gt;&#34;</td>`, "!<script>",
		"<option selected>1</option>", "<option selected>2</option>")
	b.page(200, "/workflows/two?from=2&to=1", `<td class="wide bad">− c</td><td class="wide good">+ b</td>`)
	b.page(200, "/workflows/two?from=2&to=2", "Nothing is different for orders")
	b.page(404, "/workflows/two?from=1&to=9", "two@9 is not registered")
	for _, query := range []string{"from=1", "to=1", "from=&to=", "from=0&to=1", "from=1&to=x", "from=1&to=99999999999"} {
		b.page(422, "/workflows/two?"+query, "is the number of one, from 1 on")
	}
}
