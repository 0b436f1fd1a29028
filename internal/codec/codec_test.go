package codec

import (
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// asked has a codec that answers as it is told be asked by the bearer of a token, of two payloads that have canary in them.
func asked(t *testing.T, token string, answer http.HandlerFunc, change ...func(*Codec, *httptest.Server)) ([]jsontext.Value, error) {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	c, err := New(server.URL + "/decode?code=s3cr3t")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.client.CloseIdleConnections)
	for _, f := range change {
		f(c, server)
	}
	return c.Decode(t.Context(), token, []jsontext.Value{jsontext.Value(`"canary"`), jsontext.Value(`{"b": 1,"b":"canary"}`)})
}

// What is asked is what docs/codec.md says, and what comes back is in its order, and as small as it can be.
func TestDecode(t *testing.T) {
	for token, want := range map[string]string{"t-1": "Bearer t-1", "": ""} {
		decoded, err := asked(t, token, func(w http.ResponseWriter, r *http.Request) {
			var said struct {
				Payloads []json.RawMessage `json:"payloads"`
			}
			err := json.NewDecoder(r.Body).Decode(&said)
			if err != nil || len(said.Payloads) != 2 || string(said.Payloads[0]) != `"canary"` || r.Method != http.MethodPost || r.URL.RequestURI() != "/decode?code=s3cr3t" {
				t.Errorf("%s %s: %v, %s", r.Method, r.URL, err, said.Payloads)
			}
			if got := r.Header["Authorization"]; strings.Join(got, "|") != want || r.Header.Get("Content-Type") != "application/json" || r.Header.Get("Cookie") != "" {
				t.Errorf("it came with %v", r.Header)
			}
			fmt.Fprintf(w, `{"more":1,"payloads":[ {"a" :  [1, "\u00e9"]},  %s ]}`, said.Payloads[1])
		})
		got := make([]string, len(decoded))
		for n := range decoded {
			got[n] = string(decoded[n])
		}
		if err != nil || !slices.Equal(got, []string{`{"a":[1,"é"]}`, `{"b":1,"b":"canary"}`}) && !slices.Equal(got, []string{`{"a":[1,"\u00e9"]}`, `{"b":1,"b":"canary"}`}) {
			t.Errorf("decoded %q, %v", got, err)
		}
	}
}

