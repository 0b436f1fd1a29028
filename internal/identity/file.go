package identity

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"path"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/waybill-dev/waybill/orchestrator/address"
	"github.com/waybill-dev/waybill/yamlfile"
)

// file is what an access file says.
type file struct {
	keys         map[string]key
	certificates []certificate
	oidc         *issuer // nil without one
}

// text is a scalar, and where it stands.
type text struct {
	value string
	at    *token.Token
}

// UnmarshalYAML implements [yaml.NodeUnmarshaler].
func (t *text) UnmarshalYAML(n ast.Node) error {
	t.at = n.GetToken()
	switch n := n.(type) {
	case *ast.StringNode:
		t.value = n.Value
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		t.value = t.at.Value // the name of a group may be a number
	default:
		return &yaml.SyntaxError{Message: "a text is wanted here; write one, in quotes if need be", Token: t.at}
	}
	return nil
}

// written is the file as YAML has it.
type written struct {
	Keys []struct {
		ID        text   `yaml:"id"`
		Subject   text   `yaml:"subject"`
		Hash      text   `yaml:"hash"`
		Expires   text   `yaml:"expires"`
		Roles     []text `yaml:"roles"`
		Workflows []text `yaml:"workflows"`
	} `yaml:"keys"`
	Certificates []struct {
		Subject   text   `yaml:"subject"`
		SAN       text   `yaml:"san"`
		Roles     []text `yaml:"roles"`
		Workflows []text `yaml:"workflows"`
	} `yaml:"certificates"`
	OIDC *struct {
		Issuer   text `yaml:"issuer"`
		Audience text `yaml:"audience"`
		Subject  text `yaml:"subject"`
		Groups   text `yaml:"groups"`
		Login    *struct {
			Client     text   `yaml:"client"`
			SecretFile text   `yaml:"secretFile"`
			Scopes     []text `yaml:"scopes"`
		} `yaml:"login"`
		Roles []struct {
			Group     text   `yaml:"group"`
			Roles     []text `yaml:"roles"`
			Workflows []text `yaml:"workflows"`
		} `yaml:"roles"`
	} `yaml:"oidc"`
}

// maxFile is the size of the largest file, in bytes, and maxName that of a subject:
// what a command may say of its author.
const (
	maxFile = 1 << 20
	maxName = 256
)

// read reads a file. The error has all that is wrong with it, by line and column.
func read(name string, source []byte) (*file, error) {
	r := new(reader)
	r.File = name
	var w written
	if !r.yaml(source, &w) {
		return nil, r.wrong()
	}
	f := r.file(&w)
	return f, r.wrong()
}

// yaml reads what a file has written, and says what is wrong with it.
func (r *reader) yaml(source []byte, w any) bool {
	switch {
	case len(source) > maxFile:
		r.add(nil, "the file has %d bytes; at most %d are allowed", len(source), maxFile)
		return false
	case !utf8.Valid(source):
		r.add(nil, "the file is not UTF-8; save it as UTF-8")
		return false
	}
	if err := yamlfile.Guarded(func() error { return parse(source, w) }); err != nil {
		// The Error method of the library's errors prints the source around them.
		at, message := (*token.Token)(nil), err.Error()
		if known, ok := errors.AsType[yaml.Error](err); ok {
			at, message = known.GetToken(), known.GetMessage()
		}
		r.add(at, "%s; docs/security.md has the members of the file and what they take", message)
		return false
	}
	return true
}

func parse(source []byte, w any) error {
	parsed, err := parser.ParseBytes(source, 0)
	if err != nil {
		return err
	}
	var body ast.Node
	for _, doc := range parsed.Docs {
		switch {
		case doc.Body == nil:
		case body != nil: // the library would pass over it
			return &yaml.SyntaxError{Message: "a second document starts here; there is one file, with one document", Token: doc.Body.GetToken()}
		default:
			body = doc.Body
		}
	}
	if body == nil {
		return nil
	}
	if err := yaml.NodeToValue(body, w, yaml.Strict()); err != nil {
		return err
	}
	var e empties
	ast.Walk(&e, body)
	return e.found
}

// empties finds a member that is there and has no value: it may have been meant for none, and
// would count as for all.
type empties struct{ found error }

// Visit implements [ast.Visitor].
func (e *empties) Visit(n ast.Node) ast.Visitor {
	list, isList := n.(*ast.SequenceNode)
	if n.Type() == ast.NullType || isList && len(list.Values) == 0 {
		e.found = &yaml.SyntaxError{Message: "nothing is said here; leave the member out, or give it a value", Token: n.GetToken()}
	}
	if e.found != nil {
		return nil
	}
	return e
}

// reader collects what is wrong.
type reader struct{ yamlfile.Reader }

func (r *reader) add(at *token.Token, format string, args ...any) { r.Add(at, format, args...) }

// wrong returns the problems in the order of the file, nil if there are none.
func (r *reader) wrong() error {
	if errs := r.Sorted(); errs != nil {
		return errs
	}
	return nil
}

