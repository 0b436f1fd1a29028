package identity

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// office is an issuer of tokens.
type office struct {
	*testing.T
	*httptest.Server
	mu    sync.Mutex
	keys  []jose.JSONWebKey
	away  bool
	asked atomic.Int32 // for keys
}

func newOffice(t *testing.T, keys ...jose.JSONWebKey) *office {
	t.Helper()
	o := &office{T: t, keys: keys}
	mux := http.NewServeMux()
	answer := func(what func() any) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			o.mu.Lock()
			defer o.mu.Unlock()
			if o.away {
				http.Error(w, "down for maintenance", http.StatusBadGateway)
				return
			}
			_ = json.NewEncoder(w).Encode(what())
		}
	}
	mux.HandleFunc("/.well-known/openid-configuration", answer(func() any {
		return map[string]any{"issuer": o.URL, "jwks_uri": o.URL + "/keys", "authorization_endpoint": o.URL, "token_endpoint": o.URL}
	}))
	mux.HandleFunc("/keys", answer(func() any {
		o.asked.Add(1)
		public := jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: []byte("a symmetric one, which counts for nothing"), KeyID: "s"}}}
		for _, k := range o.keys {
			public.Keys = append(public.Keys, k.Public())
		}
		return public
	}))
	o.Server = httptest.NewServer(mux)
	t.Cleanup(o.Close)
	return o
}

func (o *office) set(change func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	change()
}

// issuer is what a file would have of the office.
func (o *office) issuer() *issuer {
	o.Helper()
	f, err := read("a", []byte("oidc:\n  issuer: "+o.URL+"\n  audience: waybill\n  subject: email\n  roles:\n    - {group: ops, roles: [operator], workflows: [w]}\n"))
	if err != nil {
		o.Fatal(err)
	}
	return f.oidc
}

// token has good claims but for some changes; nil leaves one out.
func (o *office) token(key jose.JSONWebKey, alg jose.SignatureAlgorithm, changes map[string]any) string {
	o.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: key}, nil)
	if err != nil {
		o.Fatal(err)
	}
	signed, err := signer.Sign(o.claims(changes))
	if err != nil {
		o.Fatal(err)
	}
	text, err := signed.CompactSerialize()
	if err != nil {
		o.Fatal(err)
	}
	return text
}

func (o *office) claims(changes map[string]any) []byte {
	o.Helper()
	claims := map[string]any{
		"iss": o.URL, "aud": "waybill", "sub": "u-1", "email": "ana@shop.example", "groups": []string{"staff", "ops"},
		"iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix(),
	}
	maps.Copy(claims, changes)
	maps.DeleteFunc(claims, func(_ string, v any) bool { return v == nil })
	text, err := json.Marshal(claims)
	if err != nil {
		o.Fatal(err)
	}
	return text
}

func rsaKey(t *testing.T, id string) jose.JSONWebKey {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return jose.JSONWebKey{Key: key, KeyID: id, Algorithm: "RS256", Use: "sig"}
}

func ecKey(t *testing.T, id string) jose.JSONWebKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return jose.JSONWebKey{Key: key, KeyID: id, Algorithm: "ES256", Use: "sig"}
}

func TestTokens(t *testing.T) {
	first, second := rsaKey(t, "r"), ecKey(t, "e")
	o := newOffice(t, first, second)
	i := o.issuer()
	for what, token := range map[string]string{
		"RSA": o.token(first, jose.RS256, nil), "PSS": o.token(first, jose.PS256, nil), "ECDSA": o.token(second, jose.ES256, nil),
		"several audiences": o.token(second, jose.ES256, map[string]any{"aud": []string{"other", "waybill"}}),
		"one group":         o.token(second, jose.ES256, map[string]any{"groups": "ops"}),
	} {
		c, err := i.caller(t.Context(), token)
		if err != nil || c.Subject != "ana@shop.example" || c.Method != "oidc" || !c.May(Operator, "w") || c.May(Operator, "x") || c.May(Deployer, "w") {
			t.Errorf("%s: %+v, %v", what, c, err)
		}
	}
	for what, token := range map[string]string{
		"of another group": o.token(second, jose.ES256, map[string]any{"groups": []any{"staff", 7}}),
		"of no group":      o.token(second, jose.ES256, map[string]any{"groups": nil}),
	} {
		if c, err := i.caller(t.Context(), token); err != nil || c.Somewhere(Viewer) {
			t.Errorf("%s: %+v, %v", what, c, err)
		}
	}

	// Whoever has the public key, which all have, must not be able to sign with it.
	public, err := x509.MarshalPKIXPublicKey(first.Public().Key)
	if err != nil {
		t.Fatal(err)
	}
	part := base64.RawURLEncoding.EncodeToString
	none := part([]byte(`{"alg":"none"}`)) + "." + part(o.claims(nil)) + "."
	good := strings.Split(o.token(first, jose.RS256, nil), ".")
	for what, c := range map[string]struct {
		token string
		want  error
	}{
		"expired":                    {o.token(second, jose.ES256, map[string]any{"exp": time.Now().Add(-time.Second).Unix()}), errExpired},
		"without an expiry":          {o.token(second, jose.ES256, map[string]any{"exp": nil}), errExpired},
		"not yet":                    {o.token(second, jose.ES256, map[string]any{"nbf": time.Now().Add(time.Hour).Unix()}), errNoToken},
		"forged":                     {o.token(ecKey(t, "e"), jose.ES256, nil), errNoToken},
		"forged, of RSA":             {o.token(rsaKey(t, "r"), jose.RS256, nil), errNoToken},
		"with other claims":          {good[0] + "." + part(o.claims(map[string]any{"email": "root@shop.example"})) + "." + good[2], errNoToken},
		"of another issuer":          {o.token(second, jose.ES256, map[string]any{"iss": "https://id.example"}), errNoToken},
		"for another audience":       {o.token(second, jose.ES256, map[string]any{"aud": "shop"}), errNoToken},
		"for no audience":            {o.token(second, jose.ES256, map[string]any{"aud": nil}), errNoToken},
		"alg none":                   {none, errNoToken},
		"alg none, with a signature": {none + good[2], errNoToken},
		"HMAC with the public key":   {o.token(jose.JSONWebKey{Key: public}, jose.HS256, nil), errNoToken},
		"HMAC with a published key":  {o.token(jose.JSONWebKey{Key: []byte("a symmetric one, which counts for nothing"), KeyID: "s"}, jose.HS256, nil), errNoToken},
		"no token":                   {"x", errNoToken},
		"nothing":                    {"", errNoToken},
		"dots":                       {"..", errNoToken},
	} {
		if got, err := i.caller(t.Context(), c.token); !errors.Is(err, c.want) {
			t.Errorf("%s: %+v, %v", what, got, err)
		}
	}
	for what, changes := range map[string]map[string]any{
		"no name": {"email": nil}, "a name that is a number": {"email": 7}, "a long name": {"email": strings.Repeat("x", 257)}, "a name with a line": {"email": "a\nb"},
		"a name that was not verified": {"email_verified": false}, "nor in words": {"email_verified": "false"},
	} {
		if c, err := i.caller(t.Context(), o.token(second, jose.ES256, changes)); err == nil {
			t.Errorf("%s: %+v", what, c)
		}
	}
	if n := o.asked.Load(); n != 1 {
		t.Errorf("the issuer was asked %d times for its keys, by good tokens and bad ones", n)
	}
}

