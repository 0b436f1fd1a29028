package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/internal/console"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/oracle"
)

// forms notes which forms a browser has sent that were taken: the browser was led on.
type forms struct {
	routes *http.ServeMux

	mu    sync.Mutex
	sent  map[network.RequestID]*http.Request
	taken map[string]bool // by route
}

// newForms has what a browser sends be noted.
func newForms(t *testing.T, ctx context.Context) *forms {
	t.Helper()
	f := &forms{routes: http.NewServeMux(), sent: make(map[network.RequestID]*http.Request), taken: make(map[string]bool)}
	for _, route := range console.New(nil, console.Config{}).Routes() {
		f.routes.Handle(route, http.NotFoundHandler())
	}
	if err := chromedp.Listen(ctx, func(event any) {
		e, is := event.(*network.EventRequestWillBeSent)
		if !is {
			return
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		if from := f.sent[e.RequestID]; from != nil && e.RedirectResponse != nil && e.RedirectResponse.Status == http.StatusSeeOther {
			_, route := f.routes.Handler(from)
			f.taken[route] = true
		}
		delete(f.sent, e.RequestID)
		if e.Request.Method == http.MethodPost {
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, e.Request.URL, http.NoBody)
			if err != nil {
				t.Error(err)
				return
			}
			f.sent[e.RequestID] = r
		}
	}); err != nil {
		t.Fatal(err)
	}
	return f
}

// operator does things in a browser as people do: by the forms of pages.
type operator struct {
	*testing.T
	ctx             context.Context //nolint:containedctx // it is the browser
	server, secured string          // the latter asks who comes
	key             string          // with which somebody comes in there
	name            string          // part of the names of all that this one acts on
	letters         map[string]string
}

// at goes to a page.
func (a *operator) at(path string) {
	a.Helper()
	if !strings.Contains(path, "://") {
		path = a.server + path
	}
	if err := chromedp.Do(a.ctx, chromedp.Navigate(path)); err != nil {
		a.Fatalf("%s: %v", path, err)
	}
}

// says wants a text on the page.
func (a *operator) says(text string) {
	a.Helper()
	if said, err := chromedp.Run(a.ctx, chromedp.Evaluate[string]("document.body.innerText")); err != nil || !strings.Contains(said, text) {
		a.Errorf("%q is not on the page (%v):\n%s", text, err, said)
	}
}

// fills is what goes into a field of a form, by the field's name; an empty text is a mark.
type fills struct{ name, text string }

// does fills in a form of the page, unfolding it if it is folded, presses its button, and wants what the next page says.
func (a *operator) does(form, says string, fields ...fills) {
	a.Helper()
	ctx, cancel := context.WithTimeout(a.ctx, oracle.Patience)
	defer cancel()
	evaluate := func(script string) string {
		a.Helper()
		found, err := chromedp.Run(ctx, chromedp.Evaluate[string](script))
		if err != nil {
			a.Fatalf("%s: %v", form, err)
		}
		return found
	}
	const here = "#form-here"
	steps := []chromedp.Action[chromedp.Void]{}
	switch evaluate(fmt.Sprintf(`(f => { if (f) f.id = "form-here"; return !f ? "none" : f.closest("details:not([open])") ? "folded" : "open"; })(document.querySelector(%q))`, form)) {
	case "none":
		a.Fatalf("%s has no %s", a.location(), form)
	case "folded":
		steps = append(steps, chromedp.Click("details:has("+here+") > summary", chromedp.NodeVisible))
	}
	for _, f := range fields {
		field := fmt.Sprintf("%s [name=%q]", here, f.name)
		kind := evaluate(fmt.Sprintf("document.querySelector(%q)?.type ?? 'none'", field))
		switch kind {
		case "checkbox":
			steps = append(steps, chromedp.Click(field, chromedp.NodeVisible))
		case "radio":
			steps = append(steps, chromedp.Click(fmt.Sprintf("%s[value=%q]", field, f.text), chromedp.NodeVisible))
		case "select-one":
			steps = append(steps, chromedp.SetValue(field, f.text, chromedp.NodeVisible))
		case "none":
			a.Fatalf("%s has no field %s", form, f.name)
		default:
			steps = append(steps, chromedp.WaitVisible(field), chromedp.Evaluate[chromedp.Void](fmt.Sprintf("(e => { e.focus(); e.select(); })(document.querySelector(%q)); 0", field)), chromedp.SendKeys(field, f.text)) // in the place of what stands there
		}
	}
	if err := chromedp.Do(ctx, steps...); err != nil {
		a.Fatalf("%s: %v", form, err)
	}
	answer, err := chromedp.RunResponse(ctx, chromedp.Click(here+" button:not([hidden])", chromedp.NodeVisible)) // some are for scripts
	if err != nil {
		a.Fatalf("%s: %v", form, err)
	}
	if answer == nil || answer.Status != http.StatusOK {
		a.Errorf("%s: it is answered with %+v", form, answer)
	}
	a.says(says)
}