func (r *reader) file(w *written) *file {
	f := &file{keys: make(map[string]key)}
	for i := range w.Keys {
		e := &w.Keys[i]
		k := key{grant: r.grant(e.ID.at, e.Roles, e.Workflows)}
		switch _, twice := f.keys[e.ID.value]; {
		case e.ID.value == "":
			r.add(e.Hash.at, "a key has no id; `waybill key new --id NAME` makes one, and the lines for the file")
		case !keyID.MatchString(e.ID.value):
			r.add(e.ID.at, "the id %s: use 1 to 64 of a-z A-Z 0-9 . -", quote(e.ID.value))
		case twice:
			r.add(e.ID.at, "the id %s is given twice; give each key one of its own", quote(e.ID.value))
		}
		k.subject = r.subject(text{cmp.Or(e.Subject.value, e.ID.value), cmp.Or(e.Subject.at, e.ID.at)})
		sum, ok := strings.CutPrefix(e.Hash.value, hashPrefix)
		b, err := hex.DecodeString(sum)
		if !ok || err != nil || len(b) != sha256.Size {
			r.add(cmp.Or(e.Hash.at, e.ID.at), "hash is sha256: and 64 hexadecimal digits, as `waybill key new` prints it; the key itself does not stand in the file")
		}
		copy(k.hash[:], b)
		k.expires = r.expiry(&e.Expires)
		f.keys[e.ID.value] = k
	}
	for i := range w.Certificates {
		e := &w.Certificates[i]
		at := cmp.Or(e.Subject.at, e.SAN.at)
		if (e.Subject.value == "") == (e.SAN.value == "") {
			r.add(at, "a certificate is named by its subject, such as CN=ana,O=Shop, or by san, one of its alternative names; give one of the two")
		}
		r.subject(text{e.Subject.value + e.SAN.value, at})
		f.certificates = append(f.certificates, certificate{e.Subject.value, e.SAN.value, r.grant(at, e.Roles, e.Workflows)})
	}
	if o := w.OIDC; o != nil {
		if u, err := address.Parse(o.Issuer.value, 0); err != nil || u.Scheme != "https" && !Loopback(u.Hostname()) {
			r.add(o.Issuer.at, "issuer is the address of an OpenID Connect issuer, such as https://id.example; http is taken for this machine only")
		}
		if o.Audience.value == "" {
			r.add(cmp.Or(o.Audience.at, o.Issuer.at), "oidc has no audience: say which one the tokens for Waybill have, or those for others would be taken")
		}
		f.oidc = newIssuer(o.Issuer.value, o.Audience.value, cmp.Or(o.Subject.value, "sub"), cmp.Or(o.Groups.value, "groups"))
		if l := o.Login; l != nil {
			f.oidc.login = &login{client: cmp.Or(l.Client.value, o.Audience.value), secretFile: l.SecretFile.value, scopes: defaultScopes}
			if l.Scopes != nil {
				f.oidc.login.scopes = nil
			}
			for _, t := range l.Scopes {
				f.oidc.login.scopes = append(f.oidc.login.scopes, t.value)
			}
			if !slices.Contains(f.oidc.login.scopes, oidc.ScopeOpenID) {
				r.add(l.Scopes[0].at, "the scopes of login do not have openid, without which the issuer says of nobody who it is; add it")
			}
			if _, err := f.oidc.login.secret(); err != nil {
				r.add(l.SecretFile.at, "secretFile of login: %v", err)
			}
		}
		for i := range o.Roles {
			e := &o.Roles[i]
			if e.Group.value == "" {
				r.add(cmp.Or(e.Group.at, o.Issuer.at), "an entry of oidc's roles has no group; name the one that gets them")
			}
			g := r.grant(e.Group.at, e.Roles, e.Workflows)
			f.oidc.groups[e.Group.value] = append(f.oidc.groups[e.Group.value], g)
		}
		if len(o.Roles) == 0 {
			r.add(o.Issuer.at, "oidc has no roles: say which group has which, or no token would be of use")
		}
	}
	if len(f.keys)+len(f.certificates) == 0 && f.oidc == nil {
		r.add(nil, "the file names nobody: nobody could ask for anything. Add keys, certificates or oidc; `waybill key new` prints an entry")
	}
	return f
}

// grant reads roles and the workflows that they are limited to.
func (r *reader) grant(at *token.Token, roles, workflows []text) Grant {
	var g Grant
	for _, t := range roles {
		role := Role(t.value)
		switch err := CheckRole(t.value); {
		case err != nil:
			r.add(t.at, "%v", err)
		case role == Admin && len(workflows) > 0:
			r.add(t.at, "an admin is not limited to workflows; remove the workflows, or use other roles")
		}
		g.Roles = append(g.Roles, role)
	}
	if len(roles) == 0 {
		r.add(at, "the entry has no roles; give it some of %s", RoleNames())
	}
	for _, t := range workflows {
		if _, err := path.Match(t.value, ""); err != nil || t.value == "" {
			r.add(t.at, "%s is no pattern for names of workflows; write a name, or one with *, ? or [a-z], such as order-*", quote(t.value))
		}
		g.Workflows = append(g.Workflows, t.value)
	}
	return g
}

// subject reads the name under which a caller acts.
func (r *reader) subject(t text) string {
	if !named(t.value) {
		r.add(t.at, "the name %s: use at most %d bytes, without control characters", quote(t.value), maxName)
	}
	return t.value
}

func named(subject string) bool {
	return len(subject) <= maxName && utf8.ValidString(subject) && !strings.ContainsFunc(subject, func(r rune) bool { return unicode.In(r, unicode.Cc, unicode.Cf) })
}

// expiry reads a time, or a day, at the beginning of which it is.
func (r *reader) expiry(t *text) time.Time {
	if t.at == nil {
		return time.Time{}
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if at, err := time.Parse(layout, t.value); err == nil {
			return at
		}
	}
	r.add(t.at, "expires is a time such as 2030-01-02T15:04:05Z, or a day such as 2030-01-02; this is %s", quote(t.value))
	return time.Time{}
}

func quote(s string) string { return yamlfile.Quote(s) }