// rewind lets time go by for what was fetched.
func (k *keySet) rewind(d time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.fetched, k.tried = k.fetched.Add(-d), k.tried.Add(-d)
}

// An issuer that is away lets nobody in, and nobody wait for long; once it is there its
// tokens are taken. While it is away again what is known of it counts, for a day.
func TestAnIssuerThatIsAway(t *testing.T) {
	key := ecKey(t, "e")
	o := newOffice(t, key)
	o.set(func() { o.away = true })
	i := o.issuer()
	token := o.token(key, jose.ES256, nil)
	for range 3 {
		if c, err := i.caller(t.Context(), token); !errors.Is(err, ErrAway) {
			t.Fatalf("away: %+v, %v", c, err)
		}
	}
	o.set(func() { o.away = false })
	if c, err := i.caller(t.Context(), token); !errors.Is(err, ErrAway) || o.asked.Load() != 0 {
		t.Errorf("asked again at once: %+v, %v", c, err)
	}
	i.keys.rewind(fetchEvery)
	if _, err := i.caller(t.Context(), token); err != nil {
		t.Errorf("there: %v", err)
	}
	o.set(func() { o.away = true })
	for age, want := range map[time.Duration]error{keysAreOld: nil, keysAreOver: ErrAway} {
		i.keys.rewind(age)
		if _, err := i.caller(t.Context(), token); !errors.Is(err, want) {
			t.Errorf("after %s away: %v", age, err)
		}
		i.keys.rewind(-age)
	}
}

// A key that is new is found once somebody comes with it, one that is withdrawn counts
// no more once the keys are old; and forgers do not have the issuer asked for each token.
func TestAnIssuerThatChangesItsKeys(t *testing.T) {
	before, after := ecKey(t, "b"), ecKey(t, "a")
	o := newOffice(t, before)
	i := o.issuer()
	old, fresh := o.token(before, jose.ES256, nil), o.token(after, jose.ES256, nil)
	for range 20 {
		if _, err := i.caller(t.Context(), fresh); !errors.Is(err, errNoToken) {
			t.Fatalf("before it is published: %v", err)
		}
	}
	if n := o.asked.Load(); n != 1 {
		t.Errorf("the issuer was asked %d times for 20 tokens", n)
	}
	o.set(func() { o.keys = []jose.JSONWebKey{after} })
	if _, err := i.caller(t.Context(), old); err != nil {
		t.Errorf("what is known is asked for again: %v", err)
	}
	i.keys.rewind(fetchEvery)
	if _, err := i.caller(t.Context(), fresh); err != nil {
		t.Errorf("the new key: %v", err)
	}
	if _, err := i.caller(t.Context(), old); !errors.Is(err, errNoToken) {
		t.Errorf("the old key: %v", err)
	}
	o.set(func() { o.keys = []jose.JSONWebKey{before} })
	i.keys.rewind(keysAreOld)
	if _, err := i.caller(t.Context(), fresh); !errors.Is(err, errNoToken) {
		t.Errorf("a key that was withdrawn: %v", err)
	}
	o.set(func() { o.keys = []jose.JSONWebKey{} })
	i.keys.rewind(keysAreOld)
	if _, err := i.caller(t.Context(), old); !errors.Is(err, errNoToken) {
		t.Errorf("all keys were withdrawn: %v", err)
	}
}
