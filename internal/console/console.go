// Package console makes the pages for people: what needs somebody, each order with everything that
// happened to it, and the acts. It is a client of the HTTP API, in whose words it asks and acts as
// whoever looks at the page, so that nobody sees or does here what it could not there. The pages
// are whole without scripts; one script keeps some of them current.
package console

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/internal/codec"
	"github.com/waybill-dev/waybill/internal/identity"
	"github.com/waybill-dev/waybill/internal/words"
)

//go:embed templates/*.html
var templates embed.FS

//go:embed static
var static embed.FS

// Config is what a [Console] needs to know.
type Config struct {
	// Base is the path under which a proxy has the server, such as /waybill; empty for none.
	Base string
	// External is the address under which browsers reach the server, without a / at its end; empty if nobody said so. The name in a request
	// is never taken for it.
	External string
	// Decodes says that the server has a codec: payloads on pages are shown as it decodes them for who looks.
	Decodes bool
	// Access says whether people log in at an issuer, and lets them; nil where nobody is asked for a name.
	Access *identity.Access
	// Version is that of the program.
	Version string
	// Logger takes what happens; nil discards it.
	Logger *slog.Logger
}

// Console is the HTTP handler of the pages.
type Console struct {
	server   http.Handler
	base     string
	external string
	decodes  bool
	access   *identity.Access
	version  string
	log      *slog.Logger
	pages    map[string]*template.Template // by the name of their file
	files    map[string][]byte             // by their path
	drawings drawings
	mux      *http.ServeMux
	routes   []string
}

// New returns the pages of a server, which is asked for all that they show.
func New(server http.Handler, cfg Config) *Console {
	c := &Console{server: server, base: cfg.Base, external: cfg.External, decodes: cfg.Decodes, access: cfg.Access, version: cfg.Version, log: cfg.Logger, mux: http.NewServeMux()}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	c.files = make(map[string][]byte)
	for _, name := range []string{"style.css", "icon.svg", "live.js", "zone.js"} {
		content, err := static.ReadFile("static/" + name)
		if err != nil {
			panic(err) // it is part of the program
		}
		sum := sha256.Sum256(content)
		c.files["/static/"+hex.EncodeToString(sum[:6])+"/"+name] = content
	}
	c.parse()

	c.get("/{$}", c.home)
	c.get("/find", c.find)
	c.get("/orders", c.orders)
	c.get("/orders/{id}", c.order)
	c.get("/orders/{id}/attempts", c.attempts)
	c.route("GET /orders/{id}/events", c.follow)
	c.posts("/orders/{id}/{act}", c.act, orderActs()...)
	c.get("/bulk", c.bulks)
	c.post("/bulk", c.prepareBulk)
	c.get("/bulk/{id}", c.bulk)
	c.posts("/bulk/{id}/{act}", c.actOnBulk, bulkStart, bulkStop)
	c.get("/alerts", c.alerts)
	c.get("/approvals", c.approvals)
	c.get("/signals", c.signals)
	c.post("/signals", c.signalKey)
	c.get("/dead-letters", c.deadLetters)
	c.get("/dead-letters/{partition}/{offset}", c.deadLetter)
	c.post("/dead-letters/{partition}/{offset}", c.replay)
	c.post("/dead-letters/{partition}/{offset}/discard", c.discard)
	c.get("/workflows", c.workflows)
	c.post("/workflows", c.registerWorkflow)
	c.get("/workflows/{name}", c.workflow)
	c.post("/workflows/{name}/retire", c.retire)
	c.get("/schedules", c.schedules)
	c.get("/schedules/{name}", c.schedule)
	c.posts("/schedules/{name}/{act}", c.actOnSchedule, events.CommandPause, events.CommandResume, events.CommandDelete)
	c.get("/limits", c.limits)
	c.get("/keys", c.key)
	c.get("/partitions", c.partitions)
	c.get("/agents", c.agents)
	c.post("/zone", c.setZone)
	c.post("/views", c.saveView)
	c.post("/views/remove", c.removeView)
	c.route("GET /login", c.login)
	c.route("POST /login", c.comeIn)
	c.route("POST /logout", c.goOut)
	c.route("GET "+issuerPath, c.toIssuer)
	c.route("GET "+backPath, c.fromIssuer)
	c.route("GET /static/", c.file)
	c.get("/", func(v *visit) (*view, error) {
		return nil, missing("There is no page %s.", v.URL.Path)
	})
	return c
}

// policy lets a page have what comes from this server, and nothing else.
const policy = "default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// maxForm is the largest form: a payload, in the text area of a page.
const maxForm = 4 << 20

// ServeHTTP answers a request.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Security-Policy", policy)
	w.Header().Set("Referrer-Policy", "same-origin")
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	c.mux.ServeHTTP(w, r)
}

