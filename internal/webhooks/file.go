// Package webhooks tells receivers over HTTP of alerts, signed as the Standard Webhooks specification says. See
// docs/webhooks.md.
package webhooks

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/identity"
	"github.com/waybill-dev/waybill/orchestrator/address"
	"github.com/waybill-dev/waybill/yamlfile"
)

// Webhook is a receiver of alerts, as a file describes it.
type Webhook struct {
	// Name is that of the file, by which it is known in the log, in metrics and in the group of Kafka that has its place.
	Name string

	url       *url.URL
	headers   http.Header
	timeout   time.Duration
	reasons   []string       // none means all
	workflows identity.Grant // whose alerts it is told of
	secrets   func() ([][]byte, error)
	client    *http.Client
}

const (
	maxFile     = 1 << 20
	maxWebhooks = 20 // each reads the alerts for itself
	// longestTimeout is how long an attempt may take at most, defaultTimeout if nobody says.
	longestTimeout, defaultTimeout = time.Minute, 15 * time.Second
)

// Read reads a file. File is the name under which problems are reported. Values that the file takes from the environment are looked
// up as by [os.LookupEnv], and the files that it names are looked at. The error is [yamlfile.Errors], and has no secret in it.
func Read(file string, source []byte, environment func(string) (string, bool)) ([]*Webhook, error) {
	r := &reader{environment: environment}
	r.File = file
	var all []*Webhook
	body := r.Document(source, maxFile, "webhooks:")
	if body != nil {
		given := r.Mapping(body, "the file", []yamlfile.Field{{"webhooks", func(n ast.Node) { all = r.webhooks(n) }}})
		r.Require(body, given, "the file", "webhooks")
	}
	if errs := r.Sorted(); errs != nil {
		return nil, errs
	}
	return all, nil
}

type reader struct {
	yamlfile.Reader
	environment func(string) (string, bool)
}

// nameForm is that of a webhook's name: it is a part of a group's name, and a label of metrics.
var nameForm = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$`)

func (r *reader) webhooks(n ast.Node) (all []*Webhook) {
	named := r.Entries(n, "webhooks", "write the name of each webhook and a mapping behind it", func(name string, at *token.Token, value ast.Node) {
		if !nameForm.MatchString(name) {
			r.Add(at, "the webhook's name is %s; use 1 to 40 of a-z 0-9 -", yamlfile.Quote(name))
		}
		all = append(all, r.webhook(name, value))
	})
	switch {
	case named != nil && len(named) == 0:
		r.Add(yamlfile.Start(n), "there are no webhooks; write at least one, or leave --webhooks out")
	case len(named) > maxWebhooks:
		r.Add(yamlfile.Start(n), "there are %d webhooks; at most %d are allowed: have one receiver pass on what it is told", len(named), maxWebhooks)
	}
	slices.SortFunc(all, func(a, b *Webhook) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

func (r *reader) webhook(name string, n ast.Node) *Webhook {
	w := &Webhook{Name: name, headers: make(http.Header), timeout: defaultTimeout}
	var roots *x509.CertPool
	given := r.Mapping(n, "a webhook", []yamlfile.Field{
		{"url", func(n ast.Node) { w.url = r.url(n) }},
		{"secret", func(n ast.Node) { w.secrets = r.secret(n) }},
		{"secretFile", func(n ast.Node) { w.secrets = r.secretFile(n) }},
		{"reasons", func(n ast.Node) { w.reasons = r.reasons(n) }},
		{"workflows", func(n ast.Node) { w.workflows.Workflows = r.workflows(n) }},
		{"headers", func(n ast.Node) { r.headers(n, w.headers) }},
		{"timeout", func(n ast.Node) {
			r.Duration(n, "timeout", 1, longestTimeout, "at most 1m is allowed", &w.timeout)
		}},
		{"ca", func(n ast.Node) { roots = r.authorities(n) }},
	})
	r.Require(n, given, "a webhook", "url")
	switch {
	case given == nil:
	case given["secret"] != nil && given["secretFile"] != nil:
		r.Add(given["secretFile"], "the webhook has a secret and a secretFile; remove one")
	case given["secret"] == nil && given["secretFile"] == nil:
		r.Add(yamlfile.Start(n), "the webhook has no secret, so that its receiver could not know who sends; name a file with secretFile, or a variable of the environment with secret: ${NAME}")
	}
	w.client = &http.Client{
		Transport: &http.Transport{
			Proxy:                  http.ProxyFromEnvironment,
			DialContext:            (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
			ForceAttemptHTTP2:      true,
			TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots},
			TLSHandshakeTimeout:    10 * time.Second,
			IdleConnTimeout:        90 * time.Second,
			MaxResponseHeaderBytes: 64 << 10,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return w
}

// variable is a value of the environment.
var variable = regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)\}`)

// filled reads a text with values of the environment. These are never reported.
func (r *reader) filled(n ast.Node, what string) (string, *token.Token, bool) {
	text, at, ok := r.Text(n, what)
	if !ok {
		return "", at, false
	}
	text = variable.ReplaceAllStringFunc(text, func(found string) string {
		name := found[2 : len(found)-1]
		value, set := r.environment(name)
		if !set {
			r.Add(at, "%s needs the variable %s of the environment, which is not set; set it", what, name)
			ok = false
		}
		return value
	})
	return text, at, ok
}

func (r *reader) url(n ast.Node) *url.URL {
	text, at, ok := r.filled(n, "url")
	if !ok {
		return nil
	}
	u, err := address.Parse(text, address.Query)
	if err != nil {
		r.Add(at, "url is no address that can be sent to: %v; write one such as https://pager.example/hooks/7, with names and passwords among the headers", err)
		return nil
	}
	return u
}