// A codec that does anything else decodes nothing, and it is said why: without where it is, the token, and what it was asked or said.
func TestBadCodecs(t *testing.T) {
	says := func(status int, kind, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			w.WriteHeader(status)
			fmt.Fprint(w, body)
		}
	}
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a redirect was followed") }))
	defer elsewhere.Close()
	raw := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			conn, out, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			_, _ = out.WriteString(text)
			_ = out.Flush()
		}
	}
	const fits = `{"payloads":["canary","canary"]}`
	hasty := func(c *Codec, _ *httptest.Server) { c.patience = 50 * time.Millisecond }
	through := func(proxy string) func(*Codec, *httptest.Server) {
		return func(c *Codec, _ *httptest.Server) {
			c.url = "https://codec.invalid/decode"
			c.client.Transport.(*http.Transport).Proxy = func(*http.Request) (*url.URL, error) { return url.Parse(proxy) }
		}
	}
	proxy := httptest.NewServer(says(http.StatusProxyAuthRequired, "text/html", "<p>canary"))
	defer proxy.Close()
	gone := httptest.NewServer(nil)
	gone.Close()
	strange := httptest.NewTLSServer(says(200, "application/json", fits))
	strange.Config.ErrorLog = nil
	defer strange.Close()
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		change func(*Codec, *httptest.Server)
		want   string
	}{
		"refuses the token":  {answer: says(403, "application/json", fits), want: "does not decode for you: it answered 403 Forbidden"},
		"does not know whom": {answer: says(401, "application/json", fits), want: "does not decode for you: it answered 401"},
		"is broken":          {answer: says(500, "application/json", fits), want: "the codec answered 500 Internal Server Error"},
		"has another status": {answer: says(201, "application/json", fits), want: "the codec answered 201"},
		"has an odd status":  {answer: says(799, "application/json", fits), want: "the codec answered 799 of no known meaning"},
		"a proxy's page":     {answer: says(502, "text/html; charset=utf-8", "<p>canary"), want: "502 Bad Gateway, with a page for people"},
		"leads elsewhere": {answer: func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
		}, want: "redirects are not followed"},
		"a log-in's page":     {answer: says(200, "text/html", "<p>canary"), want: "no JSON, or none with payloads, with a page for people"},
		"no JSON":             {answer: says(200, "application/json", `{"payloads":["canary",canary`), want: "no JSON, or none with payloads"},
		"nothing":             {answer: says(200, "application/json", ""), want: "no JSON, or none with payloads"},
		"other JSON":          {answer: says(200, "application/json", `{"payloads":"canary"}`), want: "no JSON, or none with payloads"},
		"more behind it":      {answer: says(200, "application/json", fits+fits), want: "no JSON, or none with payloads"},
		"no payloads":         {answer: says(200, "application/json", `{"payload":["canary","canary"]}`), want: "asked for 2 payloads, and answered 0"},
		"too few":             {answer: says(200, "application/json", `{"payloads":["canary"]}`), want: "asked for 2 payloads, and answered 1"},
		"too many":            {answer: says(200, "application/json", `{"payloads":["canary","canary","canary"]}`), want: "asked for 2 payloads, and answered 3"},
		"very deep":           {answer: says(200, "application/json", `{"payloads":[1,`+strings.Repeat("[", 20_000)+strings.Repeat("]", 20_000)+`]}`), want: "no JSON, or none with payloads"},
		"deep arrays":         {answer: says(200, "application/json", `{"payloads":[1,`+strings.Repeat("[", 9_998)+strings.Repeat("]", 9_998)+`]}`), want: "nested too deeply"},
		"deep objects":        {answer: says(200, "application/json", `{"payloads":[`+strings.Repeat(`{"canary":`, 9_998)+"1"+strings.Repeat("}", 9_998)+`,1]}`), want: "nested too deeply"},
		"huge":                {answer: says(200, "application/json", `{"payloads":["`+strings.Repeat("x", Most)+`",1]}`), want: "more than 8388608 bytes"},
		"what breaks off":     {answer: raw("HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n" + fits), want: "connection to the codec broke"},
		"what is no HTTP":     {answer: raw("canary canary\r\n\r\n"), want: "connection to the codec broke"},
		"hangs up":            {answer: raw(""), want: "connection to the codec broke"},
		"headers without end": {answer: raw("HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 1<<20)), want: "connection to the codec broke"},
		"is slow":             {answer: func(_ http.ResponseWriter, r *http.Request) { waits(r) }, change: hasty, want: "did not answer within 50ms"},
		"drips":               {answer: drips, change: hasty, want: "did not answer within 50ms"},
		"is away":             {change: func(c *Codec, _ *httptest.Server) { c.url = gone.URL }, want: "nothing listens there"},
		"has no address":      {change: func(c *Codec, _ *httptest.Server) { c.url = "http://codec.invalid" }, want: "its name is not known"},
		"is not trusted":      {change: func(c *Codec, _ *httptest.Server) { c.url = strange.URL }, want: "certificate is not trusted: it is of an authority that is not trusted"},
		"is of another name": {change: func(c *Codec, _ *httptest.Server) {
			c.url = strings.Replace(strange.URL, "127.0.0.1", "localhost", 1)
			c.client.Transport.(*http.Transport).TLSClientConfig = strange.Client().Transport.(*http.Transport).TLSClientConfig
		}, want: "certificate is not trusted: it is of another name"},
		"is of another time": {change: func(c *Codec, _ *httptest.Server) {
			c.url = strange.URL
			config := strange.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
			config.Time = func() time.Time { return time.Unix(0, 0).AddDate(1000, 0, 0) }
			c.client.Transport.(*http.Transport).TLSClientConfig = config
		}, want: "certificate is not trusted: it has expired, or is not valid yet"},
		"is behind a proxy":    {change: through(proxy.URL), want: "the proxy before the codec refuses: 407 Proxy Authentication Required"},
		"behind none any more": {change: through(gone.URL), want: "the proxy before the codec cannot be reached"},
		"bomb": {answer: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			for { // without end
				if _, err := z.Write(make([]byte, 1<<20)); err != nil {
					return
				}
			}
		}, want: "more than 8388608 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			decoded, err := asked(t, "t-secret", c.answer, func(it *Codec, s *httptest.Server) {
				it.patience = time.Minute // however slow this machine is
				if s.Config.ErrorLog = nil; c.change != nil {
					c.change(it, s)
				}
			})
			if err == nil || decoded != nil {
				t.Fatalf("decoded %s", decoded)
			}
			text := err.Error()
			if !strings.Contains(text, c.want) || Unasked(text) {
				t.Errorf("%s", text)
			}
			for _, not := range []string{"canary", "t-secret", "s3cr3t", "127.0.0.1", "codec.invalid", "localhost", "\n"} {
				if strings.Contains(text, not) {
					t.Errorf("it has %q in it: %s", not, text)
				}
			}
		})
	}
	if _, err := asked(t, "", says(401, "text/plain", "")); err == nil || !strings.Contains(err.Error(), "keys and certificates are not passed on") {
		t.Errorf("without a token: %v", err)
	}
}

