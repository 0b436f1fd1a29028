package identity

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
	"golang.org/x/oauth2"
)

// issuer is who gives out tokens, and what those in its groups may.
type issuer struct {
	keys           *keySet
	verifier       *oidc.IDTokenVerifier
	subject, group string // names of claims
	groups         map[string][]Grant
	audience       string
	login          *login // nil where nobody logs in at the issuer by the console
}

// signatures are those that only who has the private key can make. A symmetric one
// could be made with the public key, by whoever takes that for a secret.
var signatures = []string{
	oidc.RS256, oidc.RS384, oidc.RS512, oidc.PS256, oidc.PS384, oidc.PS512, oidc.ES256, oidc.ES384, oidc.ES512, oidc.EdDSA,
}

func newIssuer(url, audience, subject, group string) *issuer {
	i := &issuer{keys: newKeySet(url), subject: subject, group: group, groups: make(map[string][]Grant), audience: audience}
	// What it asks for keys is the issuer itself: keys are carried over when the file changes.
	i.verifier = oidc.NewVerifier(url, i, &oidc.Config{SkipClientIDCheck: true, SupportedSigningAlgs: signatures})
	return i
}

var errNoToken = errors.New("it is no token of the issuer that the access file names")

// caller is whom a token names.
func (i *issuer) caller(ctx context.Context, token string) (*Caller, error) {
	verified, err := i.verified(ctx, token)
	if err != nil {
		return nil, err
	}
	claims := make(map[string]any)
	if err := verified.Claims(&claims); err != nil {
		return nil, errNoToken
	}
	subject, _ := claims[i.subject].(string)
	if subject == "" || !named(subject) {
		return nil, fmt.Errorf("its claim %s is no name of at most %d bytes", i.subject, maxName)
	}
	// Who may enter any address at the issuer could have somebody else's.
	if sure, told := claims["email_verified"]; told && sure != true && sure != "true" && i.subject == "email" { // some say it as a text
		return nil, errors.New("its issuer has not verified the address in its claim email")
	}
	c := &Caller{Subject: subject, Method: "oidc", Issuer: i.keys.url}
	switch groups := claims[i.group].(type) {
	case string:
		c.grants = i.groups[groups]
	case []any:
		for _, g := range groups {
			name, _ := g.(string)
			c.grants = append(c.grants, i.groups[name]...)
		}
	}
	return c, nil
}

// verified is a token of the issuer that is for this server, or for the client as which people log in here.
func (i *issuer) verified(ctx context.Context, token string) (*oidc.IDToken, error) {
	if strings.Count(token, ".") != 2 {
		return nil, errNoToken
	}
	if _, err := i.keys.get(ctx); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAway, err)
	}
	verified, err := i.verifier.Verify(ctx, token)
	if expired := (*oidc.TokenExpiredError)(nil); errors.As(err, &expired) {
		return nil, errExpired
	}
	if err != nil || !slices.Contains(verified.Audience, i.audience) && (i.login == nil || !slices.Contains(verified.Audience, i.login.client)) {
		return nil, errNoToken
	}
	return verified, nil
}

// VerifySignature implements [oidc.KeySet]. What no key fits that is known may be
// signed by a new one.
func (i *issuer) VerifySignature(ctx context.Context, token string) ([]byte, error) {
	known, err := i.keys.get(ctx)
	if err != nil {
		return nil, err
	}
	payload, err := known.VerifySignature(ctx, token)
	if err == nil {
		return payload, nil
	}
	fresh := i.keys.again(ctx)
	if fresh == known {
		return nil, err
	}
	return fresh.VerifySignature(ctx, token)
}

// keySet are the public keys of an issuer. It is asked when somebody comes with a token:
// for the first time, once the keys are old, and where none fits, but once in fetchEvery
// at most, however many come. So an issuer that is away keeps nothing from starting, and
// callers with made-up tokens do not become its load.
type keySet struct {
	url    string
	client *http.Client
	turn   chan struct{} // has one while nobody asks the issuer

	mu      sync.Mutex
	keys    *oidc.StaticKeySet // nil before the first
	at      oauth2.Endpoint    // where people log in
	fetched time.Time          // when they were, and when that was tried last
	tried   time.Time
	why     error // why it failed
}

const (
	fetchTimeout = 5 * time.Second
	fetchEvery   = 10 * time.Second
	keysAreOld   = 10 * time.Minute // they are asked for again, and go on being used
	keysAreOver  = 24 * time.Hour   // what the issuer withdrew while it was away is not trusted for ever
)

