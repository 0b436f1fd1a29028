package identity

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	at "github.com/waybill-dev/waybill/test/issuer"
)

const back = "https://waybill.example/login/oidc/callback"

// desk is where people log in at an issuer.
type desk struct {
	*testing.T
	*at.Issuer
	access *Access
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	d := &desk{T: t, Issuer: at.New(t)}
	secret, file := filepath.Join(t.TempDir(), "secret"), filepath.Join(t.TempDir(), "access.yaml")
	err := errors.Join(os.WriteFile(secret, []byte(at.Secret+"\n"), 0o600), os.WriteFile(file, fmt.Appendf(nil, `oidc:
  issuer: %s
  audience: api
  login: {client: %s, secretFile: %q}
  roles: [{group: ops, roles: [operator]}]
`, d.URL, at.Client, secret), 0o600))
	if err == nil {
		d.access, err = Open(file, slog.New(slog.DiscardHandler))
	}
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// goes is a browser that goes to the issuer, and what it comes back with.
func (d *desk) goes() (begun *Attempt, state, code string) {
	d.Helper()
	to, begun, err := d.access.Begin(d.Context(), back)
	if err != nil {
		d.Fatal(err)
	}
	r, err := http.NewRequestWithContext(d.Context(), http.MethodGet, to, http.NoBody)
	if err != nil {
		d.Fatal(err)
	}
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		d.Fatal(err)
	}
	_ = answer.Body.Close() // it is not read
	came, err := url.Parse(answer.Header.Get("Location"))
	if err != nil || !strings.HasPrefix(came.String(), back+"?") {
		d.Fatal(came, err)
	}
	return begun, came.Query().Get("state"), came.Query().Get("code")
}

func (d *desk) finish(begun *Attempt, state, code string) (string, error) {
	token, until, err := d.access.Finish(d.Context(), back, begun, state, code)
	if err == nil && time.Until(until).Round(time.Minute) != time.Hour {
		d.Errorf("it ends at %s", until)
	}
	return token, err
}

// Who logs in at the issuer is who the token says, as one who comes with it, whatever key it is signed with.
func TestLogIn(t *testing.T) {
	d := newDesk(t)
	if url, yes := d.access.LogsIn(); !yes || url != d.URL {
		t.Error(url, yes)
	}
	for range 2 {
		token, err := d.finish(d.goes())
		if err != nil {
			t.Fatal(err)
		}
		c, err := d.access.Identify(t.Context(), bearing(t, token))
		if err != nil || c.Subject != "u-1" || !c.May(Operator, "w") {
			t.Errorf("%+v, %v", c, err)
		}
		d.Rotate(jose.ES256)
		d.access.said.oidc.keys.rewind(fetchEvery)
	}
	asked := d.Asked()[0]
	if asked.Get("scope") != "openid profile email" || asked.Get("redirect_uri") != back || len(asked.Get("state")) < 20 || len(asked.Get("nonce")) < 20 || asked.Get("nonce") == d.Asked()[1].Get("nonce") || asked.Get("state") == d.Asked()[1].Get("state") {
		t.Errorf("%v", d.Asked())
	}
	// Tokens for others are not taken, nor are those for the client where nobody logs in as it.
	for audience, want := range map[string]error{"api": nil, at.Client: nil, "other": errNoToken} {
		if _, err := d.access.Identify(t.Context(), bearing(t, d.Token(map[string]any{"aud": audience}))); !errors.Is(err, want) {
			t.Errorf("%s: %v", audience, err)
		}
	}
	d.access.said.oidc.login = nil
	if _, err := d.access.Identify(t.Context(), bearing(t, d.Token(nil))); !errors.Is(err, errNoToken) {
		t.Errorf("a token for the client: %v", err)
	}
	if _, _, err := d.access.Begin(t.Context(), back); !errors.Is(err, ErrNoLogIn) {
		t.Error(err)
	}
	if _, _, err := d.access.Finish(t.Context(), back, new(Attempt), "", ""); !errors.Is(err, ErrNoLogIn) {
		t.Error(err)
	}
}