// visit is somebody who looks at a page, or does something there.
type visit struct {
	*http.Request
	client *api.Client
	caller *api.Caller
	zone   *time.Location // of the times on the page

	decodes   bool // payloads are to be shown as the server's codec decodes them
	masked    bool // there are none for who looks
	undecoded string
}

// reads is a client for payloads that are shown: decoded, unless the codec was asked for this page and has failed. It is not asked again then, so
// that nobody waits for it twice.
func (v *visit) reads() *api.Client {
	if v.decodes && (v.undecoded == "" || codec.Unasked(v.undecoded)) {
		return v.client.Decoding()
	}
	return v.client
}

// tells notes why a part of the page is not decoded, if it is not: that the codec failed rather than that it was not asked.
func (v *visit) tells(undecoded string) {
	if v.undecoded == "" || undecoded != "" && codec.Unasked(v.undecoded) {
		v.undecoded = undecoded
	}
}

// decoding is how payloads of a page stand with the codec; empty without one, or the other.
func (v *visit) decoding() string {
	switch {
	case !v.decodes, v.masked:
		return ""
	case codec.Unasked(v.undecoded):
		return "Some payloads are as they are stored, and not decoded: " + v.undecoded + "."
	case v.undecoded != "":
		return "Payloads are as they are stored, and not decoded: " + v.undecoded + "."
	}
	return "Payloads are shown as the codec decodes them for you, and stored as they came."
}

// view is what a page shows.
type view struct {
	page   string // the name of its template
	status int    // 0 is 200
	title  string
	data   any
	live   *live
	// to is another page where the browser goes on instead, and done what was done, which it says there once.
	to, done string
	keeps    *kept // what the browser keeps, where it goes on
}

// kept is what a browser keeps for long: a cookie, by what is behind the name of that of its log-in.
type kept struct{ suffix, value string }

// keptFor is for how many seconds it does, which is as long as browsers keep a cookie.
const keptFor = 400 * 24 * 3600

// live is how a page is kept current.
type live struct {
	Every  int    // in so many seconds it is fetched again
	Stream string // what tells that something happened, if anything does
	Says   string // what is on the page, for those who hear it: said again once it is another
	// Unscripted has the page be loaded again after that time where scripts do not run, too.
	Unscripted bool
}

func (c *Console) get(path string, show func(*visit) (*view, error)) { c.handle("GET "+path, show) }

// post is for what changes something. Whoever did it goes on to a page that may be loaded again.
func (c *Console) post(path string, do func(*visit) (*view, error)) { c.handle("POST "+path, do) }

// posts is for what changes something in one of several ways, which {act} in its path names.
func (c *Console) posts(path string, do func(*visit) (*view, error), names ...string) {
	c.post(path, func(v *visit) (*view, error) {
		if act := v.PathValue("act"); !slices.Contains(names, act) {
			return nil, missing("Nothing that can be done there is called %q, but one of these is: %s.", act, strings.Join(names, ", "))
		}
		return do(v)
	})
	c.routes = c.routes[:len(c.routes)-1]
	for _, name := range names {
		c.routes = append(c.routes, "POST "+strings.Replace(path, "{act}", name, 1))
	}
}

// route has a pattern answered.
func (c *Console) route(pattern string, answer http.HandlerFunc) {
	c.mux.HandleFunc(pattern, answer)
	c.routes = append(c.routes, pattern)
}

// Routes are the patterns of all pages, and of all that is done from them: each act has one of its own.
func (c *Console) Routes() []string { return c.routes }

func (c *Console) handle(pattern string, do func(*visit) (*view, error)) {
	c.route(pattern, func(w http.ResponseWriter, r *http.Request) {
		v := &visit{Request: r, client: api.Inside(c.server, r, c.token(r)), zone: c.zone(r), decodes: c.decodes}
		found, err := v.run(do)
		if answered(err, http.StatusUnauthorized) {
			c.askWho(w, v, problemOf(err))
			return
		}
		if err != nil {
			c.fail(w, v, err)
			return
		}
		if found.to != "" {
			if found.done != "" {
				c.keep(w, r, c.name(r)+doneSuffix, found.done, 60)
			}
			if found.keeps != nil {
				c.keep(w, r, c.name(r)+found.keeps.suffix, found.keeps.value, keptFor)
			}
			http.Redirect(w, r, c.base+found.to, http.StatusSeeOther)
			return
		}
		c.write(w, v, cmp.Or(found.status, http.StatusOK), found)
	})
}

// run finds out who asks, and does it.
func (v *visit) run(do func(*visit) (*view, error)) (*view, error) {
	caller, err := v.client.Caller(v.Context())
	if err != nil {
		return nil, err
	}
	v.caller = caller
	if err := v.ParseForm(); err != nil {
		return nil, &api.Problem{Status: http.StatusBadRequest, Title: "Bad request", Detail: fmt.Sprintf("The form cannot be read: %v.", err)}
	}
	return do(v)
}

