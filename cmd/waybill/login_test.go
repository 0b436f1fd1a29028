package main

import (
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/waybill-dev/waybill/test/child"
	"github.com/waybill-dev/waybill/test/issuer"
	"github.com/waybill-dev/waybill/test/oracle"
)

// asksAt is what an access file says of an issuer at which people log in.
func asksAt(t *testing.T, at string) string {
	t.Helper()
	return "oidc:\n  issuer: " + at + "\n  audience: " + issuer.Client + "\n  subject: email\n  login: {secretFile: " + write(t, "secret", issuer.Secret) + "}\n  roles: [{group: ops, roles: [operator]}]\n"
}

// steps is a browser that does not follow redirects by itself.
func (b *browser) steps(path string) (status int, set []*http.Cookie, to string) {
	b.Helper()
	still := *b.Client
	still.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	if !strings.Contains(path, "://") {
		path = b.server + path
	}
	answer, err := still.Get(path)
	if err != nil {
		b.Fatal(err)
	}
	_ = answer.Body.Close() // it is not read
	return answer.StatusCode, answer.Cookies(), answer.Header.Get("Location")
}

// cookie is one that an answer sets, by what its name ends with.
func cookie(t *testing.T, set []*http.Cookie, login bool) *http.Cookie {
	t.Helper()
	for _, c := range set {
		if strings.HasSuffix(c.Name, "-login") == login {
			return c
		}
	}
	t.Fatalf("it sets %v", set)
	return nil
}

// People log in at their issuer, in the browser in which they began, and are there who their token says.
func TestLogInAtAnIssuer(t *testing.T) {
	clearEnvironment(t)
	i := issuer.New(t)
	i.Away(http.StatusBadGateway) // while the server starts
	addr := child.FreeAddress(t)
	file, key := accessFile(t, "viewer", asksAt(t, i.URL))
	waybill(t, "", "dev", "--data-dir", t.TempDir(), "--kafka-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0", "--access", file).want(t, 2, "", "say with --http-url how browsers reach this server")
	external := "http://" + addr + "/x"
	_, _, _ = startDev(t, t.TempDir(), "--http-addr", addr, "--access", file, "--http-url", external, "--http-base", "/x")
	b := newBrowser(t, external)
	b.page(401, "/orders?state=Error", "Log in at "+strings.TrimPrefix(i.URL, "http://"), external+"/login/oidc?to=%2Forders%3Fstate%3DError")
	b.page(503, "/login/oidc", "does not answer now", `name="key"`)
	b.send(200, "/login", "to=%2Forders&key="+url.QueryEscape(key), "<h1>Orders")
	b.send(200, "/logout", "", "Log in at")
	i.Away(0)

	// There, and back.
	oracle.Until(t, "the issuer is asked again", func() error {
		if status, _, _ := b.steps("/login/oidc"); status != http.StatusSeeOther {
			return http.ErrServerClosed
		}
		return nil
	})
	_, set, to := b.steps("/login/oidc?to=%2Forders%3Fstate%3DError")
	if c := cookie(t, set, true); !c.HttpOnly || c.SameSite != http.SameSiteLaxMode || c.Secure || c.MaxAge != 600 || c.Path != "/x/" {
		t.Errorf("the attempt is kept as %v", c)
	}
	_, _, back := b.steps(to)
	if !strings.HasPrefix(back, external+"/login/oidc/callback?") {
		t.Fatal(back)
	}
	other := newBrowser(t, external)
	other.page(400, strings.TrimPrefix(back, external), "not begun in this browser")
	_, set, to = b.steps(back)
	c := cookie(t, set, false)
	if to != "/x/orders?state=Error" || !c.HttpOnly || c.SameSite != http.SameSiteLaxMode || c.Secure || c.MaxAge < 3500 || c.MaxAge > 3600 || c.Path != "/x/" || cookie(t, set, true).MaxAge >= 0 {
		t.Errorf("it leads to %q, with %v", to, set)
	}
	b.page(200, "/orders", "ana@shop.example", "Log out")
	b.page(400, strings.TrimPrefix(back, external), "not begun in this browser") // again
	b.page(200, "/orders", "ana@shop.example")
	b.send(200, "/logout", "", "Log in at")
	b.page(401, "/orders", "Log in at")

	// What others write leads nowhere else, and nothing believes the name of a request.
	for _, elsewhere := range []string{"https://evil.example/", "//evil.example/", `/\evil.example`, "javascript:1", ""} {
		if _, _, to := b.steps("/login/oidc?to=" + url.QueryEscape(elsewhere)); to != "" {
			_, _, back := b.steps(to)
			if _, _, to := b.steps(back); to != "/x/" {
				t.Errorf("%q leads to %q", elsewhere, to)
			}
		}
	}
	for _, asked := range i.Asked() {
		if asked.Get("redirect_uri") != external+"/login/oidc/callback" {
			t.Errorf("%v", asked)
		}
	}
	b.send(200, "/logout", "")

	i.Deny("<b>no")
	b.page(400, "/login/oidc", "access_denied", "&lt;b&gt;no", "!<b>no")
	i.Deny("")
	i.Claim("groups", []string{"staff"})
	b.page(403, "/login/oidc", "knows you as ana@shop.example, and the access file gives none of your groups a role")
	i.Claim("groups", []string{"ops", strings.Repeat("x", 4000)})
	b.page(422, "/login/oidc", "browsers keep none of more than 3800")
	i.Unclaim()
	i.Claim("aud", "other")
	b.page(400, "/login/oidc", "no token of the issuer")
	i.Unclaim()
	b.page(401, "/orders", "Log in at")
	i.Claim("exp", time.Now().Add(3*time.Second).Unix())
	b.page(200, "/login/oidc?to=%2Forders", "ana@shop.example")
	oracle.Until(t, "the session ends with the token", func() error {
		if status, _, _ := b.steps("/orders"); status != http.StatusUnauthorized {
			return http.ErrServerClosed
		}
		return nil
	})
	i.Unclaim()
	i.Rotate(jose.ES256)
	oracle.Until(t, "a new key is known", func() error {
		if answer, err := b.Get(external + "/login/oidc?to=%2Forders"); err != nil || answer.Body.Close() != nil || answer.StatusCode != http.StatusOK {
			return http.ErrServerClosed
		}
		return nil
	})
}

// Under https what a browser keeps goes back by https alone.
func TestLogInUnderHTTPS(t *testing.T) {
	clearEnvironment(t)
	i := issuer.New(t)
	file, _ := accessFile(t, "viewer", asksAt(t, i.URL))
	server, _, _ := startDev(t, t.TempDir(), "--access", file, "--http-url", "https://waybill.example")
	b := newBrowser(t, server)
	_, set, to := b.steps("/login/oidc?to=%2Forders")
	begun := cookie(t, set, true)
	if !begun.Secure {
		t.Errorf("the attempt is kept as %v", begun)
	}
	_, _, back := b.steps(to)
	path, ok := strings.CutPrefix(back, "https://waybill.example/login/oidc/callback?")
	if !ok {
		t.Fatal(back)
	}
	jar, err := cookiejar.New(nil) // it gives a cookie for https to no http
	if err != nil {
		t.Fatal(err)
	}
	at, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	begun.Secure = false
	jar.SetCookies(at, []*http.Cookie{begun})
	b.Jar = jar
	_, set, to = b.steps("/login/oidc/callback?" + path)
	if c := cookie(t, set, false); to != "/orders" || !c.Secure || !c.HttpOnly {
		t.Errorf("%q, %v", to, c)
	}
}