// Reasons are what an alert is about, as webhooks are told.
var Reasons = []string{string(events.AboutError), string(events.AboutHeld), string(events.AboutOverdue), string(events.AboutApproval), string(events.AboutNamespace)}

func (r *reader) reasons(n ast.Node) (all []string) {
	entries, ok := r.List(n, "reasons")
	if ok && len(entries) == 0 {
		r.Add(yamlfile.Start(n), "there are no reasons; name some of %s, or leave it out for all", strings.Join(Reasons, ", "))
	}
	for _, entry := range entries {
		reason, at, ok := r.Text(entry, "a reason")
		if ok && !slices.Contains(Reasons, reason) {
			r.Add(at, "there is no reason %s%s; the reasons are %s", yamlfile.Quote(reason), yamlfile.DidYouMean(reason, Reasons), strings.Join(Reasons, ", "))
		}
		all = append(all, reason)
	}
	return all
}

func (r *reader) workflows(n ast.Node) (all []string) {
	entries, ok := r.List(n, "workflows")
	if ok && len(entries) == 0 {
		r.Add(yamlfile.Start(n), "there are no workflows; name some, or leave it out for all")
	}
	for _, entry := range entries {
		pattern, at, ok := r.Text(entry, "a workflow")
		if _, err := path.Match(pattern, ""); ok && (err != nil || pattern == "") {
			r.Add(at, "%s is no pattern for names of workflows; write a name, or one with *, ? or [a-z], such as order-*", yamlfile.Quote(pattern))
		}
		all = append(all, pattern)
	}
	return all
}

// ours are headers that a file cannot set.
var ours = []string{"Webhook-Id", "Webhook-Timestamp", "Webhook-Signature", "Content-Type", "Content-Length", "Transfer-Encoding", "Connection", "Host", "Trailer"}

var headerForm = regexp.MustCompile("^[a-zA-Z0-9!#$%&'*+.^_`|~-]+$")

func (r *reader) headers(n ast.Node, headers http.Header) {
	r.Entries(n, "headers", "write the name of each header and its value behind it", func(name string, at *token.Token, value ast.Node) {
		text, where, ok := r.filled(value, "a header's value")
		canonical := textproto.CanonicalMIMEHeaderKey(name)
		switch {
		case !headerForm.MatchString(name):
			r.Add(at, "%s is no name of a header; use letters, digits and -", yamlfile.Quote(name))
		case slices.Contains(ours, canonical):
			r.Add(at, "the header %s cannot be set: Waybill sets it", canonical)
		case headers.Values(canonical) != nil:
			r.Add(at, "the header %s is given twice; remove one", canonical)
		case ok && strings.ContainsFunc(text, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }):
			r.Add(where, "the header %s has a line break or another control character; remove it", canonical)
		case ok:
			headers.Set(canonical, text)
		}
	})
}

var errSecret = errors.New("a secret is whsec_ and the base64 of 24 to 64 random bytes, such as `echo whsec_$(openssl rand -base64 32)` makes")

// parseSecrets reads secrets, one a line. With several, each signs: so a receiver can change its own.
func parseSecrets(text string) (all [][]byte, _ error) {
	for line := range strings.FieldsSeq(text) {
		rest, prefixed := strings.CutPrefix(line, "whsec_")
		key, err := base64.StdEncoding.DecodeString(rest)
		if !prefixed || err != nil || len(key) < 24 || len(key) > 64 {
			return nil, errSecret
		}
		all = append(all, key)
	}
	if all == nil || len(all) > 4 {
		return nil, fmt.Errorf("1 to 4 secrets are wanted, one a line, and there are %d; %w", len(all), errSecret)
	}
	return all, nil
}

func (r *reader) secret(n ast.Node) func() ([][]byte, error) {
	text, at, ok := r.Text(n, "secret")
	if ok && !regexp.MustCompile("^"+variable.String()+"$").MatchString(text) {
		r.Add(at, "the secret does not stand in the file; put it into a variable of the environment and write secret: ${NAME}, or into a file that secretFile names")
		return nil
	}
	if text, _, ok = r.filled(n, "secret"); !ok {
		return nil
	}
	secrets, err := parseSecrets(text)
	if err != nil {
		r.Add(at, "secret: %v", err)
	}
	return func() ([][]byte, error) { return secrets, nil }
}

// secretFile reads the file each time: so it can be changed while the program runs.
func (r *reader) secretFile(n ast.Node) func() ([][]byte, error) {
	file, at, ok := r.Text(n, "secretFile")
	if !ok {
		return nil
	}
	secrets := func() ([][]byte, error) {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		all, err := parseSecrets(string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		return all, nil
	}
	if _, err := secrets(); err != nil {
		r.Add(at, "secretFile: %v", err)
	}
	return secrets
}

func (r *reader) authorities(n ast.Node) *x509.CertPool {
	file, at, ok := r.Text(n, "ca")
	if !ok {
		return nil
	}
	pool := x509.NewCertPool()
	pem, err := os.ReadFile(file)
	switch {
	case err != nil:
		r.Add(at, "ca: %v", err)
	case !pool.AppendCertsFromPEM(pem):
		r.Add(at, "ca: %s has no certificate in PEM", file)
	}
	return pool
}

// wants says whether the receiver is to be told of an alert. One of an order of which nobody knows the workflow any more goes
// to those that are told of all workflows.
func (w *Webhook) wants(d *data) bool {
	return (w.reasons == nil || slices.Contains(w.reasons, d.Reason)) && (d.Order == "" || w.workflows.Covers(d.Workflow))
}
