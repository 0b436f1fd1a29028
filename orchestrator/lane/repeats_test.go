package lane

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/orchestrator/proof"
)

// ADR 0026: whoever may write the replies does not make an agent that is away look alive,
// where its replies must repeat their token, to whichever attempt.
func TestWhoForgesIsNoSign(t *testing.T) {
	q := newQuiet(t, callFlow, 40)
	keys := proof.New([]proof.Key{{ID: "k", Secret: []byte("s")}}, proof.Require, nil)
	q.cfg.Keys = func() *proof.Keys { return keys }
	if all := q.alerts(t, time.Hour); len(all) != 1 {
		t.Fatalf("it raised %d alerts", len(all))
	}
	var order string
	for s := range q.away.steps {
		order = s.order
	}
	answers := func(token string) {
		t.Helper()
		must(t, q.decide([]*kgo.Record{typed(q.topics.Replies, "", order, fmt.Sprintf(`{"order":%q,"step":"call","attempt":1,"token":%q,"status":"completed"}`, order, token))}))
		q.commits(t)
	}
	for _, token := range []string{"", "k.AAAAAAAAAAAAAAAAAAAAAA"} {
		if answers(token); strings.Contains(q.said.String(), "silent no more") {
			t.Fatalf("with the token %q the agent is silent no more:\n%s", token, &q.said)
		}
	}
	answers(keys.Token(&proof.Attempt{Namespace: q.topics.Namespace, Order: order, Step: "call", Number: 1, Agent: "phone"}))
	if !strings.Contains(q.said.String(), "silent no more") {
		t.Errorf("nobody hears that it answered:\n%s", &q.said)
	}
}

// ADR 0026: no token stands among the dead letters, where the attempt may be under way still.
func TestDeadLettersHaveNoToken(t *testing.T) {
	l, _ := newLane(t)
	here, _ := l.keys()
	for _, value := range []string{`{"order":%q,"step":"s","attempt":1,"token":"k.secret","status":"ok"}`, `{"order":%q,"token":"k.secret",`, `{"order":%q,"output":NaN,"token":"k.secret"}`} {
		must(t, l.decide([]*kgo.Record{typed(l.topics.Replies, "", here, fmt.Sprintf(value, here))}))
	}
	letters := 0
	for _, r := range l.current.records {
		if r.Topic == l.topics.DeadLetters {
			letters++
			if bytes.Contains(r.Value, []byte("secret")) || len(r.Value) > 0 && !bytes.Contains(r.Value, []byte(`"order":`)) {
				t.Errorf("%s", r.Value)
			}
		}
	}
	if letters != 3 {
		t.Errorf("%d are put aside", letters)
	}
}
