package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/internal/console"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/child"
	"github.com/waybill-dev/waybill/test/issuer"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/leftout"
	"github.com/waybill-dev/waybill/test/oracle"
)

// chromium is a browser whose window no one sees. What it complains of fails the test.
func chromium(t *testing.T) context.Context {
	t.Helper()
	var path string
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil && path == "" {
			path = found
		}
	}
	if path == "" {
		kafka.LeaveOut(t, "the console in a browser, because there is no chromium; apt-get install chromium")
	}
	alloc, end := chromedp.NewExecAllocator(t.Context(), append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.WSURLReadTimeout(time.Minute))...)
	t.Cleanup(end)
	ctx, closed := chromedp.NewContext(alloc)
	t.Cleanup(closed)
	if _, err := chromedp.Call(ctx, log.Enable, cdp.Empty{}); err != nil {
		t.Fatal(err)
	}
	if err := chromedp.Listen(ctx, func(event any) {
		switch e := event.(type) {
		case *log.EventEntryAdded: // what the policy of the page forbids, and what is not there
			if !strings.Contains(e.Entry.Text, "404") {
				t.Errorf("%s: %s", e.Entry.URL, e.Entry.Text)
			}
		case *runtime.EventExceptionThrown:
			t.Errorf("a script failed: %s", e.ExceptionDetails.Text)
		}
	}); err != nil {
		t.Fatal(err)
	}
	return ctx
}

// looks is how a browser shows pages.
type looks struct {
	width   int64
	scheme  string
	scripts bool
}

func (l looks) String() string {
	return fmt.Sprintf("%d pixels, %s, scripts: %t", l.width, l.scheme, l.scripts)
}

func (l looks) set(ctx context.Context) error {
	_, size := chromedp.Call(ctx, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: l.width, Height: 1000, DeviceScaleFactor: 1, Mobile: l.width < 600})
	_, scheme := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: l.scheme}}})
	_, scripts := chromedp.Call(ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: !l.scripts})
	return errors.Join(size, scheme, scripts)
}

// violation is what axe-core finds.
type violation struct {
	ID    string `json:"id"`
	Help  string `json:"help"`
	Nodes []struct {
		HTML    string `json:"html"`
		Summary string `json:"failureSummary"`
	} `json:"nodes"`
}

// accessible has axe-core look at the page that a browser shows.
func accessible(t *testing.T, ctx context.Context, axe, what string) {
	t.Helper()
	if err := chromedp.Do(ctx, chromedp.Evaluate[chromedp.Void](axe+";0")); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	found, err := chromedp.Run(ctx, chromedp.Evaluate[[]violation]("axe.run().then(r => r.violations)", chromedp.EvalAwaitPromise))
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	for _, v := range found {
		for _, n := range v.Nodes {
			t.Errorf("%s: %s (%s): %s\n%s", what, v.Help, v.ID, n.HTML, n.Summary)
		}
	}
}

// The console in Chromium, on the program as people have it: everything that can be done there, by forms alone and with scripts; every page,
// wide and narrow, light and dark; what goes on by itself; and how people come in. What accessibility forbids is looked for (axe-core)
// where WAYBILL_AXE names it, and WAYBILL_SCREENSHOTS is a directory for pictures.
func TestConsoleInABrowser(t *testing.T) {
	clearEnvironmentBut(t, "WAYBILL_AXE", "WAYBILL_SCREENSHOTS")
	ctx := chromium(t)
	sent := newForms(t, ctx)
	server, brokers := startHolding(t, "plain", "scripts", "spare")
	i := issuer.New(t)
	file, key := accessFile(t, "viewer", asksAt(t, i.URL))
	addr := child.FreeAddress(t)
	_, port, _ := strings.Cut(addr, ":")
	secured := "http://localhost:" + port // another site than the issuer
	startProgram(t, t.TempDir(), "--access", file, "--http-addr", addr, "--http-url", secured)
	waybill(t, "", "workflow", "register", write(t, "asks.yaml", asksFlow), "--server", server).want(t, 0, "asks@1", "")
	axe := ""
	if name := os.Getenv("WAYBILL_AXE"); name != "" {
		axe = string(must(os.ReadFile(name)))
	} else {
		t.Log("what accessibility forbids was not looked for: WAYBILL_AXE does not name axe-core")
	}

	for name, scripts := range map[string]bool{"plain": false, "scripts": true} {
		t.Run("acts "+name, func(t *testing.T) {
			if !scripts {
				leftout.UnlessLong(t, "what is done in the console by forms alone")
			}
			if err := (looks{1280, "light", scripts}).set(ctx); err != nil {
				t.Fatal(err)
			}
			everyAct(&operator{T: t, ctx: ctx, server: server, secured: secured, key: key, name: name}, sent, brokers)
		})
	}
	t.Run("log-in at an issuer", func(t *testing.T) {
		if err := chromedp.Do(ctx, chromedp.Navigate(secured+"/login?to=%2Forders"), chromedp.WaitReady("h1"), chromedp.Click(`a[href*="/login/oidc"]`), chromedp.WaitReady("form.who")); err != nil {
			t.Fatal(err)
		}
		if at, err := chromedp.Run(ctx, chromedp.Location()); err != nil || at != secured+"/orders" {
			t.Errorf("it is at %q, %v", at, err)
		}
	})
	t.Run("pages", func(t *testing.T) { everyPage(t, ctx, server, brokers, axe) })
	t.Run("live", func(t *testing.T) { goesOn(&livePage{t, ctx}, server, axe) })
}

