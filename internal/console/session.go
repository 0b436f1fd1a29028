package console

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"strings"

	"github.com/waybill-dev/waybill/internal/api"
)

// name is that of the cookie in which a browser keeps the key, or the token, with which its user came in: until it
// is closed, and out of reach of scripts. Cookies know no ports: whatever else is served under the name of this host gets
// it, too, and so the name is one by port. No instance remembers who came, so any of several answers.
func (c *Console) name(r *http.Request) string {
	sum := sha256.Sum256([]byte(r.Host + c.base))
	return "waybill-" + hex.EncodeToString(sum[:6])
}

// doneSuffix is behind the name of the cookie that says what was done, on the next page.
const doneSuffix = "-done"

// maxToken is how long a token may be, in bytes: browsers throw larger cookies away, and say nothing.
const maxToken = 3800

// token is what a browser came in with.
func (c *Console) token(r *http.Request) string {
	kept, err := r.Cookie(c.name(r))
	if err != nil {
		return ""
	}
	return kept.Value
}

// askWho has a browser say who asks, and then come back to the page.
func (c *Console) askWho(w http.ResponseWriter, v *visit, why *api.Problem) {
	to := v.URL.RequestURI()
	switch {
	case v.Method != http.MethodGet:
		to = strings.TrimPrefix(v.from(), c.base)
		why = &api.Problem{Detail: "Nothing was done, because it is not known any more who asks. Log in, and do it again."}
	case c.token(v.Request) == "":
		why = nil // nothing was tried
	}
	c.forget(w, v.Request)
	c.writeWith(w, v, http.StatusUnauthorized, c.loginView(to), why)
}

func (c *Console) login(w http.ResponseWriter, r *http.Request) {
	c.write(w, &visit{Request: r}, http.StatusOK, c.loginView(r.URL.Query().Get("to")))
}

// comeIn looks whether a key, or a token, is one, and has the browser keep it.
func (c *Console) comeIn(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, 16<<10)
	v := &visit{Request: r}
	given := strings.TrimSpace(r.PostFormValue("key"))
	to := ownPage(r.PostFormValue("to"))
	fail := func(p *api.Problem) { c.writeWith(w, v, p.Status, c.loginView(to), p) }
	if given == "" || !plain(given) {
		fail(&api.Problem{Status: http.StatusUnprocessableEntity, Title: "No key", Detail: "Give a key that waybill key new made, or a token of your issuer, as it is."})
		return
	}
	if len(given) > maxToken {
		fail(&api.Problem{Status: http.StatusUnprocessableEntity, Title: "Too long", Detail: "A browser keeps no token as long as this one. Come in with a key, or a client certificate."})
		return
	}
	_, err := api.Inside(c.server, r, given).Caller(r.Context())
	if err != nil {
		fail(problemOf(err))
		return
	}
	c.keep(w, r, c.name(r), given, 0)
	http.Redirect(w, r, c.base+to, http.StatusSeeOther) //nolint:gosec // it is a path of this server, see above
}

// ownPage is a page of this server, where somebody goes on who came in.
func ownPage(to string) string {
	odd := func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '\\' }
	if u, err := url.Parse(to); err != nil || u.Host != "" || u.Scheme != "" || !strings.HasPrefix(to, "/") || strings.HasPrefix(to, "//") || strings.ContainsFunc(to, odd) {
		return "/" // it may be a page of another server
	}
	return to
}

func (c *Console) goOut(w http.ResponseWriter, r *http.Request) {
	c.forget(w, r)
	http.Redirect(w, r, c.base+"/login", http.StatusSeeOther)
}

func (c *Console) forget(w http.ResponseWriter, r *http.Request) {
	c.keep(w, r, c.name(r), "", -1)
}

// keep has the browser keep something for so many seconds, or with an age of 0 until it is closed; a negative age has it throw it
// away.
func (c *Console) keep(w http.ResponseWriter, r *http.Request, name, value string, age int) {
	c.keepAs(w, name, value, age, secure(r))
}

func (c *Console) keepAs(w http.ResponseWriter, name, value string, age int, secure bool) {
	http.SetCookie(w, &http.Cookie{ //nolint:gosec // who comes in clear, as on this machine, goes on so
		Name: name, Value: value, Path: c.base + "/", MaxAge: age, HttpOnly: true, Secure: secure, SameSite: http.SameSiteLaxMode,
	})
}

// plain says that a text can stand in a header, and in a cookie.
func plain(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7f || strings.ContainsRune(`",;\`, r) }) < 0
}

// secure says that the browser came by TLS, to this server or to a proxy before it.
func secure(r *http.Request) bool {
	from, err := url.Parse(r.Header.Get("Origin"))
	return r.TLS != nil || err == nil && from.Scheme == "https"
}