// value is what a field of a form says, without the space around it, and with the ends of lines that a text has
// elsewhere.
func (v *visit) value(name string) string {
	return strings.TrimSpace(strings.ReplaceAll(v.Form.Get(name), "\r\n", "\n"))
}

// key is the idempotency key of a form: sent twice it is the same, and with another content another.
func (v *visit) key() string {
	sum := sha256.New()
	fmt.Fprintln(sum, v.URL.Path)
	for _, name := range slices.Sorted(maps.Keys(v.Form)) {
		for _, value := range v.Form[name] {
			fmt.Fprintf(sum, "%d %s %d %s ", len(name), name, len(value), value)
		}
	}
	return hex.EncodeToString(sum.Sum(nil)[:16])
}

// by is who acts: nobody else than who is known, and else whom the form names.
func (v *visit) by() string {
	if v.caller.Subject != nil {
		return ""
	}
	return v.value("by")
}

// whole is what the layout shows around a page.
type whole struct {
	Base, Version, Title, Path string
	Caller                     *api.Caller
	CameIn                     bool   // by the log-in, and may go out
	Key                        string // an idempotency key for each form of the page
	Done                       string
	Problem                    *api.Problem
	Live                       *live
	Data                       any
	After                      string        // behind which place of a list it is, or the list from which somebody came to it
	Decoding                   string        // how its payloads stand with the codec
	Content                    template.HTML // what the page is about
	Tag                        string        // another once the content tells something else
	Of                         string        // for whom, and in which zone: see madeFor
	Made                       time.Time
	Zone                       string // of all times
	static                     map[string][]byte
}

// Static is where a file is, by its name.
func (p *whole) Static(name string) string {
	for path := range p.static {
		if strings.HasSuffix(path, "/"+name) {
			return p.Base + path
		}
	}
	return ""
}

func (c *Console) write(w http.ResponseWriter, v *visit, status int, shown *view) {
	c.writeWith(w, v, status, shown, nil)
}

// asOf is a header of the answer that a page is as it was: as of when, as its time element has that, and its text.
const asOf = "Waybill-As-Of"

