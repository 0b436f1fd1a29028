// Command webhook-receiver takes the webhooks of Waybill's alerts, and prints those that are signed.
package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// verify says whether a message is signed with the secret, and was so within the last five minutes.
func verify(secret []byte, h http.Header, body []byte) bool {
	at, err := strconv.ParseInt(h.Get("Webhook-Timestamp"), 10, 64)
	if err != nil || time.Since(time.Unix(at, 0)).Abs() > 5*time.Minute {
		return false
	}
	mac := hmac.New(sha256.New, secret)
	fmt.Fprintf(mac, "%s.%d.%s", h.Get("Webhook-Id"), at, body)
	want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	for given := range strings.FieldsSeq(h.Get("Webhook-Signature")) { // several while a secret is changed
		if hmac.Equal([]byte(given), []byte(want)) {
			return true
		}
	}
	return false
}

func main() {
	secret, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(os.Getenv("WEBHOOK_SECRET"), "whsec_"))
	if err != nil || len(secret) == 0 {
		log.Fatal("WEBHOOK_SECRET is to be the webhook's secret")
	}
	var known sync.Map // keep these somewhere that outlasts the process
	http.HandleFunc("POST /", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 64<<10))
		if err != nil || !verify(secret, r.Header, body) {
			http.Error(w, "it is not signed", http.StatusUnauthorized)
			return
		}
		if _, again := known.LoadOrStore(r.Header.Get("Webhook-Id"), true); again {
			return // it was told before
		}
		var alert struct {
			Type string `json:"type"`
			Data struct {
				Reason  string `json:"reason"`
				Order   string `json:"order"`
				Message string `json:"message"`
			} `json:"data"`
		}
		if err := json.Unmarshal(body, &alert); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		log.Printf("%s %q: %s", alert.Data.Reason, alert.Data.Order, alert.Data.Message)
	})
	server := &http.Server{Addr: os.Args[1], ReadTimeout: 10 * time.Second}
	log.Fatal(server.ListenAndServe())
}
