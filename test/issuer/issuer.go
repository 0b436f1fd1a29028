// Package issuer is an OpenID Connect issuer for tests, at which a browser logs in by the code flow with PKCE.
package issuer

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// Issuer lets everybody in, as the same user.
type Issuer struct {
	*httptest.Server
	t testing.TB

	mu     sync.Mutex
	key    jose.JSONWebKey
	codes  map[string]url.Values // what was asked for each that was not exchanged
	claims map[string]any        // besides those that it makes; nil takes one away
	away   int                   // the status of all answers, if not 0
	hangs  bool
	denies string // why it lets nobody in
	asked  []url.Values
}

// Client and Secret are those of the one client that it knows.
const (
	Client = "waybill"
	Secret = "s3cr3t"
)

// New starts one, which ends with the test.
func New(t testing.TB) *Issuer {
	t.Helper()
	i := &Issuer{t: t, codes: make(map[string]url.Values), claims: make(map[string]any)}
	i.Rotate(jose.RS256)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", i.configuration)
	mux.HandleFunc("GET /keys", i.keys)
	mux.HandleFunc("GET /authorize", i.authorize)
	mux.HandleFunc("POST /token", i.token)
	i.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i.mu.Lock()
		away, hangs := i.away, i.hangs
		i.mu.Unlock()
		switch {
		case hangs:
			_ = r.ParseForm() // a server sees that who asked has gone once the body was read
			<-r.Context().Done()
		case away != 0:
			http.Error(w, "down for maintenance", away)
		default:
			mux.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(func() {
		i.CloseClientConnections()
		i.Close()
	})
	return i
}

// Rotate has it sign with another key, and withdraw the one before.
func (i *Issuer) Rotate(by jose.SignatureAlgorithm) {
	i.t.Helper()
	var key any
	var err error
	if by == jose.ES256 {
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	} else {
		key, err = rsa.GenerateKey(rand.Reader, 2048)
	}
	if err != nil {
		i.t.Fatal(err)
	}
	i.set(func() { i.key = jose.JSONWebKey{Key: key, KeyID: rand.Text(), Algorithm: string(by), Use: "sig"} })
}

// Claim has tokens say something; nil has them not say it.
func (i *Issuer) Claim(name string, value any) { i.set(func() { i.claims[name] = value }) }

// Unclaim has tokens say what they did at first.
func (i *Issuer) Unclaim() { i.set(func() { clear(i.claims) }) }

// Away has all answers be of a status, until it is 0.
func (i *Issuer) Away(status int) { i.set(func() { i.away = status }) }

// Hang has it answer nothing.
func (i *Issuer) Hang(yes bool) { i.set(func() { i.hangs = yes }) }

// Deny has it let nobody in.
func (i *Issuer) Deny(why string) { i.set(func() { i.denies = why }) }

// Asked are the log-ins that it was asked for.
func (i *Issuer) Asked() []url.Values {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.asked
}

func (i *Issuer) set(change func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	change()
}

func (i *Issuer) answer(w http.ResponseWriter, status int, what any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(what); err != nil {
		i.t.Log(err) // who asked has gone
	}
}

func (i *Issuer) configuration(w http.ResponseWriter, _ *http.Request) {
	i.answer(w, http.StatusOK, map[string]any{
		"issuer": i.URL, "jwks_uri": i.URL + "/keys", "authorization_endpoint": i.URL + "/authorize", "token_endpoint": i.URL + "/token",
	})
}

func (i *Issuer) keys(w http.ResponseWriter, _ *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.answer(w, http.StatusOK, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{i.key.Public()}})
}

func (i *Issuer) authorize(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	code := rand.Text()
	i.mu.Lock()
	i.asked = append(i.asked, query)
	i.codes[code] = query
	denies := i.denies
	i.mu.Unlock()
	back, err := url.Parse(query.Get("redirect_uri"))
	if err != nil || query.Get("client_id") != Client || query.Get("response_type") != "code" || query.Get("code_challenge_method") != "S256" {
		http.Error(w, "no such client", http.StatusBadRequest)
		return
	}
	said := url.Values{"state": {query.Get("state")}, "code": {code}}
	if denies != "" {
		said = url.Values{"state": {query.Get("state")}, "error": {"access_denied"}, "error_description": {denies}}
	}
	back.RawQuery = said.Encode()
	http.Redirect(w, r, back.String(), http.StatusFound) //nolint:gosec // a test says where to
}

func (i *Issuer) token(w http.ResponseWriter, r *http.Request) {
	client, secret, _ := r.BasicAuth()
	i.mu.Lock()
	asked := i.codes[r.PostFormValue("code")]
	delete(i.codes, r.PostFormValue("code"))
	i.mu.Unlock()
	sum := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
	switch {
	case client != Client || secret != Secret:
		i.answer(w, http.StatusUnauthorized, map[string]string{"error": "invalid_client"})
	case asked == nil || r.PostFormValue("redirect_uri") != asked.Get("redirect_uri") || asked.Get("code_challenge") != base64.RawURLEncoding.EncodeToString(sum[:]):
		i.answer(w, http.StatusBadRequest, map[string]string{"error": "invalid_grant", "error_description": "there is no such code"})
	default:
		i.answer(w, http.StatusOK, map[string]any{"access_token": "opaque", "token_type": "Bearer", "id_token": i.Token(map[string]any{"nonce": asked.Get("nonce")})})
	}
}

// Token is one that it signs, which says something besides what it says of everybody.
func (i *Issuer) Token(more map[string]any) string {
	i.mu.Lock()
	defer i.mu.Unlock()
	claims := map[string]any{
		"iss": i.URL, "aud": Client, "sub": "u-1", "email": "ana@shop.example", "groups": []string{"staff", "ops"},
		"iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix(),
	}
	maps.Copy(claims, more)
	maps.Copy(claims, i.claims)
	maps.DeleteFunc(claims, func(_ string, v any) bool { return v == nil })
	text, err := json.Marshal(claims)
	if err != nil {
		i.t.Error(err)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.SignatureAlgorithm(i.key.Algorithm), Key: i.key}, nil)
	if err != nil {
		i.t.Error(err)
		return ""
	}
	signed, err := signer.Sign(text)
	if err != nil {
		i.t.Error(err)
		return ""
	}
	token, err := signed.CompactSerialize()
	if err != nil {
		i.t.Error(err)
	}
	return token
}