// everyPage looks at every page in every way.
func everyPage(t *testing.T, ctx context.Context, server, brokers, axe string) {
	t.Helper()
	letter := putAside(t, server, brokers)
	waybill(t, "", "submit", "asks", "--id", "a/1", "--input", `{"customer":"c-7"}`, "--server", server).want(t, 0, "a/1", "")
	waybill(t, "", "submit", "order-fulfilment", "--id", "o-1", "--input", `{"card":"declined","customer":"c-7"}`, "--wait", "--server", server).want(t, 7, "", "o-1 is Error")
	waybill(t, "", "submit", "order-fulfilment", "--id", "o-2", "--input", `{"customer":"c-7","total":42}`, "--wait", "--server", server).want(t, 0, "Processed", "")
	waybill(t, "", "schedule", "apply", write(t, "s.yaml", "{schedule: nightly, cron: '30 3 * * *', workflow: order-fulfilment}"), "--server", server).want(t, 0, "nightly", "")
	waybill(t, "", "limit", "apply", write(t, "l.yaml", "{limit: crm, atATime: 4}"), "--server", server).want(t, 0, "crm", "")

	waybill(t, "", "submit", "order-fulfilment", "--id", "o-3", "--input", `{"card":"declined"}`, "--wait", "--server", server).want(t, 7, "", "o-3 is Error")
	waybill(t, "", "order", "resubmit", "o-3", "--step", "charge", "--input", `{"card":"c-1"}`, "--server", server).want(t, 0, "", "")
	becomes(t, server, "o-3", projections.Processed)
	bulk, over := prepared(t, server), carriedOut(t, server)
	pages := map[string]string{
		"home": "/", "orders": "/orders", "order": "/orders/o-2", "as-of": "/orders/o-2?event=4", "attempts": "/orders/o-3/attempts?of=charge", "error": "/orders/o-1", "waits": "/orders/a%2F1", "alerts": "/alerts", "approvals": "/approvals", "signals": "/signals",
		"workflows": "/workflows", "workflow": "/workflows/order-fulfilment", "schedules": "/schedules", "schedule": "/schedules/nightly", "limits": "/limits",
		"bulk-acts": "/bulk", "bulk": bulk, "bulk-over": over, "filtered": "/orders?state=Error&where=customer%3Dc-7", "for-all": "/orders?state=Error&step=charge", "agents": "/agents", "partitions": "/partitions", "dead-letters": "/dead-letters", "dead-letter": letter, "not-found": "/orders/nothing", "login": "/login",
		"charts": "/",
	}
	a := &operator{T: t, ctx: ctx, server: server}
	a.at("/orders?state=Error")
	a.does(`form[action="/views"]`, "Kept as a view", fills{"name", "Mine"}) // a list that the browser keeps
	charts := measured(t, server)
	for _, l := range []looks{{1280, "light", false}, {390, "dark", false}, {1280, "dark", true}, {390, "light", true}} {
		t.Run(fmt.Sprintf("%d %s", l.width, l.scheme), func(t *testing.T) {
			if l.scheme == "dark" {
				leftout.UnlessLong(t, "pages of the console by night")
			}
			if err := l.set(ctx); err != nil {
				t.Fatal(err)
			}
			for name, path := range pages {
				at := server + path
				if name == "charts" {
					at = charts.URL
				}
				if err := chromedp.Do(ctx, chromedp.Navigate(at), chromedp.WaitReady("h1")); err != nil {
					t.Fatalf("%s, %v: %v", path, l, err)
				}
				title, err := chromedp.Run(ctx, chromedp.Title())
				if err != nil {
					t.Fatal(err)
				}
				width, err := chromedp.Run(ctx, chromedp.Evaluate[int64]("document.documentElement.scrollWidth"))
				if err != nil {
					t.Fatal(err)
				}
				if width > l.width || !strings.HasSuffix(title, "Waybill") {
					t.Errorf("%s, %v: it is %d wide, and called %q", path, l, width, title)
				}
				if dir := os.Getenv("WAYBILL_SCREENSHOTS"); dir != "" {
					picture, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
					if err != nil {
						t.Fatal(err)
					}
					if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%s-%d-%s.png", name, l.width, l.scheme)), picture, 0o600); err != nil {
						t.Fatal(err)
					}
				}
				if axe == "" || !l.scripts {
					continue
				}
				if _, err := chromedp.Run(ctx, chromedp.Evaluate[int](`[...document.querySelectorAll("details")].filter(d => d.open = true).length`)); err != nil {
					t.Fatal(err)
				}
				accessible(t, ctx, axe, fmt.Sprintf("%s, %v", path, l))
			}
		})
	}
}

