package services

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// caller calls a service and never repeats a call by itself.
type caller struct {
	*testing.T
	url    string
	client *http.Client
}

func serve(t *testing.T, service http.Handler) *caller {
	t.Helper()
	server := httptest.NewServer(service)
	t.Cleanup(server.Close)
	return &caller{t, server.URL, &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
}

// post returns status and body as text, or "broken" for a connection that broke.
func (c *caller) send(method, path, key, body string) string {
	c.Helper()
	request, err := http.NewRequestWithContext(c.Context(), method, c.url+path, strings.NewReader(body))
	if err != nil {
		c.Fatal(err)
	}
	if key != "" {
		request.Header.Set("Idempotency-Key", key)
	}
	response, err := c.client.Do(request)
	if err != nil {
		return "broken"
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return "broken"
	}
	return strings.TrimSpace(fmt.Sprintf("%d %s", response.StatusCode, text))
}

func (c *caller) expect(want, method, path, key, body string) {
	c.Helper()
	if got := c.send(method, path, key, body); got != want {
		c.Errorf("%s %s, key %q: got %s, want %s", method, path, key, got, want)
	}
}

func TestARepeatChargesNobodyTwice(t *testing.T) {
	p := NewPayments(Config{})
	c := serve(t, p)
	c.expect(`201 {"payment":"pay-1","amount":42}`, "POST", "/charges", "o-1/charge", `{"order":"o-1","amount":42}`)
	c.expect(`200 {"payment":"pay-1","amount":42}`, "POST", "/charges", "o-1/charge", `{"order":"o-1","amount":42}`)
	c.expect(`201 {"payment":"pay-2"}`, "POST", "/charges", "o-2/charge", `{"order":"o-2"}`)
	c.expect(`201 {"payment":"pay-1","amount":42,"refunded":true}`, "POST", "/refunds", "o-1/charge:undo", `{"order":"o-1"}`)
	c.expect(`200 {"payment":"pay-1","amount":42,"refunded":true}`, "POST", "/refunds", "o-1/charge:undo:2", `{"order":"o-1"}`)
	c.expect(`200 [{"payment":"pay-1","order":"o-1","key":"o-1/charge","amount":42,"refunded":true,"calls":2},`+
		`{"payment":"pay-2","order":"o-2","key":"o-2/charge","refunded":false,"calls":1}]`, "GET", "/ledger", "", "")
}

// A charge of unknown outcome may still be on its way when it is undone.
func TestARefundComesBeforeItsCharge(t *testing.T) {
	c := serve(t, NewPayments(Config{}))
	c.expect(`200 {}`, "POST", "/refunds", "o-1/charge:undo", `{"order":"o-1"}`)
	c.expect(`410 {"code":"order-void","message":"the order was refunded before this charge arrived"}`, "POST", "/charges", "o-1/charge", `{"order":"o-1","amount":42}`)
	c.expect(`200 []`, "GET", "/ledger", "", "")
}

func TestModes(t *testing.T) {
	const charge, refund, parcel = "/charges", "/refunds", "/parcels"
	for _, test := range []struct {
		mode, path string
		want       []string // the statuses of calls with one key
	}{
		{"healthy", charge, []string{"201", "200", "200"}},
		{"slow", charge, []string{"201", "200"}},
		{"flaky", charge, []string{"503", "503", "503", "broken", "200", "200"}},
		{"down", charge, []string{"broken", "broken", "broken"}},
		{"refusing", charge, []string{"201", "200"}},
		{"refusing", refund, []string{"503", "503", "503", "403", "403"}},
		{"down", refund, []string{"broken"}},
		{"flaky", parcel, []string{"503", "503", "503", "broken", "200"}},
		{"refusing", parcel, []string{"422", "422"}},
		{"healthy", parcel, []string{"201", "200"}},
	} {
		t.Run(test.mode+test.path, func(t *testing.T) {
			var service http.Handler = NewPayments(Config{Delay: time.Millisecond})
			if test.path == parcel {
				service = NewCarrier(Config{Delay: time.Millisecond})
			}
			c := serve(t, service)
			c.expect("204", "PUT", "/mode", "", test.mode+"\n")
			c.expect("200 "+test.mode, "GET", "/mode", "", "")
			for i, want := range test.want {
				if got, _, _ := strings.Cut(c.send("POST", test.path, "k", `{"order":"o-1"}`), " "); got != want {
					t.Errorf("call %d: got %s, want %s", i+1, got, want)
				}
			}
		})
	}
}

// Whoever stops waiting for a slow service does not hold it up.
func TestASlowAnswerEndsWithItsCaller(t *testing.T) {
	arrived := make(chan Call, 1)
	p := NewPayments(Config{Delay: time.Hour, Observe: func(c Call) { arrived <- c }})
	p.SetMode(Slow)
	c := serve(t, p)
	c.client.Timeout = 50 * time.Millisecond
	c.expect("broken", "POST", "/charges", "o-1/charge", `{"order":"o-1","amount":42}`)
	if call := <-arrived; call.Fate != Late || call.Key != "o-1/charge" {
		t.Errorf("the service saw %+v", call)
	}
	if len(p.Ledger()) != 1 {
		t.Error("the charge was not made")
	}
}

func TestRefusesWhatItCannotDo(t *testing.T) {
	c := serve(t, NewPayments(Config{}))
	c.expect(`402 {"code":"card-declined","message":"the bank declined the card; ask the customer for another"}`, "POST", "/charges", "k", `{"order":"o-1","card":"declined"}`)
	c.expect(`400 {"code":"unknown-mode","message":"there is no mode \"lazy\"; the modes are down, flaky, healthy, refusing, slow"}`, "PUT", "/mode", "", "lazy")
	for _, body := range []string{"", "[]", `{"order":7}`} {
		if got := c.send("POST", "/charges", "k", body); !strings.HasPrefix(got, "400 ") {
			t.Errorf("%q was answered with %s", body, got)
		}
	}
	if got := c.send("POST", "/charges", "", `{"order":"o-1"}`); !strings.HasPrefix(got, `400 {"code":"no-key"`) {
		t.Errorf("a call without a key was answered with %s", got)
	}
}