func (c *Console) writeWith(w http.ResponseWriter, v *visit, status int, shown *view, problem *api.Problem) {
	page := &whole{
		Base: c.base, Version: c.version, Title: shown.title, Path: v.URL.Path, Made: time.Now(), Live: shown.live,
		Caller: v.caller, CameIn: c.token(v.Request) != "", Key: uuid.NewString(), Problem: problem, Data: shown.data, After: v.value("after"), Decoding: v.decoding(), static: c.files,
	}
	zone := c.zone(v.Request)
	words.InZone(shown.data, zone)
	page.Made, page.Zone = page.Made.In(zone), zone.String()
	var b bytes.Buffer
	if err := c.pages[shown.page].ExecuteTemplate(&b, "content", page); err != nil {
		c.broken(w, shown, err)
		return
	}
	has := v.Header.Get("If-None-Match") // the script's, for the page that somebody looks at
	page.Of = madeFor(v.caller, zone)
	if page.Tag = tagOf(append(b.Bytes(), page.Of...), page.Key); shown.live != nil {
		tag := `W/"` + page.Tag + `"`
		w.Header().Set("ETag", tag)
		if has == tag {
			w.Header().Set(asOf, stamp(page.Made)+" "+page.Made.Format(clockForm))
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	page.Content = template.HTML(b.String()) //nolint:gosec // a template made it
	if done, err := v.Cookie(c.name(v.Request) + doneSuffix); err == nil && status < 300 && has == "" {
		page.Done = acts.done(done.Value)
		c.keep(w, v.Request, done.Name, "", -1)
	}
	b.Reset()
	if err := c.pages[shown.page].Execute(&b, page); err != nil {
		c.broken(w, shown, err)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes()) // whoever hung up needs no answer
}

// broken answers where a template does not fit what it is of.
func (c *Console) broken(w http.ResponseWriter, shown *view, err error) {
	c.log.Error("a page could not be made", "page", shown.page, "error", err)
	http.Error(w, "The page could not be made; the log says why.", http.StatusInternalServerError)
}

// madeFor is another for whoever else may look, and in another zone: the script has what is around a page's content made anew
// then, too.
func madeFor(caller *api.Caller, zone *time.Location) string {
	what := fmt.Appendf(nil, "%q", zone)
	if caller != nil {
		for _, text := range []*string{caller.Subject, caller.Method} {
			if text != nil {
				what = fmt.Appendf(what, "%q", *text)
			}
		}
		what = fmt.Appendf(what, "%q", caller.Grants)
	}
	sum := sha256.Sum256(what)
	return hex.EncodeToString(sum[:8])
}

// agoMark stands before each text that says how long ago something was. The script keeps those current by itself.
const agoMark = "data-ago>"

// tagOf is the same of two contents that tell the same, however long ago that is by now, and under whatever key their forms are.
func tagOf(content []byte, key string) string {
	sum := sha256.New()
	for len(content) > 0 {
		before, rest, _ := bytes.Cut(content, []byte(agoMark))
		sum.Write(bytes.ReplaceAll(before, []byte(key), nil))
		_, content, _ = bytes.Cut(rest, []byte("<"))
	}
	return hex.EncodeToString(sum.Sum(nil)[:12])
}

// fail says what was wrong, and what to do.
func (c *Console) fail(w http.ResponseWriter, v *visit, err error) {
	problem := problemOf(err)
	if problem.Status == http.StatusInternalServerError && !errors.Is(err, context.Canceled) {
		c.log.Error("a page could not be made", "path", v.URL.Path, "error", err)
	}
	c.writeWith(w, v, problem.Status, &view{page: "problem.html", title: http.StatusText(problem.Status), data: failure{v.from(), c.there(v, problem)}}, problem)
}

// failure is what the page of a problem shows, beside it.
type failure struct {
	From  string // see [visit.from]
	There string // the same page at the instance that has what was asked for; empty if that is not known
}

// there is where a page is to which another instance answers, and to a form the page on which it stood. A log-in is of one name, and a redirect would take
// nobody there who has none: so it is a link.
func (c *Console) there(v *visit, problem *api.Problem) string {
	if problem.Status != http.StatusMisdirectedRequest || problem.Owner == "" {
		return ""
	}
	if v.Method == http.MethodGet {
		return problem.Owner + v.URL.RequestURI()
	}
	return problem.Owner + v.back(c.base)
}

// from is the page on which somebody followed a link, or sent a form; empty if that is not known.
func (v *visit) from() string {
	from, err := url.Parse(v.Referer())
	if err != nil || from.Host != v.Host || from.RequestURI() == v.URL.RequestURI() {
		return ""
	}
	return from.RequestURI()
}

// back is the page on which somebody sent a form, to which the browser goes back: the first one if that is not known.
func (v *visit) back(base string) string {
	if to := strings.TrimPrefix(v.from(), base); strings.HasPrefix(to, "/") && !strings.HasPrefix(to, "//") {
		return to
	}
	return "/"
}

// missing says what there is not.
func missing(format string, args ...any) error {
	return &api.Problem{Status: http.StatusNotFound, Title: "Not found", Detail: fmt.Sprintf(format, args...)}
}

// answered says whether the server refused something with a status.
func answered(err error, status int) bool {
	problem := new(api.Problem)
	return errors.As(err, &problem) && problem.Status == status
}

// problemOf is what the server answered, or what went wrong here.
func problemOf(err error) *api.Problem {
	if problem := new(api.Problem); errors.As(err, &problem) {
		return problem
	}
	return &api.Problem{Status: http.StatusInternalServerError, Title: "Something went wrong", Detail: err.Error()}
}

// file answers a file of the program. Its path changes with its content.
func (c *Console) file(w http.ResponseWriter, r *http.Request) {
	content, found := c.files[r.URL.Path]
	if !found {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	if strings.HasSuffix(r.URL.Path, ".js") {
		w.Header().Set("Content-Type", "text/javascript; charset=utf-8") // some machines say otherwise
	}
	http.ServeContent(w, r, r.URL.Path, time.Time{}, bytes.NewReader(content))
}

// parse makes the templates. Those that are wrong are found by whoever starts the program.
func (c *Console) parse() {
	names, err := fs.Glob(templates, "templates/*.html")
	if err != nil {
		panic(err) // it is a good pattern
	}
	layout := template.Must(template.New("layout.html").Funcs(c.functions()).ParseFS(templates, "templates/layout.html", "templates/parts.html"))
	c.pages = make(map[string]*template.Template)
	for _, name := range names {
		base := strings.TrimPrefix(name, "templates/")
		if base == "layout.html" || base == "parts.html" {
			continue
		}
		c.pages[base] = template.Must(template.Must(layout.Clone()).ParseFS(templates, name))
	}
}

// link is the address of a page with a query, from which what is empty is left out.
func link(path string, pairs ...string) string {
	query := make(url.Values)
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			query.Add(pairs[i], pairs[i+1])
		}
	}
	if len(query) == 0 {
		return path
	}
	return path + "?" + query.Encode()
}

// orderPath is the page of an order.
func orderPath(id string) string { return "/orders/" + api.PathEscape(id) }
