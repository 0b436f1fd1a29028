package console

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/internal/identity"
)

// Log-in at an issuer of OpenID Connect, by the code flow. What it leaves is the issuer's token in the cookie in which a key would be
// else: who comes with it is looked at as anybody with a token is, and it is of no use once it has ended.

const (
	issuerPath = "/login/oidc"
	backPath   = "/login/oidc/callback"
	// attemptSuffix is behind the name of the cookie that has the log-in that this browser has begun, for so many seconds.
	attemptSuffix  = "-login"
	attemptSeconds = 600
)

// loginPage is what the page for log-ins shows.
type loginPage struct {
	To     string // where the browser goes on
	Issuer string // at which people log in, empty without one
	Begin  string // where that begins, empty where it cannot
}

func (c *Console) loginView(to string) *view {
	page := &loginPage{To: to}
	if issuer, yes := c.logsIn(); yes {
		page.Issuer = issuer
		if u, err := url.Parse(issuer); err == nil {
			page.Issuer = u.Host
		}
		if c.external != "" { // the cookie of the attempt and the page that needs it must be of one name
			page.Begin = c.external + link(issuerPath, "to", ownPage(to))
		}
	}
	return &view{page: "login.html", title: "Log in", data: page}
}

func (c *Console) logsIn() (issuer string, yes bool) {
	if c.access == nil {
		return "", false
	}
	return c.access.LogsIn()
}

// logIn is what the browser keeps of a log-in until it comes back.
type logIn struct {
	identity.Attempt
	To string `json:"to"`
}

// https says whether browsers reach the server by TLS.
func (c *Console) https() bool { return strings.HasPrefix(c.external, "https:") }

// toIssuer begins a log-in.
func (c *Console) toIssuer(w http.ResponseWriter, r *http.Request) {
	to := ownPage(r.URL.Query().Get("to"))
	if c.access == nil || c.external == "" {
		c.noLogIn(w, r, to, identity.ErrNoLogIn)
		return
	}
	at, begun, err := c.access.Begin(r.Context(), c.external+backPath)
	if err != nil {
		c.noLogIn(w, r, to, err)
		return
	}
	kept, err := json.Marshal(&logIn{*begun, to})
	if err != nil || len(kept) > maxToken*3/4 {
		c.noLogIn(w, r, "/", fmt.Errorf("%w: the address of the page is too long", identity.ErrLogIn))
		return
	}
	c.keepAs(w, c.name(r)+attemptSuffix, base64.RawURLEncoding.EncodeToString(kept), attemptSeconds, c.https())
	http.Redirect(w, r, at, http.StatusSeeOther)
}

// fromIssuer ends one.
func (c *Console) fromIssuer(w http.ResponseWriter, r *http.Request) {
	begun, query := c.begun(r), r.URL.Query()
	c.keepAs(w, c.name(r)+attemptSuffix, "", -1, c.https()) // it counts once
	if c.access == nil || c.external == "" {
		c.noLogIn(w, r, "/", identity.ErrNoLogIn)
		return
	}
	to := ownPage(begun.To)
	if refusal := query.Get("error"); refusal != "" && begun.Is(query.Get("state")) {
		c.noLogIn(w, r, to, fmt.Errorf("%w: the issuer says %q", identity.ErrLogIn, shortened(refusal+" "+query.Get("error_description"))))
		return
	}
	token, until, err := c.access.Finish(r.Context(), c.external+backPath, &begun.Attempt, query.Get("state"), query.Get("code"))
	if err != nil {
		c.noLogIn(w, r, to, err)
		return
	}
	caller, err := api.Inside(c.server, r, token).Caller(r.Context())
	switch {
	case err != nil:
		c.noLogIn(w, r, to, fmt.Errorf("%w: %w", identity.ErrLogIn, err))
	case len(caller.Grants) == 0:
		c.writeWith(w, &visit{Request: r}, http.StatusForbidden, c.loginView(to), &api.Problem{
			Status: http.StatusForbidden, Title: "No role",
			Detail: fmt.Sprintf("The issuer knows you as %s, and the access file gives none of your groups a role: ask an administrator for one.", *caller.Subject),
		})
	case len(token) > maxToken || !plain(token):
		c.writeWith(w, &visit{Request: r}, http.StatusUnprocessableEntity, c.loginView(to), &api.Problem{
			Status: http.StatusUnprocessableEntity, Title: "Too long",
			Detail: fmt.Sprintf("The issuer's token has %d bytes, and browsers keep none of more than %d: have it say fewer groups, or come in with a key.", len(token), maxToken),
		})
	default:
		c.keepAs(w, c.name(r), token, max(1, int(time.Until(until).Seconds())), c.https())
		http.Redirect(w, r, c.base+to, http.StatusSeeOther)
	}
}

// begun is the log-in that a browser has begun, empty without one.
func (c *Console) begun(r *http.Request) (begun logIn) {
	kept, err := r.Cookie(c.name(r) + attemptSuffix)
	if err != nil {
		return logIn{}
	}
	text, err := base64.RawURLEncoding.DecodeString(kept.Value)
	if err != nil || json.Unmarshal(text, &begun) != nil {
		return logIn{}
	}
	return begun
}

// noLogIn says why a log-in came to nothing, and how else to come in.
func (c *Console) noLogIn(w http.ResponseWriter, r *http.Request, to string, err error) {
	p := &api.Problem{Status: http.StatusBadRequest, Title: "No log-in", Detail: fmt.Sprintf("%s. Begin anew, or come in with a key.", capital(err.Error()))}
	switch {
	case errors.Is(err, identity.ErrAway):
		p.Status, p.Title, p.Detail = http.StatusServiceUnavailable, "Issuer away", "The issuer at which you log in does not answer now. Try again in a moment, or come in with a key."
		c.log.Warn("nobody can log in at the issuer", "error", err)
	case errors.Is(err, identity.ErrNoLogIn):
		p.Status, p.Detail = http.StatusNotFound, "Nobody logs in here at an issuer: come in with a key."
	case !errors.Is(err, identity.ErrLogIn):
		p.Status, p.Detail = http.StatusInternalServerError, "The log-in is not set up as it must be; the log says why. Come in with a key."
		c.log.Error("nobody can log in at the issuer", "error", err)
	}
	c.writeWith(w, &visit{Request: r}, p.Status, c.loginView(to), p)
}

// shortened is what others wrote, as much of it as fits on a page.
func shortened(text string) string { return strings.TrimSpace(text[:min(len(text), 200)]) }

func capital(text string) string { return strings.ToUpper(text[:1]) + text[1:] }