// of is the id of something that this one acts on.
func (a *operator) of(what string) string { return what + "-" + a.name }

// does something to an order, from its page.
func (a *operator) order(what, act, says string, fields ...fills) {
	a.Helper()
	path := "/orders/" + a.of(what)
	a.at(path)
	a.does(fmt.Sprintf("form[action=%q]", path+"/"+act), says, fields...)
}

// deadLetter does something to a dead letter, from its page.
func (a *operator) deadLetter(what, form, says string, fields ...fills) {
	a.Helper()
	a.at(a.letters[a.of(what)])
	a.does(form, says, fields...)
}

// prepares has a bulk act be prepared for the orders of this one.
func (a *operator) prepares(command string, fields ...fills) {
	a.Helper()
	a.preparesFrom("/orders?workflow=asks&where=customer%3D"+a.name, command, fields...)
}

// preparesFrom has a bulk act be prepared for the orders of a list.
func (a *operator) preparesFrom(list, command string, fields ...fills) {
	a.Helper()
	a.at(list)
	a.does(fmt.Sprintf("form[action='/bulk']:has(input[name=command][value=%q])", command), "Nothing was done yet", fields...)
}

// until waits for what comes on a page, which is loaded again meanwhile.
func (a *operator) until(path, text string) {
	a.Helper()
	oracle.Until(a.T, text, func() error {
		a.at(path)
		said, err := chromedp.Run(a.ctx, chromedp.Evaluate[string]("document.body.innerText"))
		if err == nil && !strings.Contains(said, text) {
			err = fmt.Errorf("the page says %s", said)
		}
		return err
	})
}

// location is the path of the page.
func (a *operator) location() string {
	a.Helper()
	at, err := chromedp.Run(a.ctx, chromedp.Location())
	if err != nil {
		a.Fatal(err)
	}
	return strings.TrimPrefix(at, a.server)
}

// browserAct is something that is done by a form that goes to a route.
type browserAct struct {
	route string
	does  func(*operator)
}

