package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/waybill-dev/waybill/test/oracle"
)

// tagged asks for a page, which a browser has already if a tag is given.
func (b *browser) tagged(path, tag string) (status int, is, said string) {
	b.Helper()
	r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, b.server+path, http.NoBody)
	if err != nil {
		b.Fatal(err)
	}
	if tag != "" {
		r.Header.Set("If-None-Match", tag)
	}
	answer, err := b.Do(r)
	if err != nil {
		b.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		b.Fatal(err)
	}
	if as := answer.Header.Get("Waybill-As-Of"); answer.StatusCode == http.StatusNotModified && !regexp.MustCompile(`^20\S+T\S+Z 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d$`).MatchString(as) {
		b.Errorf("a page that is as it was is as of %q", as)
	}
	return answer.StatusCode, answer.Header.Get("ETag"), string(text)
}

// follow follows an order by the console, from behind an event on.
func (b *browser) follow(path string) (status int, next func() string, end func()) {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, b.server+path, http.NoBody)
	if err != nil {
		b.Fatal(err)
	}
	answer, err := b.Do(r) //nolint:bodyclose // end does
	if err != nil {
		b.Fatal(err)
	}
	lines := bufio.NewScanner(answer.Body)
	return answer.StatusCode, func() string {
			for lines.Scan() {
				if _, data, is := strings.Cut(lines.Text(), "data: "); is {
					return data
				}
			}
			return ""
		}, func() {
			cancel()
			_ = answer.Body.Close() // it was cut off
		}
}

// A page that tells nothing new is not sent again, and what happens to an order is told to whoever may see it. Those who are told take
// no place of those who ask.
func TestConsoleLive(t *testing.T) {
	clearEnvironment(t)
	admin := waybill(t, "", "key", "new", "--id", "ann", "--role", "admin")
	_, entry, _ := strings.Cut(admin.errs, "\n\n")
	entry, _, _ = strings.Cut(entry, "\nThe key")
	server, _, stop := startDev(t, t.TempDir(), "--access", write(t, "access.yaml", "keys:\n"+entry), "--http-base", "/tools/waybill", "--http-requests", "2")
	ann := strings.TrimSpace(admin.out)
	t.Setenv("WAYBILL_TOKEN", ann)
	waybill(t, "", "workflow", "register", write(t, "asks.yaml", asksFlow), "--server", server).want(t, 0, "asks@1", "")
	waybill(t, "", "submit", "asks", "--id", "a/1", "--server", server).want(t, 0, "a/1", "")
	waybill(t, "", "submit", "order-fulfilment", "--id", "o-1", "--wait", "--server", server).want(t, 0, "Processed", "")

	b := newBrowser(t, server+"/tools/waybill")
	if status, _, end := b.follow("/orders/a%2F1/events"); status != http.StatusUnauthorized {
		t.Errorf("whoever did not come in follows: %d", status)
	} else {
		end()
	}
	b.send(200, "/login", "key="+ann+"&to=%2Forders%2Fa%252F1", `data-stream="/tools/waybill/orders/a%2F1/events?after=`, `data-says="a/1 is Pending"`, "/live.js")
	b.page(200, "/orders/o-1", "!data-stream", "data-live")
	b.page(200, "/orders/o-1?event=2", "!data-live", "!live.js")
	b.page(200, "/workflows", "!data-live", "!live.js")

	for _, path := range []string{"/", "/orders", "/alerts", "/approvals", "/signals", "/orders/o-1"} {
		_, tag, first := b.tagged(path, "")
		status, again, said := b.tagged(path, tag)
		if tag == "" || status != http.StatusNotModified || again != tag || said != "" {
			t.Errorf("%s: %d, %q and then %q", path, status, tag, again)
		}
		if !strings.Contains(first, `data-tag="`+strings.Trim(tag, `W/"`)+`"`) {
			t.Errorf("%s does not say that it is %s:\n%s", path, tag, first)
		}
	}
	_, tag, _ := b.tagged("/orders/a%2F1", "")
	waybill(t, "", "order", "label", "a/1", "team=red", "--server", server).want(t, 0, "", "")
	if status, is, said := b.tagged("/orders/a%2F1", tag); status != 200 || is == tag || !strings.Contains(said, "team=red") {
		t.Errorf("%d, %s and then %s\n%s", status, tag, is, said)
	}

	// What was done is said where somebody looks, and not to a page that is fetched behind another.
	redirects := b.CheckRedirect
	b.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	b.send(303, "/orders/a%2F1/pause", "")
	b.CheckRedirect = redirects
	if _, _, said := b.tagged("/orders", tag); strings.Contains(said, "Pause: done.") {
		t.Error("it was said to nobody")
	}
	b.page(200, "/orders/a%2F1", "Pause: done.")

	var ends []func()
	for n := range 5 { // there are two places
		status, next, end := b.follow("/orders/a%2F1/events?after=1")
		if first := next(); status != 200 || !strings.Contains(first, `"seq":2`) {
			t.Fatalf("stream %d: %d %s", n, status, first)
		}
		ends = append(ends, end)
	}
	b.page(200, "/orders/a%2F1", "team=red")
	for _, end := range ends {
		end()
	}
	if status, _, end := b.follow("/orders/nothing/events"); status != http.StatusNotFound {
		t.Errorf("what is not there is followed: %d", status)
	} else {
		end()
	}
	b.page(404, "/static/0/live.js")
	stop()
}

