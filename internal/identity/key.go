package identity

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
)

const (
	keyPrefix  = "wbk_"
	hashPrefix = "sha256:"
)

// keyID is what a key's id looks like. It has no underscore, which ends it in the key.
var keyID = regexp.MustCompile(`^[A-Za-z0-9.-]{1,64}$`)

// NewKey makes a key for an id, and what the file has of it. The hash is a plain
// SHA-256: a slow one keeps passwords from being guessed, and nobody guesses 256
// random bits. A fast one makes a log-in cost nothing.
func NewKey(id string) (key, hash string, _ error) {
	if !keyID.MatchString(id) {
		return "", "", fmt.Errorf("the id %q: use 1 to 64 of a-z A-Z 0-9 . -", id)
	}
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // it never fails
	key = keyPrefix + id + "_" + base64.RawURLEncoding.EncodeToString(secret)
	sum := sha256.Sum256([]byte(key))
	return key, hashPrefix + hex.EncodeToString(sum[:]), nil
}

// key is an entry of the file.
type key struct {
	subject string
	hash    [sha256.Size]byte
	expires time.Time // never, if it is zero
	grant   Grant
}

var (
	errNoSuchKey = errors.New("there is no such key")
	errExpired   = errors.New("it has expired")
)

// byKey is the caller that a key names.
func (f *file) byKey(token string, now time.Time) (*Caller, error) {
	id, _, _ := strings.Cut(strings.TrimPrefix(token, keyPrefix), "_")
	k, found := f.keys[id]
	sum := sha256.Sum256([]byte(token))
	if subtle.ConstantTimeCompare(sum[:], k.hash[:]) != 1 || !found {
		return nil, errNoSuchKey
	}
	if !k.expires.IsZero() && !now.Before(k.expires) {
		return nil, fmt.Errorf("the key %s: %w", id, errExpired)
	}
	return &Caller{Subject: k.subject, Method: "key", grants: []Grant{k.grant}}, nil
}