// What is not of this very log-in is not taken.
func TestLogInsThatComeToNothing(t *testing.T) {
	d := newDesk(t)
	refused := func(what, want string, begun *Attempt, state, code string) {
		t.Helper()
		if token, err := d.finish(begun, state, code); !errors.Is(err, ErrLogIn) || errors.Is(err, ErrAway) || token != "" || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, %v", what, token, err)
		}
	}
	begun, state, code := d.goes()
	other, _, _ := d.goes()
	refused("another state", "not begun in this browser", begun, state+"x", code)
	refused("no state", "not begun in this browser", begun, "", code)
	refused("nothing begun", "not begun in this browser", new(Attempt), "", code)
	refused("another browser", "not begun in this browser", other, state, code)
	refused("another code", `"invalid_grant" "there is no such code"`, begun, state, "x")
	if _, err := d.finish(begun, state, code); err != nil {
		t.Errorf("the right one: %v", err)
	}
	refused("the code again", "invalid_grant", begun, state, code)
	begun, state, code = d.goes()
	begun.Verifier = other.Verifier
	refused("who has not begun it", "invalid_grant", begun, state, code)
	for what, claim := range map[string]struct {
		name  string
		value any
		want  string
	}{
		"the token of another log-in": {"nonce", other.Nonce, "of another log-in"}, "one of none": {"nonce", nil, "of another log-in"},
		"for another client": {"aud", "other", "no token of the issuer"}, "of another issuer": {"iss", "https://id.example", "no token of the issuer"},
		"one that has ended": {"exp", time.Now().Add(-time.Second).Unix(), "expired"}, "one to come": {"nbf", time.Now().Add(time.Hour).Unix(), "no token of the issuer"},
	} {
		d.Claim(claim.name, claim.value)
		begun, state, code = d.goes()
		refused(what, claim.want, begun, state, code)
		d.Unclaim()
	}
	// A clock that is a little behind takes what was signed just now.
	d.Claim("nbf", time.Now().Add(time.Minute).Unix())
	if _, err := d.finish(d.goes()); err != nil {
		t.Errorf("a minute ahead: %v", err)
	}
}

// An issuer that is away, or answers nothing, lets nobody in, and keeps nobody for long; and no more wait for it than may.
func TestLoggingInAtAnIssuerThatIsAway(t *testing.T) {
	d := newDesk(t)
	d.Away(http.StatusBadGateway)
	if _, _, err := d.access.Begin(t.Context(), back); !errors.Is(err, ErrAway) {
		t.Errorf("%v", err)
	}
	d.Away(0)
	d.access.said.oidc.keys.rewind(fetchEvery)
	begun, state, code := d.goes()
	d.Away(http.StatusInternalServerError)
	if _, err := d.finish(begun, state, code); !errors.Is(err, ErrAway) {
		t.Errorf("away: %v", err)
	}
	d.Away(0)
	d.Hang(true)
	began := time.Now()
	if _, err := d.finish(begun, state, code); !errors.Is(err, ErrAway) || time.Since(began) > time.Minute {
		t.Errorf("silent: %v", err)
	}
	d.Hang(false)
	for range maxLogIns {
		d.access.logIns <- struct{}{}
	}
	if _, err := d.finish(begun, state, code); !errors.Is(err, ErrAway) {
		t.Errorf("too many: %v", err)
	}
	<-d.access.logIns
	if _, err := d.finish(begun, state, code); err != nil {
		t.Errorf("there: %v", err)
	}
	if n := len(d.access.logIns); n != maxLogIns-1 {
		t.Errorf("%d places are taken", n)
	}
}

// What is wrong with how people log in is said with its place.
func TestAFileWithALogIn(t *testing.T) {
	const file = "oidc:\n  issuer: https://id.example\n  audience: a\n  roles: [{group: g, roles: [viewer]}]\n  login: "
	for written, want := range map[string]string{
		"{scopes: [email]}":             "the scopes of login do not have openid",
		"{secretFile: /nowhere}":        "5:23: secretFile of login: open /nowhere",
		"{secretFile: /dev/null}":       "/dev/null is empty",
		"{secret: x}":                   `unknown field "secret"`,
		"{scopes: []}":                  "nothing is said here",
		"{scopes: [openid, groups]}":    "",
		"{client: c, scopes: [openid]}": "",
	} {
		f, err := read("a", []byte(file+written+"\n"))
		if want == "" && (err != nil || f.oidc.login == nil || f.oidc.login.client == "") || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v", written, err)
		}
	}
}