// livePage is a page in a browser that runs scripts.
type livePage struct {
	*testing.T
	ctx context.Context //nolint:containedctx // it is the browser
}

// is waits until something is so on the page.
func (p *livePage) is(what string) {
	p.Helper()
	oracle.Until(p.T, what, func() error {
		if so, err := chromedp.Run(p.ctx, chromedp.Evaluate[bool]("Boolean("+what+")")); err != nil {
			return err
		} else if !so {
			return errors.New("it is not so")
		}
		return nil
	})
}

func (p *livePage) do(script string) {
	p.Helper()
	if err := chromedp.Do(p.ctx, chromedp.Evaluate[chromedp.Void](script+";0")); err != nil {
		p.Fatalf("%s: %v", script, err)
	}
}

// looks has the page be looked at anew, which has it be fetched, and waits as long as a few fetches take.
func (p *livePage) looks() {
	p.Helper()
	const script = `(async () => {
		document.dispatchEvent(new Event("visibilitychange"));
		await new Promise(r => setTimeout(r, 0));
		for (let n = 0; n < 3; n++) await fetch(location.href, { cache: "no-store" }).then(r => r.text());
		return true;
	})()`
	if _, err := chromedp.Run(p.ctx, chromedp.Evaluate[bool](script, chromedp.EvalAwaitPromise)); err != nil {
		p.Fatal(err)
	}
}