// inBrowser is everything that can be done from pages, by the route to which its form goes, in the order in which it is
// done: what is done to something first stands above what is done to it then.
var inBrowser = []browserAct{
	{"POST /login", func(a *operator) {
		a.at(a.secured + "/login?to=%2Fagents")
		a.does(`form[action="/login"]`, "Log out", fills{"key", a.key})
		a.says("As instance")
	}},
	{"POST /logout", func(a *operator) { a.does(`form[action="/logout"]`, "Log in") }},
	{"POST /zone", func(a *operator) {
		a.at("/orders")
		a.does(`form[action="/zone"]`, "Times are Asia/Kolkata", fills{"zone", "Asia/Kolkata"})
	}},
	{"POST /views", func(a *operator) {
		a.at("/orders?state=Error")
		a.does(`form[action="/views"]`, "Kept as a view", fills{"name", a.name})
	}},
	{"POST /views/remove", func(a *operator) { a.does(`form[action="/views/remove"]`, "The view is removed.") }},
	{"POST /orders/{id}/resubmit", func(a *operator) {
		path := "/orders/" + a.of("fix") // from the alert to the repaired order, by what stands on the pages
		a.at("/")
		if err := chromedp.Do(a.ctx, chromedp.Click(fmt.Sprintf("a[href=%q]", path), chromedp.NodeVisible), chromedp.WaitVisible(".notice.wrong")); err != nil {
			a.Fatal(err)
		}
		a.does(fmt.Sprintf("form[action=%q]", path+"/resubmit"), "Resubmit: done.", fills{"step", "charge"}, fills{"input", `{"card":"c-2","total":42}`}, fills{"note", "a new card"})
		becomes(a.T, a.server, a.of("fix"), projections.Processed)
	}},
	{"POST /orders/{id}/rerun", func(a *operator) {
		a.order("fix", "rerun", "Run again: done.", fills{"input", `{"total":7}`})
		a.says("Rerun of")
	}},
	{"POST /orders/{id}/skip-step", func(a *operator) {
		a.order("skip", "skip-step", "Skip a step: done.", fills{"step", "charge"}, fills{"output", `{"payment":"by hand"}`})
		becomes(a.T, a.server, a.of("skip"), projections.Processed)
	}},
	{"POST /orders/{id}/label", func(a *operator) { a.order("asks", "label", "team=red", fills{"labels", "team=red"}) }},
	{"POST /orders/{id}/change", func(a *operator) {
		a.order("asks", "change", "priority high", fills{"priority", "high"}, fills{"deadline", "+2h"})
	}},
	{"POST /orders/{id}/pause", func(a *operator) { a.order("asks", "pause", "Pending, paused", fills{"note", "lunch"}) }},
	{"POST /orders/{id}/resume", func(a *operator) { a.order("asks", "resume", "Resume: done.") }},
	{"POST /orders/{id}/signal", func(a *operator) {
		a.order("asks", "signal", "Signal: a step heard it.", fills{"signal", "paid"}, fills{"data", `{"by":"card"}`})
	}},
	{"POST /signals", func(a *operator) {
		a.at("/signals?signal=vote&workflow=deal")
		a.does(fmt.Sprintf(`form[action="/signals"]:has([name=under][value*=%q])`, a.name), "Signal: a step heard it.", fills{"signal", "vote"}, fills{"data", `{"for":true}`})
		becomes(a.T, a.server, a.of("keyed"), projections.Processed)
	}},
	{"POST /orders/{id}/decide", func(a *operator) {
		a.order("asks", "decide", "What you decided is recorded.", fills{"outcome", "granted"}, fills{"by", "ana"}, fills{"note", "known"})
		a.says("granted; by ana")
		a.at("/approvals")
		a.does(fmt.Sprintf("form[action=%q]", "/orders/"+a.of("declined")+"/decide"), "What you decided is recorded.", fills{"outcome", "declined"}, fills{"by", "bob"})
		waybill(a.T, "", "order", "history", a.of("declined"), "--server", a.server).want(a.T, 0, "declined; by bob", "")
	}},
	{"POST /orders/{id}/cancel", func(a *operator) {
		a.order("asks", "cancel", "Cancel: done.", fills{"note", "not wanted"})
		becomes(a.T, a.server, a.of("asks"), projections.Cancelled)
	}},
	{"POST /orders/{id}/terminate", func(a *operator) {
		a.order("declined", "terminate", "Terminate: done.", fills{"note", "enough"})
		becomes(a.T, a.server, a.of("declined"), projections.Terminated)
	}},
	{"POST /orders/{id}/release", func(a *operator) {
		a.order("held", "release", "Release: done.", fills{"discard", ""}, fills{"note", "its reply is of no use"})
		waybill(a.T, "", "order", "history", a.of("held"), "--server", a.server).want(a.T, 0, "order.released", "")
	}},
	{"POST /bulk", func(a *operator) { // of all commands the last is started below
		for command, fields := range map[string][]fills{
			"skip-step": {{"skip", "credit"}}, "change": {{"priority", "high"}, {"deadline", "+2h"}}, "cancel": nil, "terminate": {{"note", "enough"}},
		} {
			a.prepares(command, fields...)
		}
		a.preparesFrom("/orders?state=Error&workflow=order-fulfilment", "resubmit", fills{"keys", "newKey"})
		a.says("All that failed takes a new key")
		a.says("charge failed")
		a.preparesFrom("/orders?workflow=held", "release", fills{"discard", ""})
		a.prepares("pause", fills{"note", "all of them"})
		a.says(fmt.Sprintf("Pause: %d orders", inBulk))
	}},
	{"POST /bulk/{id}/start", func(a *operator) {
		at := a.location()
		a.does(`form[action$="/start"]`, "all of them")
		a.until(at, "Each order had its turn")
		a.says("Given, and taken: it was paused")
		a.says(fmt.Sprintf("Now, of %d orders: %d Pending.", inBulk, inBulk))
		a.until("/orders/"+a.of("many-0"), "Pending, paused")
	}},
	{"POST /bulk/{id}/stop", func(a *operator) {
		a.prepares("resume")
		a.does(`form[action$="/stop"]`, "The bulk act is forgotten")
		client := must(api.NewClient(a.server))
		defer client.Close()
		slow := must(client.PrepareBulk(a.Context(), &api.BulkRequest{Command: "resume", Rate: 1, Filter: api.BulkFilter{Workflow: "asks", Where: []string{"customer=" + a.name}}}))
		a.at("/bulk/" + slow.ID)
		a.does(`form[action$="/start"]`, "running")
		a.does(`form[action$="/stop"]`, "It did not reach all of them")
	}},
	{"POST /dead-letters/{partition}/{offset}", func(a *operator) {
		a.deadLetter("early", `form:not(:has([name=corrected])):not([action])`, "Put back")
		a.until("/orders/"+a.of("early"), "Pending, paused")
		a.deadLetter("corrected", `form:has([name=corrected])`, "Put back", fills{"value", `{"workflow":"order-fulfilment","input":{"total":42}}`})
		becomes(a.T, a.server, a.of("corrected"), projections.Processed)
	}},
	{"POST /dead-letters/{partition}/{offset}/discard", func(a *operator) {
		a.deadLetter("discarded", `form[action$="/discard"]`, "Discarded", fills{"note", "dealt with"})
	}},
	{"POST /workflows", func(a *operator) {
		a.at("/workflows")
		a.does(`form:has([name=source])`, "Registered.", fills{"source", "{workflow: " + a.of("flow") + ", steps: [{name: a, agent: b}]}"})
	}},
	{"POST /workflows/{name}/retire", func(a *operator) {
		form := fmt.Sprintf("form[action=%q]", "/workflows/"+a.of("flow")+"/retire")
		a.does(form, "may not have it")
		a.does(form, "have it, unless they name another")
	}},
	{"POST /schedules/{name}/pause", func(a *operator) {
		a.at("/schedules/" + a.of("nightly"))
		a.does(`form[action$="/pause"]`, "Pause: done.", fills{"note", "holidays"})
	}},
	{"POST /schedules/{name}/resume", func(a *operator) { a.does(`form[action$="/resume"]`, "Resume: done.") }},
	{"POST /schedules/{name}/delete", func(a *operator) { a.does(`form[action$="/delete"]`, "Deleted.", fills{"note", "no more"}) }},
}