// clearEnvironmentBut is [clearEnvironment], but for what is for the test.
func clearEnvironmentBut(t *testing.T, names ...string) {
	t.Helper()
	kept := make(map[string]string)
	for _, name := range names {
		kept[name] = os.Getenv(name)
	}
	clearEnvironment(t)
	for name, value := range kept {
		t.Setenv(name, value)
	}
}

// prepared is the page of a bulk act to which nothing was done yet.
func prepared(t *testing.T, server string) string {
	t.Helper()
	client, err := api.NewClient(server)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	b, err := client.PrepareBulk(t.Context(), &api.BulkRequest{Command: "resubmit", Filter: api.BulkFilter{Workflow: "order-fulfilment"}})
	if err != nil {
		t.Fatal(err)
	}
	return "/bulk/" + b.ID
}

// carriedOut is the page of a bulk act that is over: each order, which failed, took it.
func carriedOut(t *testing.T, server string) string {
	t.Helper()
	client := must(api.NewClient(server))
	defer client.Close()
	b := must(client.PrepareBulk(t.Context(), &api.BulkRequest{Command: "change", With: []byte(`{"priority":"high"}`), Filter: api.BulkFilter{Workflow: "order-fulfilment", State: projections.Error}}))
	must(client.StartBulk(t.Context(), b.ID))
	oracle.Until(t, "the bulk act is over", func() error {
		if b = must(client.Bulk(t.Context(), b.ID)); b.State != api.BulkDone {
			return fmt.Errorf("it is %s", b.State)
		}
		return nil
	})
	return "/bulk/" + b.ID
}

// measured is the console of a server as it is once that has measured for an hour.
func measured(t *testing.T, server string) *httptest.Server {
	t.Helper()
	to, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	a := api.Activity{Instance: "dev", Partitions: 4, Of: 4}
	for n := range 120 {
		if n > 40 && n < 50 {
			continue // it served nothing then
		}
		late := float64(n%7) / 10
		a.Samples = append(a.Samples, api.Sample{
			At: api.Time{Time: time.Now().Add(time.Duration(n-120) * 30 * time.Second)}, Seconds: 30, Begun: n * n % 37, Ended: n * 7 % 31, Errored: n % 2,
			Open: &api.Open{Pending: n % 11, Processing: 20 + n%13, Error: n / 9, Compensating: n % 3}, Waited: &late, Late: new(late / 2), Oldest: new(float64(n)),
		})
	}
	text, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	all := httputil.NewSingleHostReverseProxy(to)
	all.Transport = new(http.Transport)
	t.Cleanup(all.Transport.(*http.Transport).CloseIdleConnections)
	s := httptest.NewServer(console.New(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/activity" {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(text)
			return
		}
		r.Host = to.Host
		all.ServeHTTP(w, r)
	}), console.Config{Version: "test"}))
	t.Cleanup(s.Close)
	return s
}

// putAside has an order be put aside that cannot be read, and returns the path of its page.
func putAside(t *testing.T, server, brokers string) (path string) {
	t.Helper()
	client := must(kgo.NewClient(kgo.SeedBrokers(brokers)))
	defer client.Close()
	if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: "waybill.orders", Key: []byte("bad-1"), Value: []byte("{"), Headers: []kgo.RecordHeader{{Key: "h", Value: []byte("v")}}}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	asked := must(api.NewClient(server))
	defer asked.Close()
	oracle.Until(t, "it is put aside", func() error {
		page, err := asked.DeadLetters(t.Context(), api.LetterFilter{Order: "bad-1"}, 10, "")
		if err != nil {
			return err
		}
		if len(page.DeadLetters) != 1 {
			return fmt.Errorf("%d are", len(page.DeadLetters))
		}
		path = fmt.Sprintf("/dead-letters/%d/%d", page.DeadLetters[0].Partition, page.DeadLetters[0].Offset)
		return nil
	})
	return path
}
