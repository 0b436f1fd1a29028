// Package codec asks a server of the user's to decode payloads that are shown. See docs/codec.md.
package codec

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/identity"
	"github.com/waybill-dev/waybill/orchestrator/address"
)

const (
	// Most is how many bytes a request may have, and an answer.
	Most = 8 << 20
	// Patience is how long the codec may take for an answer.
	Patience = 5 * time.Second
	// AtOnce is how many requests there should be at a time, at most.
	AtOnce = 16
	// Deepest is how many levels of arrays and objects a payload may have that is sent, or decoded. JSON that is read or written has
	// 10,000 at most, and an answer has some around the payload.
	Deepest = 9_900
)

const helps = ": fewer come with a smaller limit of a list, and those of an order in smaller pages of its history"

// Unasked says of a sentence of [Codec.Decode] whether the codec was not asked, since there was too much to send: for less it may be.
func Unasked(why string) bool { return strings.HasSuffix(why, helps) }

// Codec is a server that decodes. Make it with [New].
type Codec struct {
	url      string
	client   *http.Client
	patience time.Duration
}

// New returns the codec at an address. Tokens are sent there, so that it must be of TLS, or of this machine.
func New(at string) (*Codec, error) {
	u, err := address.Parse(at, address.Query)
	if err != nil {
		return nil, fmt.Errorf("use an address such as https://codec.example/decode, without a user and without a #: %w", err)
	}
	if u.Scheme == "http" && !identity.Loopback(u.Hostname()) {
		return nil, errors.New("tokens and what is decoded would pass in clear: use an address with https, or one of this machine")
	}
	return &Codec{u.String(), &http.Client{
		Transport: &http.Transport{
			Proxy:                  http.ProxyFromEnvironment,
			ForceAttemptHTTP2:      true,
			HTTP2:                  &http.HTTP2Config{SendPingTimeout: time.Second, PingTimeout: 2 * time.Second}, // one connection has all requests, and may die without a word
			TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
			MaxIdleConnsPerHost:    AtOnce,
			IdleConnTimeout:        90 * time.Second,
			MaxResponseHeaderBytes: 64 << 10,
			OnProxyConnectResponse: func(_ context.Context, _ *url.URL, _ *http.Request, said *http.Response) error {
				if said.StatusCode != http.StatusOK {
					return proxyError(said.StatusCode)
				}
				return nil
			},
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // the token goes nowhere else
	}, Patience}, nil
}

// message is what is sent, and what is answered.
type message struct {
	Payloads []jsontext.Value `json:"payloads"`
}

var options = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

// Decode returns payloads as the codec decodes them for the bearer of a token, "" for one who has none: as many, in the same
// order. It takes [Patience] at most. The error is a sentence for whoever asks: it has no address, no token, and nothing of
// what was sent or answered.
func (c *Codec) Decode(ctx context.Context, token string, payloads []jsontext.Value) ([]jsontext.Value, error) {
	body, err := json.Marshal(message{payloads}, options)
	if err != nil {
		return nil, errors.New("what is stored is no JSON")
	}
	if len(body) > Most {
		return nil, fmt.Errorf("the payloads have %d bytes together, and the codec is sent at most %d at a time%s", len(body), Most, helps)
	}
	ctx, cancel := context.WithTimeout(ctx, c.patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return nil, errors.New("the codec cannot be asked")
	}
	r.Header.Set("User-Agent", "waybill")
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	said, err := c.client.Do(r)
	if err != nil {
		return nil, c.unanswered(err)
	}
	defer said.Body.Close()
	if said.StatusCode != http.StatusOK {
		return nil, refused(said, token != "")
	}
	text, err := io.ReadAll(io.LimitReader(said.Body, Most+1))
	if err != nil {
		return nil, c.unanswered(err)
	}
	if len(text) > Most {
		return nil, fmt.Errorf("the codec's answer has more than %d bytes", Most)
	}
	var answer message
	if err := json.Unmarshal(text, &answer, options); err != nil { // which may have what was decoded in it
		return nil, errors.New("the codec answered what is not as docs/codec.md says: no JSON, or none with payloads" + asPage(said))
	}
	if len(answer.Payloads) != len(payloads) {
		return nil, fmt.Errorf("the codec was asked for %d payloads, and answered %d", len(payloads), len(answer.Payloads))
	}
	for i := range answer.Payloads {
		if err := answer.Payloads[i].Compact(options); err != nil {
			return nil, errors.New("the codec answered what is no JSON")
		}
		if events.Depth(answer.Payloads[i]) > Deepest {
			return nil, errors.New("the codec answered what is nested too deeply")
		}
	}
	return answer.Payloads, nil
}

// proxyError is the status with which a proxy refuses to lead to the codec.
type proxyError int

func (e proxyError) Error() string { return status(int(e)) }

func status(code int) string {
	return fmt.Sprintf("%d %s", code, cmp.Or(http.StatusText(code), "of no known meaning"))
}

// unanswered says why there is no answer, or no whole one. Of an error that is not known nothing is said: it may have in it
// what came.
func (c *Codec) unanswered(err error) error {
	if wait, ok := errors.AsType[net.Error](err); ok && wait.Timeout() {
		return fmt.Errorf("the codec did not answer within %s", c.patience)
	}
	if refusal, ok := errors.AsType[proxyError](err); ok {
		return fmt.Errorf("the proxy before the codec refuses: %w", refusal)
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "proxyconnect" {
		return errors.New("the proxy before the codec cannot be reached")
	}
	if untrusted, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return fmt.Errorf("the codec's certificate is not trusted: %s", distrust(untrusted.Err))
	}
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return errors.New("the codec cannot be reached: its name is not known")
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		return errors.New("the codec cannot be reached: nothing listens there")
	}
	return errors.New("the connection to the codec broke")
}

// distrust says by kind why a certificate is not trusted: what the error says itself has names in it that may be the codec's.
func distrust(err error) string {
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return "it is of another name"
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return "it is of an authority that is not trusted"
	}
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired {
		return "it has expired, or is not valid yet"
	}
	return "it is not valid"
}

// refused says what an answer other than 200 means.
func refused(said *http.Response, named bool) error {
	switch code := said.StatusCode; {
	case (code == http.StatusUnauthorized || code == http.StatusForbidden) && named:
		return fmt.Errorf("the codec does not decode for you: it answered %s", status(code))
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		return fmt.Errorf("the codec does not decode for who has no token: it answered %s. Come with a token of your issuer: keys and certificates are not passed on", status(code))
	case code >= 300 && code < 400:
		return fmt.Errorf("the codec answered %s; redirects are not followed: configure the address to which it leads", status(code))
	default:
		return fmt.Errorf("the codec answered %s%s", status(code), asPage(said))
	}
}

// asPage says of an answer that is a page for people where it may come from.
func asPage(said *http.Response) string {
	if kind, _, err := mime.ParseMediaType(said.Header.Get("Content-Type")); err == nil && kind == "text/html" {
		return ", with a page for people, as a proxy or a log-in before it does"
	}
	return ""
}