// inBulk is on how many orders an operator acts at once.
const inBulk = 20

// everyAct does all that can be done, by forms alone or with scripts, and wants each form to be taken.
func everyAct(a *operator, sent *forms, brokers string) {
	a.Helper()
	for _, route := range console.New(nil, console.Config{}).Routes() {
		if strings.HasPrefix(route, "POST ") && !slices.ContainsFunc(inBrowser, func(act browserAct) bool { return act.route == route }) {
			a.Errorf("%s is not done in the browser: see inBrowser", route)
		}
	}
	sent.mu.Lock()
	sent.taken = make(map[string]bool)
	sent.mu.Unlock()
	a.begin(brokers)
	for _, act := range inBrowser {
		act.does(a)
		sent.mu.Lock()
		if !sent.taken[act.route] {
			a.Errorf("%s was not sent, or not taken", act.route)
		}
		sent.mu.Unlock()
	}
}

// begin makes what an operator acts on.
func (a *operator) begin(brokers string) {
	a.Helper()
	client := must(api.NewClient(a.server))
	defer client.Close()
	submit := func(flow, id, input string) {
		a.Helper()
		must(client.Submit(a.Context(), &api.Submission{ID: id, Workflow: flow, Input: []byte(input)}))
	}
	for _, what := range []string{"fix", "skip", "broken"} {
		submit("order-fulfilment", a.of(what), `{"card":"declined"}`)
		becomes(a.T, a.server, a.of(what), projections.Error)
	}
	for _, what := range []string{"asks", "declined"} {
		submit("asks", a.of(what), `{}`)
	}
	for n := range inBulk {
		submit("asks", a.of(fmt.Sprint("many-", n)), fmt.Sprintf(`{"customer":%q}`, a.name))
	}
	waybill(a.T, "", "workflow", "register", write(a.T, "deal.yaml", "{workflow: deal, steps: [{name: vote, listen: vote, key: input.ref}]}"), "--server", a.server).want(a.T, 0, "deal@1", "")
	submit("deal", a.of("keyed"), fmt.Sprintf(`{"ref":%q}`, a.name))
	waybill(a.T, "", "schedule", "apply", write(a.T, "s.yaml", "{schedule: "+a.of("nightly")+", cron: '30 3 * * *', workflow: order-fulfilment}"), "--server", a.server).want(a.T, 0, "nightly", "")

	kafka := must(kgo.NewClient(kgo.SeedBrokers(brokers)))
	defer kafka.Close()
	for what, of := range map[string][2]string{"corrected": {"orders", "{"}, "discarded": {"orders", "{"}, "early": {"commands", `{"command":"pause"}`}} {
		if err := kafka.ProduceSync(a.Context(), &kgo.Record{Topic: "waybill." + of[0], Key: []byte(a.of(what)), Value: []byte(of[1])}).FirstErr(); err != nil {
			a.Fatal(err)
		}
	}
	a.letters = make(map[string]string)
	oracle.Until(a.T, "they are put aside", func() error {
		page, err := client.DeadLetters(a.Context(), api.LetterFilter{}, 100, "")
		if err != nil {
			return err
		}
		for _, l := range page.DeadLetters {
			if l.Key != nil && l.Key.Text != nil && strings.HasSuffix(*l.Key.Text, a.of("")) {
				a.letters[*l.Key.Text] = fmt.Sprintf("/dead-letters/%d/%d", l.Partition, l.Offset)
			}
		}
		if len(a.letters) != 3 {
			return fmt.Errorf("%d are", len(a.letters))
		}
		return nil
	})
	submit("asks", a.of("early"), `{}`)
	oracle.Until(a.T, "orders wait", func() error {
		if o, err := client.Order(a.Context(), a.of("keyed")); err != nil || o.Steps[0].State != projections.Listening {
			return fmt.Errorf("keyed does not: %w", err)
		}
		for _, what := range []string{"asks", "declined", "early"} {
			if o, err := client.Order(a.Context(), a.of(what)); err != nil || !slices.ContainsFunc(o.Steps, func(s api.Step) bool { return s.State == projections.Approving }) {
				return fmt.Errorf("%s does not: %w", what, err)
			}
		}
		return nil
	})
}

