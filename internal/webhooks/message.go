package webhooks

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/yamlfile"
)

// message is what a receiver is told: docs/schemas/webhook.json.
type message struct {
	Type events.Type `json:"type"`
	// Timestamp is when the alert was raised.
	Timestamp string `json:"timestamp"`
	Data      data   `json:"data"`
}

// data is an alert, without the payloads of its order.
type data struct {
	ID        string `json:"id"` // as in the header webhook-id
	Namespace string `json:"namespace"`
	Reason    string `json:"reason"`
	Order     string `json:"order,omitzero"`
	Workflow  string `json:"workflow,omitzero"`
	Version   int    `json:"version,omitzero"`
	Partition *int32 `json:"partition,omitzero"`
	Seq       uint64 `json:"seq,omitzero"` // of the event of the order
	Step      string `json:"step,omitzero"`
	Message   string `json:"message"`
	Action    string `json:"action,omitzero"`
	URL       string `json:"url,omitzero"` // of the order in the console
}

// tested is the type of a sample, which is about nothing.
const tested events.Type = "waybill.alert.tested"

// maxText is how many characters of a text are told: Waybill's own are shorter, and others may write alerts, too.
const maxText = 4000

// newMessage is what is told of a record of the alerts, but for what the order's own record says.
func newMessage(namespace string, r *kgo.Record, a *events.Alert) *message {
	id := string(events.HeaderValue(r, "ce_id"))
	if id == "" { // somebody else wrote it
		id = fmt.Sprintf("%s/%d/%d", r.Topic, r.Partition, r.Offset)
	}
	m := &message{events.AlertRaised, string(events.AppendTime(nil, a.At)), data{
		ID: messageID(namespace, id), Namespace: namespace, Reason: string(a.About()), Order: a.Order, Step: a.Step,
		Message: yamlfile.Clip(a.Reason, maxText), Action: yamlfile.Clip(a.Action, maxText),
	}}
	if rest, ok := strings.CutPrefix(id, a.Order+"/"); ok && a.Order != "" {
		seq, err := strconv.ParseUint(strings.TrimSuffix(rest, "/alert"), 10, 64)
		if err == nil {
			m.Data.Seq = seq
		}
	}
	return m
}

// messageID is that of a message about an event of a namespace: the same whenever it is told again. It has none of the
// characters that an order's id may have.
func messageID(namespace, id string) string {
	sum := sha256.Sum256([]byte(namespace + "\x00" + id))
	return "msg_" + hex.EncodeToString(sum[:16])
}

// page is where an order is in the console at an address; empty without one.
func page(console, order string) string {
	if console == "" || order == "" {
		return ""
	}
	return console + "/orders/" + url.PathEscape(order)
}

// sample is a message that is about nothing.
func sample(now time.Time) *message {
	return &message{tested, string(events.AppendTime(nil, now)), data{
		ID: "msg_" + strings.ReplaceAll(uuid.NewString(), "-", ""), Reason: "test", Message: "This is a test of the webhook: nothing is wrong.", Action: "nothing",
	}}
}

func (m *message) body() ([]byte, error) { return json.Marshal(m) }

// sign returns the header webhook-signature: https://www.standardwebhooks.com, version 1.0.0.
func sign(secrets [][]byte, id string, at time.Time, body []byte) string {
	all := make([]string, len(secrets))
	for i, secret := range secrets {
		mac := hmac.New(sha256.New, secret)
		fmt.Fprintf(mac, "%s.%d.%s", id, at.Unix(), body)
		all[i] = "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	}
	return strings.Join(all, " ")
}