// goesOn sees pages go on by themselves where scripts run: an order as soon as something happens to it, and lists. What somebody is at stays as
// it is, and whoever is cut off is told so.
func goesOn(p *livePage, server, axe string) {
	t := p.T
	t.Helper()
	waybill(t, "", "workflow", "register", write(t, "live.yaml", strings.Replace(asksFlow, "workflow: asks", "workflow: live", 1)), "--server", server).want(t, 0, "live@1", "")
	waybill(t, "", "submit", "live", "--id", "l/1", "--server", server).want(t, 0, "l/1", "")
	if err := (looks{1280, "light", true}).set(p.ctx); err != nil {
		t.Fatal(err)
	}
	label := func(value string) {
		t.Helper()
		waybill(t, "", "order", "label", "l/1", "team="+value, "--server", server).want(t, 0, "", "")
	}

	// Something happens: it is there, what was unfolded is unfolded still, and the focus is where it was.
	if err := chromedp.Do(p.ctx, chromedp.Navigate(server+"/orders/l%2F1"), chromedp.WaitVisible("#live button"), chromedp.Click("#events details summary"), chromedp.Focus(`#events a[href$="event=2"]`)); err != nil {
		t.Fatal(err)
	}
	waybill(t, "", "order", "signal", "l/1", "paid", "--server", server).want(t, 0, "", "")
	p.is(`document.querySelector("#events").textContent.includes("step.heard")`)
	p.is(`document.querySelectorAll("#events details[open]").length === 1 && document.querySelector("#events details").open`)
	p.is(`document.activeElement.getAttribute("href")?.endsWith("event=2")`)
	waybill(t, "", "order", "pause", "l/1", "--server", server).want(t, 0, "", "")
	p.is(`document.getElementById("tells").textContent === "l/1 is Pending, paused"`)

	// What somebody is at is not taken away.
	for value, at := range map[string][2]string{
		"unfolded": {`document.querySelector("details.act").open = true`, `document.querySelector("details.act").open = false`},
		"marked":   {`getSelection().selectAllChildren(document.querySelector("h1"))`, `getSelection().removeAllRanges()`},
		"filled":   {`document.querySelector("details.act input[name=note]").value = "because"`, `document.querySelector("details.act input[name=note]").value = ""`},
		"written":  {`document.querySelector("input[name=event]").focus()`, `document.activeElement.blur()`},
		"pressed":  {`dispatchEvent(new Event("pointerdown"))`, `dispatchEvent(new Event("pointerup"))`},
	} {
		p.is(`!document.querySelector("#live span").textContent`)
		p.do(at[0])
		label(value)
		p.looks()
		if so, err := chromedp.Run(p.ctx, chromedp.Evaluate[bool](`document.getElementById("content").textContent.includes("team=`+value+`")`)); err != nil || so {
			t.Errorf("the page was taken away from somebody (%s): %v", value, err)
		}
		p.do(at[1])
		p.is(`document.getElementById("content").textContent.includes("team=` + value + `")`)
	}
	p.do(`document.querySelector("details.act").open = true`)
	p.is(`document.querySelector("#live span").textContent.startsWith("waits")`)

	// A list; with the place at which somebody reads, and how long ago something was.
	for n := range 40 {
		waybill(t, "", "submit", "live", "--id", fmt.Sprintf("b-%02d", n), "--server", server).want(t, 0, "b-", "")
	}
	const list = "/orders?workflow=live"
	becomesListed := func(id string) {
		t.Helper()
		waybill(t, "", "submit", "live", "--id", id, "--server", server).want(t, 0, id, "")
	}
	if err := chromedp.Do(p.ctx, chromedp.Navigate(server+list), chromedp.WaitVisible("#live button")); err != nil {
		t.Fatal(err)
	}
	p.is(`document.querySelectorAll('a[href^="/orders/b-"]').length === 40`) // a page that is still too short is not scrolled
	if err := chromedp.Do(p.ctx, chromedp.Focus(`a[href="/orders/l%2F1"]`)); err != nil {
		t.Fatal(err)
	}
	p.do(`scrollTo(0, 500); window.read = [...document.querySelectorAll('a[href^="/orders/b-"]')].find(a => a.closest("tr").getBoundingClientRect().top >= 0).getAttribute("href")`)
	p.do(`window.above = () => document.querySelector('a[href="' + read + '"]').closest("tr").getBoundingClientRect().top; window.above0 = above()`)
	becomesListed("c-1")
	p.looks()
	p.is(`document.querySelector('a[href="/orders/c-1"]')`)
	p.is(`document.activeElement.getAttribute("href") === "/orders/l%2F1"`)
	p.is(`Math.abs(above() - above0) < 2`) // below it rows may have become higher: of what stands in them now
	p.do(`document.querySelector("time[data-ago]").dateTime = "2020-01-01T00:00:00Z"`)
	p.is(`/^\d{4} d ago$/.test(document.querySelector("time[data-ago]").textContent)`)

	// The browser's own time zone is offered.
	if _, err := chromedp.Call(p.ctx, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Europe/Berlin"}); err != nil {
		t.Fatal(err)
	}
	if err := chromedp.Do(p.ctx, chromedp.Navigate(server+list), chromedp.Click(`//button[text()="This browser's: Europe/Berlin"]`, chromedp.NodeVisible), chromedp.WaitVisible(`footer input[value="Europe/Berlin"]`)); err != nil {
		t.Fatal(err)
	}

	// Switched off, it stays off, and as it is.
	if err := chromedp.Do(p.ctx, chromedp.Click("#live button"), chromedp.Navigate(server+list), chromedp.WaitVisible("#live button")); err != nil {
		t.Fatal(err)
	}
	p.is(`document.querySelector("#live button").textContent === "Live: off"`)
	becomesListed("c-2")
	p.looks()
	if so, err := chromedp.Run(p.ctx, chromedp.Evaluate[bool](`document.querySelector('a[href="/orders/c-2"]') === null`)); err != nil || !so {
		t.Errorf("what is switched off goes on: %v", err)
	}
	p.do(`document.querySelector("#live button").click()`)
	p.is(`document.querySelector('a[href="/orders/c-2"]')`)

	// Cut off, and back.
	p.do(`window.fetched = fetch; window.fetch = () => Promise.reject(new TypeError("cut off")); document.dispatchEvent(new Event("visibilitychange"))`)
	p.is(`!document.getElementById("away").hidden && /^Not current for \d/.test(document.getElementById("away").textContent)`)
	p.is(`document.getElementById("tells").textContent.startsWith("Not current any more")`)
	if axe != "" {
		accessible(t, p.ctx, axe, "a page that is cut off")
	}
	p.do(`window.fetch = () => Promise.resolve(new Response("<p>Log in to the proxy</p>")); document.dispatchEvent(new Event("visibilitychange"))`)
	p.is(`document.getElementById("away").textContent.includes("something else answers")`)
	p.do(`window.fetch = window.fetched; document.dispatchEvent(new Event("visibilitychange"))`)
	p.is(`document.getElementById("away").hidden && document.getElementById("tells").textContent === "Connected again."`)
}