// Why a certificate is not trusted is said without what it says: the names in it may be the codec's.
func TestDistrust(t *testing.T) {
	for want, err := range map[string]error{
		"it is of another name":                     x509.HostnameError{Certificate: &x509.Certificate{}, Host: "codec.invalid"},
		"it is of an authority that is not trusted": x509.UnknownAuthorityError{},
		"it has expired, or is not valid yet":       x509.CertificateInvalidError{Reason: x509.Expired, Detail: "codec.invalid"},
		"it is not valid":                           x509.CertificateInvalidError{Reason: x509.CANotAuthorizedForThisName, Detail: "codec.invalid"},
	} {
		if got := (&Codec{}).unanswered(&tls.CertificateVerificationError{Err: err}).Error(); got != "the codec's certificate is not trusted: "+want {
			t.Errorf("%T: %s", err, got)
		}
	}
}

// A connection on which nothing comes any more is given up: the codec is asked by another.
func TestDeadConnection(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 {
			t.Errorf("it is asked by %s", r.Proto)
		}
		fmt.Fprint(w, `{"payloads":[1]}`)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	c, err := New(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	transport := c.client.Transport.(*http.Transport)
	defer transport.CloseIdleConnections()
	transport.TLSClientConfig = server.Client().Transport.(*http.Transport).TLSClientConfig
	var first atomic.Pointer[mute]
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		m := &mute{Conn: conn}
		first.CompareAndSwap(nil, m)
		return m, nil
	}
	for n, mayFail := range []bool{false, true, false} {
		if n == 1 {
			first.Load().dead.Store(true)
		}
		if _, err := c.Decode(t.Context(), "", []jsontext.Value{jsontext.Value("1")}); err != nil && !mayFail {
			t.Errorf("asked %d times: %v", n+1, err)
		}
	}
}

// mute is a connection that, once dead, takes what is written, and has it go nowhere.
type mute struct {
	net.Conn

	dead atomic.Bool
}

func (m *mute) Write(b []byte) (int, error) {
	if m.dead.Load() {
		return len(b), nil
	}
	return m.Conn.Write(b) //nolint:wrapcheck // it is that connection
}

// waits reads a request, and then until who asks has gone.
func waits(r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	<-r.Context().Done()
}

// drips begins an answer, and does not end it.
func drips(w http.ResponseWriter, r *http.Request) {
	fmt.Fprint(w, `{"payloads":["canary",`)
	_ = http.NewResponseController(w).Flush()
	waits(r)
}

// What is too large is not sent, and who has hung up is not waited for.
func TestNotAsked(t *testing.T) {
	c, err := New("http://127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	large := jsontext.Value(`"` + strings.Repeat("x", Most) + `"`)
	if _, err := c.Decode(t.Context(), "", []jsontext.Value{large}); err == nil || !strings.Contains(err.Error(), "at most 8388608 at a time: fewer come with") || !Unasked(err.Error()) {
		t.Errorf("%v", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if c, err = New("http://" + listener.Addr().String()); err != nil {
		t.Fatal(err)
	}
	gone, hangUp := context.WithCancel(t.Context())
	hangUp()
	if _, err := c.Decode(gone, "", []jsontext.Value{jsontext.Value("1")}); err == nil {
		t.Error("nobody answered, and it is decoded")
	}
}

func TestAddresses(t *testing.T) {
	for address, want := range map[string]string{
		"https://codec.example/decode?x=1": "", "https://codec.example": "", "http://127.0.0.1:8090/decode": "", "http://localhost:8090": "", "http://[::1]:1": "",
		"http://codec.example/decode": "in clear", "http://127.0.0.1.example": "in clear", "http://10.0.0.1": "in clear",
		"codec.example": "use an address", "ftp://codec.example": "use an address", "https://": "use an address", "https://:443/x": "use an address", "": "use an address",
		"https://ana:s3cr3t@codec.example": "use an address", "https://codec.example/#x": "use an address", "https://codec.example/%zz?s3cr3t": "use an address",
	} {
		_, err := New(address)
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cr3t")) {
			t.Errorf("%q: %v", address, err)
		}
	}
}
