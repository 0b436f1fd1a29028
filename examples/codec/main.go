// Command codec decodes payloads for who may see them, as docs/codec.md of Waybill says. What it decodes are texts anywhere in
// a payload that are enc:v1: and the base64 of a nonce and what AES-GCM made of JSON.
package main

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"encoding/json"
	"log"
	"net/http"
	"os"
	"strings"

	"github.com/coreos/go-oidc/v3/oidc"
)

const prefix, most = "enc:v1:", 8 << 20

// decode returns a value in which all that was encoded with the key is decoded. What is anything else stays as it is.
func decode(key cipher.AEAD, value any) any {
	switch v := value.(type) {
	case []any:
		for i := range v {
			v[i] = decode(key, v[i])
		}
	case map[string]any:
		for name := range v {
			v[name] = decode(key, v[name])
		}
	case string:
		sealed, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(v, prefix))
		if !strings.HasPrefix(v, prefix) || err != nil || len(sealed) < key.NonceSize() {
			return v
		}
		var decoded any
		opened, err := key.Open(nil, sealed[:key.NonceSize()], sealed[key.NonceSize():], nil)
		if err == nil && json.Unmarshal(opened, &decoded) == nil {
			return decoded
		}
	}
	return value
}

// handler decodes for those whom may lets.
func handler(key cipher.AEAD, may func(ctx context.Context, token string) bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !bearer || !may(r.Context(), token) {
			http.Error(w, "not for you", http.StatusForbidden)
			return
		}
		var m struct {
			Payloads []any `json:"payloads"`
		}
		d := json.NewDecoder(http.MaxBytesReader(w, r.Body, most))
		d.UseNumber() // they have more digits than a float64, maybe
		if err := d.Decode(&m); err != nil {
			http.Error(w, "that is no request of Waybill's", http.StatusBadRequest)
			return
		}
		for i := range m.Payloads {
			m.Payloads[i] = decode(key, m.Payloads[i])
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(m) // whoever hung up needs no answer
	})
}

// cipherOf is AES-GCM with a key of 16, 24 or 32 bytes, in base64.
func cipherOf(key string) (cipher.AEAD, error) {
	secret, err := base64.StdEncoding.DecodeString(key)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(secret)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

func main() {
	key, err := cipherOf(os.Getenv("CODEC_KEY"))
	if err != nil {
		log.Fatal("CODEC_KEY: ", err)
	}
	issuer, err := oidc.NewProvider(context.Background(), os.Getenv("CODEC_ISSUER"))
	if err != nil {
		log.Fatal("CODEC_ISSUER: ", err)
	}
	tokens := issuer.Verifier(&oidc.Config{ClientID: os.Getenv("CODEC_AUDIENCE")}) // as the access file of Waybill has it
	may := func(ctx context.Context, token string) bool {
		_, err := tokens.Verify(ctx, token)
		return err == nil // its claims say who asks: let those alone who may see what is encoded
	}
	log.Fatal(http.ListenAndServe(os.Getenv("CODEC_ADDR"), handler(key, may))) //nolint:gosec // what speaks TLS is before it
}
