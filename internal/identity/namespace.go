package identity

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/waybill-dev/waybill/orchestrator/proof"
)

// Namespace is a file with the keys of a namespace, which all of its instances have: see
// package proof. [Namespace.Watch] reads it again when it changes.
type Namespace struct {
	file  reread[*proof.Keys]
	keys  atomic.Pointer[proof.Keys]
	wrong atomic.Bool
}

// OpenNamespace reads a file with the keys of a namespace.
func OpenNamespace(path string, log *slog.Logger) (*Namespace, error) {
	n := new(Namespace)
	err := n.file.open("file of the namespace's keys", path, log, func(name string, source []byte, _ *proof.Keys) (*proof.Keys, error) {
		return readNamespace(name, source)
	})
	n.keys.Store(n.file.said)
	return n, err
}

// Keys are those of now. It waits for nothing.
func (n *Namespace) Keys() *proof.Keys { return n.keys.Load() }

// Wrong says that the file is wrong as it is now. It waits for nothing, either.
func (n *Namespace) Wrong() bool { return n.wrong.Load() }

func (n *Namespace) look() {
	n.file.mu.Lock()
	defer n.file.mu.Unlock()
	n.keys.Store(n.file.look())
	n.wrong.Store(n.file.wrong != nil)
}

// Watch looks at the file until ctx ends.
func (n *Namespace) Watch(ctx context.Context) {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		select {
		case <-look.C:
			n.look()
		case <-ctx.Done():
			return
		}
	}
}

// secretSize is that of a key's secret, in bytes, and maxKeys how many there are at a time:
// that which signs, and that of before, or the next.
const (
	secretSize = 32
	maxKeys    = 2
)

// NewNamespaceKey makes a key, as the file has it.
func NewNamespaceKey(id string) (entry string, _ error) {
	if !proof.ValidID(id) {
		return "", fmt.Errorf("the id %q: use 1 to 32 of a-z A-Z 0-9 -", id)
	}
	secret := make([]byte, secretSize)
	_, _ = rand.Read(secret) // it never fails
	return fmt.Sprintf("  - id: %q\n    secret: %s\n", id, base64.RawURLEncoding.EncodeToString(secret)), nil
}

// writtenNamespace is the file as YAML has it.
type writtenNamespace struct {
	Keys []struct {
		ID     text `yaml:"id"`
		Secret text `yaml:"secret"`
	} `yaml:"keys"`
	Tokens struct {
		Others text `yaml:"others"`
		Agents []struct {
			Agent text `yaml:"agent"`
			Is    text `yaml:"is"`
		} `yaml:"agents"`
	} `yaml:"tokens"`
}

// readNamespace reads a file. The error has all that is wrong with it, by line and column,
// and nothing of a secret.
func readNamespace(name string, source []byte) (*proof.Keys, error) {
	r := new(reader)
	r.File = name
	var w writtenNamespace
	if !r.yaml(source, &w) {
		problems := r.Sorted()
		for i := range problems { // the library's words may have a piece of the file
			problems[i].Message = "the file cannot be read; docs/security.md has its members and what they take"
		}
		return nil, problems
	}
	var keys []proof.Key
	seen := make(map[string]bool)
	for _, e := range w.Keys {
		secret, err := base64.RawURLEncoding.Strict().DecodeString(e.Secret.value)
		switch {
		case !proof.ValidID(e.ID.value):
			r.add(cmp.Or(e.ID.at, e.Secret.at), "an id has 1 to 32 of a-z A-Z 0-9 -, and this one is another text")
		case seen[e.ID.value]:
			r.add(e.ID.at, "the id %s is given twice; give each key one of its own, which none had before", quote(e.ID.value))
		case err != nil || len(secret) != secretSize:
			r.add(cmp.Or(e.Secret.at, e.ID.at), "secret is %d random bytes in base64; `waybill key namespace` makes them", secretSize)
		}
		seen[e.ID.value] = true
		keys = append(keys, proof.Key{ID: e.ID.value, Secret: secret})
	}
	switch n := len(keys); {
	case n == 0:
		r.add(nil, "there are no keys; `waybill key namespace` prints one for the file")
	case n > maxKeys:
		r.add(w.Keys[maxKeys].ID.at, "there are %d keys; there may be one, which signs, and another that is believed", n)
	}
	others := proof.Watch
	if t := w.Tokens.Others; t.at != nil {
		others = r.setting(&t)
	}
	settings := make(map[string]proof.Setting)
	for _, e := range w.Tokens.Agents {
		if _, twice := settings[e.Agent.value]; twice || e.Agent.value == "" {
			r.add(cmp.Or(e.Agent.at, e.Is.at), "name an agent, each once")
		}
		settings[e.Agent.value] = r.setting(&e.Is)
	}
	return proof.New(keys, others, settings), r.wrong()
}

// setting reads what an agent's replies need.
func (r *reader) setting(t *text) proof.Setting {
	switch s := proof.Setting(t.value); s {
	case proof.Off, proof.Watch, proof.Require:
		return s
	}
	r.add(t.at, "%s: use off, watch or require", quote(t.value))
	return proof.Require
}
