package identity

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
)

// login is as which client of the issuer people log in, in a browser.
type login struct {
	client     string
	secretFile string // empty for a client that has none
	scopes     []string
}

var defaultScopes = []string{oidc.ScopeOpenID, "profile", "email"}

// secret is the client's, empty if it has none. The file is read each time.
func (l *login) secret() (string, error) {
	if l.secretFile == "" {
		return "", nil
	}
	text, err := os.ReadFile(l.secretFile)
	if err != nil {
		return "", err
	}
	secret := strings.TrimSpace(string(text))
	if secret == "" {
		return "", fmt.Errorf("%s is empty", l.secretFile)
	}
	return secret, nil
}

// Attempt is a log-in that has begun. It belongs to the browser that began it.
type Attempt struct {
	State    string `json:"state"`
	Nonce    string `json:"nonce"`
	Verifier string `json:"verifier"`
}

// maxLogIns is how many codes are exchanged at a time: whoever comes may have one asked for.
const maxLogIns = 8

var (
	// ErrNoLogIn says that nobody logs in at an issuer.
	ErrNoLogIn = errors.New("the access file does not say that people log in at an issuer: its oidc has no login")
	// ErrLogIn says that a log-in came to nothing. Another may.
	ErrLogIn = errors.New("the log-in came to nothing")
)

// LogsIn says whether people log in at an issuer, and at which.
func (a *Access) LogsIn() (issuer string, yes bool) {
	if f := a.now(); f.oidc != nil && f.oidc.login != nil {
		return f.oidc.keys.url, true
	}
	return "", false
}

// Begin begins a log-in, by the code flow with PKCE: the browser goes on at the address that it returns, and comes back to
// the address back, with a code for [Access.Finish]. It fails with [ErrNoLogIn], and with [ErrAway] where the issuer does not answer.
func (a *Access) Begin(ctx context.Context, back string) (to string, _ *Attempt, _ error) {
	f := a.now()
	if f.oidc == nil || f.oidc.login == nil {
		return "", nil, ErrNoLogIn
	}
	config, err := f.oidc.client(ctx, back)
	if err != nil {
		return "", nil, err
	}
	begun := &Attempt{State: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier()}
	return config.AuthCodeURL(begun.State, oidc.Nonce(begun.Nonce), oauth2.S256ChallengeOption(begun.Verifier)), begun, nil
}

// Finish has the issuer give the token for a code, and returns it, and when it ends. What state the browser came back with must be that of
// the attempt, which is then used up: forget it. It fails with [ErrLogIn] and why, and as [Access.Begin] does.
func (a *Access) Finish(ctx context.Context, back string, begun *Attempt, state, code string) (token string, until time.Time, _ error) {
	f := a.now()
	if f.oidc == nil || f.oidc.login == nil {
		return "", until, ErrNoLogIn
	}
	if !begun.Is(state) {
		return "", until, fmt.Errorf("%w: it was not begun in this browser, or another was since", ErrLogIn)
	}
	select {
	case a.logIns <- struct{}{}:
		defer func() { <-a.logIns }()
	default:
		return "", until, fmt.Errorf("%w: too many log in at this moment", ErrAway)
	}
	config, err := f.oidc.client(ctx, back)
	if err != nil {
		return "", until, err
	}
	ctx, cancel := context.WithTimeout(oidc.ClientContext(ctx, f.oidc.keys.client), fetchTimeout)
	defer cancel()
	given, err := config.Exchange(ctx, code, oauth2.VerifierOption(begun.Verifier))
	if refused, ok := errors.AsType[*oauth2.RetrieveError](err); ok && refused.Response.StatusCode < http.StatusInternalServerError {
		return "", until, fmt.Errorf("%w: the issuer does not take the code: %q %q", ErrLogIn, refused.ErrorCode, refused.ErrorDescription)
	}
	if err != nil {
		return "", until, fmt.Errorf("%w: it does not give the token for a code", ErrAway) // the error may say what came with the code
	}
	token, _ = given.Extra("id_token").(string)
	verified, err := f.oidc.verified(ctx, token)
	switch {
	case errors.Is(err, ErrAway):
		return "", until, err
	case err != nil:
		return "", until, fmt.Errorf("%w: what the issuer gave is not taken: %w", ErrLogIn, err)
	case !same(begun.Nonce, verified.Nonce):
		return "", until, fmt.Errorf("%w: the issuer gave the token of another log-in", ErrLogIn)
	}
	return token, verified.Expiry, nil
}

// Is says whether what comes back with a state is of this log-in.
func (a *Attempt) Is(state string) bool { return same(a.State, state) }

// same compares two texts in a time that says nothing of them. What is empty is the same as nothing.
func same(a, b string) bool { return a != "" && subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// client is as which a log-in asks the issuer, who says where.
func (i *issuer) client(ctx context.Context, back string) (*oauth2.Config, error) {
	secret, err := i.login.secret()
	if err != nil {
		return nil, fmt.Errorf("read the secret of the issuer's client: %w", err)
	}
	if _, err := i.keys.get(ctx); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAway, err)
	}
	config := &oauth2.Config{ClientID: i.login.client, ClientSecret: secret, RedirectURL: back, Scopes: i.login.scopes, Endpoint: i.keys.endpoint()}
	if secret == "" {
		config.Endpoint.AuthStyle = oauth2.AuthStyleInParams
	}
	return config, nil
}

func (k *keySet) endpoint() oauth2.Endpoint {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.at
}