func newKeySet(url string) *keySet {
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, TLSHandshakeTimeout: fetchTimeout}
	k := &keySet{url: url, client: &http.Client{Transport: transport}, turn: make(chan struct{}, 1)}
	k.turn <- struct{}{}
	return k
}

// get returns the keys. Without any it waits until somebody has asked for them.
func (k *keySet) get(ctx context.Context) (*oidc.StaticKeySet, error) {
	keys, age, _, _ := k.known()
	if keys != nil && age < keysAreOld {
		return keys, nil
	}
	if keys != nil && age < keysAreOver {
		select {
		case <-k.turn:
			k.fetch(ctx)
		default: // somebody asks already
		}
	} else {
		wait := time.NewTimer(fetchTimeout)
		defer wait.Stop()
		select {
		case <-k.turn:
			k.fetch(ctx)
		case <-wait.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	keys, age, _, why := k.known()
	if keys == nil || age >= keysAreOver {
		if why == nil {
			why = errors.New("it has not answered yet")
		}
		return nil, why
	}
	return keys, nil
}

// again asks for the keys though they are not old, and returns what is known then.
func (k *keySet) again(ctx context.Context) *oidc.StaticKeySet {
	select {
	case <-k.turn:
		k.fetch(ctx)
	case <-ctx.Done():
	}
	keys, _, _, _ := k.known()
	return keys
}

func (k *keySet) known() (keys *oidc.StaticKeySet, age, since time.Duration, why error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.keys, time.Since(k.fetched), time.Since(k.tried), k.why
}

// fetch asks the issuer, unless that was just done, and gives the turn back.
func (k *keySet) fetch(ctx context.Context) {
	defer func() { k.turn <- struct{}{} }()
	if _, _, since, _ := k.known(); since < fetchEvery {
		return
	}
	// Others wait for what comes of it, whatever becomes of this caller.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fetchTimeout)
	defer cancel()
	keys, at, err := k.ask(oidc.ClientContext(ctx, k.client))
	k.mu.Lock()
	defer k.mu.Unlock()
	k.tried = time.Now()
	if k.why = err; err == nil {
		k.keys, k.at, k.fetched = keys, at, k.tried
	}
}

func (k *keySet) ask(ctx context.Context) (_ *oidc.StaticKeySet, at oauth2.Endpoint, _ error) {
	provider, err := oidc.NewProvider(ctx, k.url)
	if err != nil {
		return nil, at, fmt.Errorf("ask %s for its configuration: %w", k.url, err)
	}
	var has struct {
		Keys    string   `json:"jwks_uri"`
		Methods []string `json:"token_endpoint_auth_methods_supported"`
	}
	if err := provider.Claims(&has); err != nil {
		return nil, at, fmt.Errorf("read the configuration of %s: %w", k.url, err)
	}
	at = provider.Endpoint()
	at.AuthStyle = oauth2.AuthStyleInHeader // nothing is tried out: a code counts once
	if has.Methods != nil && !slices.Contains(has.Methods, "client_secret_basic") {
		at.AuthStyle = oauth2.AuthStyleInParams
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, has.Keys, http.NoBody)
	if err != nil {
		return nil, at, fmt.Errorf("ask for the keys of %s: %w", k.url, err)
	}
	response, err := k.client.Do(request)
	if err != nil {
		return nil, at, fmt.Errorf("ask for the keys of %s: %w", k.url, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxFile))
	if err != nil {
		return nil, at, fmt.Errorf("ask for the keys of %s: %w", k.url, err)
	}
	if response.StatusCode != http.StatusOK {
		return nil, at, fmt.Errorf("ask for the keys of %s: status %s", k.url, response.Status)
	}
	var set jose.JSONWebKeySet
	if err := json.Unmarshal(body, &set); err != nil {
		return nil, at, fmt.Errorf("read the keys of %s: %w", k.url, err)
	}
	keys := new(oidc.StaticKeySet)
	for _, one := range set.Keys {
		switch public := one.Key.(type) {
		case *rsa.PublicKey, *ecdsa.PublicKey, ed25519.PublicKey:
			if one.Use != "enc" {
				keys.PublicKeys = append(keys.PublicKeys, crypto.PublicKey(public))
			}
		}
	}
	if set.Keys == nil {
		return nil, at, fmt.Errorf("%s says nothing of its keys", k.url)
	}
	return keys, at, nil // none, if it has withdrawn all
}