// startHolding is [startProgram] with orders that are held, for actors of these names: their workflow is another than that with
// which they began, so that deciding on a reply panics.
func startHolding(t *testing.T, names ...string) (server, brokers string) {
	t.Helper()
	dir := t.TempDir()
	server, brokers, stop := startProgram(t, dir)
	const whole = "workflow: held\nsteps: [{name: charge, agent: nobody}, {name: ship, agent: nobody}]"
	waybill(t, "", "workflow", "register", write(t, "held.yaml", whole), "--server", server).want(t, 0, "held@1", "")
	for _, name := range names {
		waybill(t, "", "submit", "held", "--id", "held-"+name, "--server", server).want(t, 0, "", "")
	}
	client := must(api.NewClient(server))
	defer client.Close()
	held := func(is func(*api.Order) bool) {
		oracle.Until(t, "orders of the workflow held", func() error {
			for _, name := range names {
				if o, err := client.Order(t.Context(), "held-"+name); err != nil || !is(o) {
					return fmt.Errorf("held-%s is %+v, %w", name, o, err)
				}
			}
			return nil
		})
	}
	held(func(o *api.Order) bool { return o.Steps[0].State == projections.Running })
	kafka := must(kgo.NewClient(kgo.SeedBrokers(brokers)))
	defer kafka.Close()
	topics := must(events.NewTopics("waybill"))
	admin := kadm.NewClient(kafka)
	ends := must(admin.ListEndOffsets(t.Context(), topics.Workflows))
	if _, err := admin.DeleteRecords(t.Context(), ends.Offsets()); err != nil {
		t.Fatal(err)
	}
	other := must(workflow.Parse("other", []byte("workflow: held\nsteps: [{name: other, agent: nobody}]")))
	if err := kafka.ProduceSync(t.Context(), &kgo.Record{Topic: topics.Workflows, Key: []byte(other.ID()), Value: must(json.Marshal(other))}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	stop()

	server, brokers, _ = startProgram(t, dir)
	again := must(kgo.NewClient(kgo.SeedBrokers(brokers)))
	defer again.Close()
	for _, name := range names {
		reply := events.Reply{Order: "held-" + name, Step: "charge", Attempt: 1, Status: events.ReplyCompleted}
		if err := again.ProduceSync(t.Context(), &kgo.Record{Topic: topics.Replies, Key: []byte(reply.Order), Value: reply.Append(nil)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	client = must(api.NewClient(server))
	defer client.Close()
	held(func(o *api.Order) bool { return o.Held })
	return server, brokers
}
