package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/test/oracle"
)

const calls = "agent: gift\nbase: ${GIFT_URL}\noperations:\n  wrap: {url: \"/gifts/{order}\"}\n"

func TestAgentHTTPUsage(t *testing.T) {
	clearEnvironment(t)
	t.Setenv("GIFT_URL", "https://gifts.example/secret")
	good, bad := write(t, "gift.yaml", calls), write(t, "bad.yaml", "agent: gift\noperations:\n  wrap: {ulr: /x}\n")

	waybill(t, "", "agent").want(t, 2, "", "waybill agent http")
	waybill(t, "", "agent", "http").want(t, 2, "", "--config")
	waybill(t, "", "agent", "http", "x").want(t, 2, "", "x")
	waybill(t, "", "agent", "http", "--config", "/none/there").want(t, 1, "", "/none/there")
	waybill(t, "", "agent", "http", "--config", bad).want(t, 1, "", "bad.yaml:3:10: unknown key \"ulr\"")
	waybill(t, "", "agent", "http", "--config", good, "--brokers", "").want(t, 2, "", "--brokers")
	waybill(t, "", "agent", "http", "--config", good, "--namespace", "a b").want(t, 2, "", "namespace")
	waybill(t, "", "agent", "http", "--config", good, "--bogus").want(t, 2, "", "--bogus")
	waybill(t, "", "agent", "http", "--config", good, "--check").want(t, 0, "wrap  POST ${GIFT_URL}/gifts/{order}", "")
	if c := waybill(t, "", "agent", "http", "--config", good, "--check"); strings.Contains(c.out+c.errs, "secret") {
		t.Errorf("a value of the environment is shown: %s%s", c.out, c.errs)
	}
	t.Setenv("GIFT_URL", "")
	waybill(t, "", "agent", "http", "--config", good, "--check").want(t, 1, "", "gift.yaml:2:7: the environment variable GIFT_URL is not set")
	t.Setenv("GIFT_URL", "https://gifts.example")

	// Values for flags come from the file that the environment names.
	t.Setenv("WAYBILL_CONFIG", write(t, "waybill.yaml", "namespace: a b\n"))
	waybill(t, "", "agent", "http", "--config", good).want(t, 2, "", "namespace")
	t.Setenv("WAYBILL_CONFIG", write(t, "waybill.yaml", "namespac: x\n"))
	waybill(t, "", "agent", "http", "--config", good).want(t, 2, "", `unknown key "namespac"; did you mean "namespace"?`)
	t.Setenv("WAYBILL_CONFIG", good)
	waybill(t, "", "agent", "http").want(t, 2, "", "unknown key")
}

// A1: the whole program, from a request on Kafka to the reply, and a stop in
// good order.
func TestAgentHTTP(t *testing.T) {
	clearEnvironment(t)
	var agent, uri string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		agent, uri = r.UserAgent(), r.RequestURI
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"ribbon":"red"}`)
	}))
	defer server.Close()
	cluster := kfake.MustCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "shop.requests.gift", "shop.replies"))
	defer cluster.Close()
	t.Setenv("GIFT_URL", server.URL)
	t.Setenv("WAYBILL_NAMESPACE", "shop")
	said, stop := background(t, true, "the agent serves", "agent", "http", "--config", write(t, "gift.yaml", calls),
		"--brokers", strings.Join(cluster.ListenAddrs(), ","))
	if !strings.Contains(said, "POST ${GIFT_URL}/gifts/{order}") {
		t.Errorf("the log does not say what is called:\n%s", said)
	}

	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.ConsumeTopics("shop.replies"))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	request := events.Request{
		Order: "o-1", Step: "wrap", Attempt: 1, Operation: "wrap", CompleteBy: time.Now().Add(oracle.Patience),
		IdempotencyKey: "o-1/wrap", ReplyTo: "shop.replies",
	}
	record := &kgo.Record{Topic: "shop.requests.gift", Key: []byte("o-1"), Value: request.Append(nil)}
	ctx, cancel := context.WithTimeout(t.Context(), oracle.Patience)
	defer cancel()
	if err := client.ProduceSync(ctx, record).FirstErr(); err != nil {
		t.Fatal(err)
	}
	var replies []*kgo.Record
	for len(replies) == 0 {
		fetches := client.PollRecords(ctx, 1)
		if err := fetches.Err0(); err != nil {
			t.Fatal(err)
		}
		replies = fetches.Records()
	}
	if got, want := string(replies[0].Value), `{"order":"o-1","step":"wrap","attempt":1,"status":"completed","output":{"ribbon":"red"}}`; got != want {
		t.Errorf("the reply is %s, want %s", got, want)
	}
	stop()
	if uri != "/gifts/o-1" || !strings.HasPrefix(agent, "waybill/") || strings.Contains(agent, "(") {
		t.Errorf("%q was called by %q", uri, agent)
	}
}
