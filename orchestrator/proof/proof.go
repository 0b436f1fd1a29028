// Package proof shows who wrote what is on a topic that others may write, too: a reply
// repeats the token of its request, and a command has the signature of the instance that
// knew its author. Both are HMACs under keys that all instances of a namespace have.
package proof

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"hash"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/waybill-dev/waybill/events"
)

// Setting says what an agent's replies need.
type Setting string

// The settings. Requests have a token under all but Off.
const (
	Off     Setting = "off"
	Watch   Setting = events.ProofWatch   // who does not repeat the token is counted
	Require Setting = events.ProofRequire // a reply without the token is discarded
)

// Key is a key of a namespace.
type Key struct {
	ID     string // see [ValidID]
	Secret []byte
}

// ValidID says whether a key may have this id. It has no dot, which ends it in a token.
func ValidID(id string) bool {
	return id != "" && len(id) <= 32 && strings.Trim(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-") == ""
}

// Keys are those of a namespace, and what its agents' replies need. They do not change, and
// are safe for concurrent use. Nil is none: nothing has a token, and nobody's signature is
// believed.
type Keys struct {
	keys     []*macs
	others   Setting
	settings map[string]Setting
}

// New returns keys, of which the first signs and all are believed. Settings are those of
// agents, and others that of all that they do not name.
func New(keys []Key, others Setting, settings map[string]Setting) *Keys {
	k := &Keys{others: others, settings: settings}
	for _, key := range keys {
		k.keys = append(k.keys, &macs{id: key.ID, pool: sync.Pool{New: func() any { return hmac.New(sha256.New, key.Secret) }}})
	}
	return k
}

// Setting is that of an agent.
func (k *Keys) Setting(agent string) Setting {
	if k == nil || len(k.keys) == 0 {
		return Off
	}
	if s, named := k.settings[agent]; named {
		return s
	}
	return k.others
}

// Attempt is what a token is for.
type Attempt struct {
	Namespace, Order, Step string
	Number                 int
	Undo                   bool
	Agent                  string
}

// Token is that of the request for an attempt, empty where there are no keys.
func (k *Keys) Token(a *Attempt) string {
	if k == nil || len(k.keys) == 0 {
		return ""
	}
	return k.keys[0].id + "." + k.keys[0].token(a)
}

// Repeats says whether a reply's token is that of the request for an attempt.
func (k *Keys) Repeats(a *Attempt, token string) bool {
	id, rest, _ := strings.Cut(token, ".")
	key := k.of(id)
	return key != nil && subtle.ConstantTimeCompare([]byte(key.token(a)), []byte(rest)) == 1
}

// Knows says whether a token, right or wrong, is under one of the keys.
func (k *Keys) Knows(token string) bool {
	id, _, _ := strings.Cut(token, ".")
	return k.of(id) != nil
}

// of is the key of an id, nil if there is none.
func (k *Keys) of(id string) *macs {
	if k == nil {
		return nil
	}
	for _, key := range k.keys {
		if key.id == id {
			return key
		}
	}
	return nil
}

// IDs are those of the keys, the first of which signs.
func (k *Keys) IDs() []string {
	ids := []string{}
	if k != nil {
		for _, key := range k.keys {
			ids = append(ids, key.id)
		}
	}
	return ids
}

// Hidden is a reply's value with an empty token; what has no token is as it was. It is not
// sure of a value that cannot be read to its end, where what is left may have one.
func Hidden(reply []byte) (value []byte, sure bool) {
	d := jsontext.NewDecoder(bytes.NewReader(reply), jsontext.AllowDuplicateNames(true))
	var out []byte
	from := int64(0)
	if _, err := d.ReadToken(); err != nil {
		return reply, !bytes.Contains(reply, []byte("token"))
	}
	for d.PeekKind() == '"' {
		name, err := d.ReadToken()
		if err != nil {
			break
		}
		isToken := name.String() == "token"
		value, err := d.ReadValue()
		if err != nil {
			break
		}
		if text, err := jsontext.AppendUnquote(nil, value); isToken && err == nil && len(text) > 0 {
			end := d.InputOffset()
			out = append(out, reply[from:end-int64(len(value))]...)
			out = append(out, `""`...)
			from = end
		}
	}
	rest := reply[d.InputOffset():]
	sure = d.PeekKind() == '}' || !bytes.Contains(rest, []byte("token"))
	if from == 0 {
		return reply, sure
	}
	return append(out, reply[from:]...), sure
}

// Sign is the value of [events.HeaderActor] on a command for an order whose record has this
// value, nil where there are no keys.
func (k *Keys) Sign(namespace, order string, value []byte, actor *events.Actor) []byte {
	if k == nil || len(k.keys) == 0 {
		return nil
	}
	key, text := k.keys[0], actor.Append(nil)
	signed := append([]byte(key.id), '.')
	signed = append(signed, key.actor(namespace, order, value, text)...)
	return append(append(signed, '.'), text...)
}

// Actor is how the author of a command is known, nil if no key of the namespace says so.
func (k *Keys) Actor(namespace, order string, value, signed []byte) *events.Actor {
	id, rest, _ := bytes.Cut(signed, []byte("."))
	mac, text, _ := bytes.Cut(rest, []byte("."))
	key, actor := k.of(string(id)), new(events.Actor)
	if key == nil || subtle.ConstantTimeCompare([]byte(key.actor(namespace, order, value, text)), mac) != 1 || json.Unmarshal(text, actor) != nil {
		return nil
	}
	return actor
}

// Vouch is a code that an address is where an instance of the namespace is asked, "" where there are no keys.
func (k *Keys) Vouch(namespace, instance, address string) string {
	if k == nil || len(k.keys) == 0 {
		return ""
	}
	return k.keys[0].id + "." + k.keys[0].address(namespace, instance, address)
}

// Vouches says whether an address may be believed: where there are keys its code is under one of them.
func (k *Keys) Vouches(namespace, instance, address, code string) bool {
	if k == nil || len(k.keys) == 0 {
		return true
	}
	id, rest, _ := strings.Cut(code, ".")
	key := k.of(id)
	return key != nil && subtle.ConstantTimeCompare([]byte(key.address(namespace, instance, address)), []byte(rest)) == 1
}

// macs makes codes under one key.
type macs struct {
	id   string
	pool sync.Pool // of hash.Hash
}

// The kinds of codes: one of a kind is none of another.
const (
	ofToken   = "waybill reply 1"
	ofActor   = "waybill actor 1"
	ofAddress = "waybill address 1"
)

func (m *macs) token(a *Attempt) string {
	undo := byte(0)
	if a.Undo {
		undo = 1
	}
	b := make([]byte, 0, 128)
	for _, part := range []string{ofToken, a.Namespace, a.Order, a.Step, a.Agent} {
		b = append(binary.AppendUvarint(b, uint64(len(part))), part...)
	}
	return m.sum(append(binary.AppendVarint(b, int64(a.Number)), undo))
}

func (m *macs) actor(namespace, order string, value, actor []byte) string {
	b := make([]byte, 0, 128+len(value)+len(actor))
	for _, part := range [][]byte{[]byte(ofActor), []byte(namespace), []byte(order), value, actor} {
		b = append(binary.AppendUvarint(b, uint64(len(part))), part...)
	}
	return m.sum(b)
}

func (m *macs) address(namespace, instance, address string) string {
	b := make([]byte, 0, 512)
	for _, part := range []string{ofAddress, namespace, instance, address} {
		b = append(binary.AppendUvarint(b, uint64(len(part))), part...)
	}
	return m.sum(b)
}

// sum is half of the code, which is as much as anybody needs who cannot try offline.
func (m *macs) sum(b []byte) string {
	h := m.pool.Get().(hash.Hash) //nolint:forcetypeassert // nothing else is in the pool
	defer m.pool.Put(h)
	h.Reset()
	h.Write(b)
	var room [sha256.Size]byte
	return base64.RawURLEncoding.EncodeToString(h.Sum(room[:0])[:sha256.Size/2])
}
