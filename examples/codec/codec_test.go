package main

import (
	"context"
	"encoding/base64"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/waybill-dev/waybill/internal/codec"
)

// The example decodes what was encoded with its key, for whom it lets, as Waybill asks it; all else it leaves as it is.
func TestExample(t *testing.T) {
	key, err := cipherOf(base64.StdEncoding.EncodeToString(make([]byte, 32)))
	if err != nil {
		t.Fatal(err)
	}
	other, err := cipherOf(base64.StdEncoding.EncodeToString([]byte("0123456789abcdef")))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler(key, func(_ context.Context, token string) bool { return token == "ana" }))
	defer server.Close()
	c, err := codec.New(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	nonce := make([]byte, key.NonceSize())
	sealed := func(text string) string {
		return `"enc:v1:` + base64.StdEncoding.EncodeToString(key.Seal(nonce, nonce, []byte(text), nil)) + `"`
	}
	strange := `"enc:v1:` + base64.StdEncoding.EncodeToString(other.Seal(nonce, nonce, []byte("1"), nil)) + `"`
	var asked []jsontext.Value
	for _, text := range []string{sealed(`{"card":"4111"}`), `{"a":[` + sealed(`"x"`) + `,12345678901234567890]}`, `"enc:v1:"`, `"enc:v1:%"`, strange, sealed("no JSON"), `"plain"`, `true`} {
		asked = append(asked, jsontext.Value(text))
	}
	decoded, err := c.Decode(t.Context(), "ana", asked)
	got := make([]string, len(decoded))
	for i := range decoded {
		got[i] = string(decoded[i])
	}
	want := []string{`{"card":"4111"}`, `{"a":["x",12345678901234567890]}`, `"enc:v1:"`, `"enc:v1:%"`, strange, string(asked[5]), `"plain"`, `true`}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v", got, err)
	}
	for _, token := range []string{"ben", ""} {
		if _, err := c.Decode(t.Context(), token, asked); err == nil {
			t.Errorf("it decodes for %q", token)
		}
	}
}
