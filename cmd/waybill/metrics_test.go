package main

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/test/oracle"
)

// Every metric of a program that runs stands in docs/metrics.md as it says of itself what it is, and no
// other does.
func TestTheTableOfMetrics(t *testing.T) {
	clearEnvironment(t)
	server, _ := everyMetric(t)
	tabled(t, "serve", settled(t, server, last...))
}

// last are those of a program that come last.
var last = []string{"waybill_agent_replies_total", "waybill_agent_window", "waybill_attempt_seconds", "waybill_orders", "waybill_limit_taken", "waybill_orders_errored_total"}

// The same of an agent: its probes and metrics are at an address of their own.
func TestTheTableOfMetricsOfAnAgent(t *testing.T) {
	clearEnvironment(t)
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	cluster := kfake.MustCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "waybill.replies"))
	defer cluster.Close()
	t.Setenv("GIFT_URL", server.URL)
	brokers := strings.Join(cluster.ListenAddrs(), ",")
	file := write(t, "gift.yaml", calls)
	waybill(t, "", "agent", "http", "--config", file, "--brokers", brokers, "--admin-addr", "256.0.0.1:0").want(t, 1, "", "see --admin-addr")
	said, stop := background(t, true, "probes and metrics are answered", "agent", "http", "--config", file, "--brokers", brokers, "--admin-addr", "127.0.0.1:0")
	defer stop() // before its Kafka does
	admin := httpAddress.FindString(said)
	probe := func(path string) int {
		answer, err := http.Get(admin + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close() // it is not read
		return answer.StatusCode
	}
	if probe("/healthz") != http.StatusOK || probe("/readyz") != http.StatusServiceUnavailable || probe("/api/v1/orders") != http.StatusNotFound {
		t.Errorf("before its topic is there the agent is not just well: %d, %d", probe("/healthz"), probe("/readyz"))
	}
	waybill(t, "", "health", "--server", admin).want(t, 1, "", "the agent is waiting: its topic is not there")
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := kadm.NewClient(client).CreateTopic(t.Context(), 1, 1, nil, "waybill.requests.gift"); err != nil {
		t.Fatal(err)
	}
	request := events.Request{Order: "o-1", Step: "wrap", Attempt: 1, Operation: "wrap", CompleteBy: time.Now().Add(oracle.Patience), IdempotencyKey: "o-1/wrap", ReplyTo: "waybill.replies"}
	if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: "waybill.requests.gift", Key: []byte("o-1"), Value: request.Append(nil)}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	tabled(t, "agent", settled(t, admin, "waybill_agent_call_seconds", "waybill_kafka_produce_bytes_total"))
	if probe("/readyz") != http.StatusOK {
		t.Error("an agent that answers is not ready")
	}
}

// settled are the metrics of a program once these are among them, with those that are there once there was trouble.
func settled(t *testing.T, server string, wants ...string) map[string]*dto.MetricFamily {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), oracle.Patience)
	defer cancel()
	all := families(t, server)
	for slices.ContainsFunc(wants, func(name string) bool { return all[name] == nil }) {
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("not all of %q is there: %v", wants, slices.Sorted(maps.Keys(all)))
		}
		all = families(t, server)
	}
	for name, help := range trouble {
		if all[name] == nil {
			label := "node_id"
			all[name] = &dto.MetricFamily{Name: &name, Help: &help, Type: dto.MetricType_COUNTER.Enum(), Metric: []*dto.Metric{{Label: []*dto.LabelPair{{Name: &label}}}}}
		}
	}
	return all
}

// trouble is there once there was some.
var trouble = map[string]string{
	"waybill_kafka_connect_errors_total": "Total number of connection errors",
	"waybill_kafka_disconnects_total":    "Total number of connections closed",
	"waybill_kafka_read_errors_total":    "Total number of read errors",
	"waybill_kafka_write_errors_total":   "Total number of write errors",
}

// everyMetric runs a program that has a reason to show each of its metrics.
func everyMetric(t *testing.T) (server, brokers string) {
	t.Helper()
	made := waybill(t, "", "key", "namespace", "--id", "k")
	file, key := accessFile(t, "admin")
	t.Setenv("PAGER_SECRET", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	pager := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(pager.Close)
	server, brokers, _ = startDev(t, t.TempDir(), "--access", file, "--namespace-keys", write(t, "keys.yaml", "keys:\n"+made.out),
		"--webhooks", write(t, "webhooks.yaml", "webhooks: {pager: {url: '"+pager.URL+"', secret: '${PAGER_SECRET}'}}\n"))
	t.Setenv("WAYBILL_SERVER", server)
	t.Setenv("WAYBILL_TOKEN", key)
	waybill(t, "", "submit", "order-fulfilment", "--id", "o-1", "--wait").want(t, 0, "Processed", "")
	waybill(t, "", "submit", "order-fulfilment", "--id", "o-2", "--input", `{"card":"declined"}`, "--wait").want(t, 7, "", "o-2 is Error")
	waybill(t, "", "limit", "apply", write(t, "crm.yaml", "limit: crm\natATime: 2\n")).want(t, 0, "", "")
	waybill(t, "", "workflow", "register", write(t, "w.yaml", flow)).want(t, 0, "", "")
	waybill(t, "", "submit", "w", "--id", "o-3").want(t, 0, "o-3", "")
	return server, brokers
}

// families are the metrics of a program.
func families(t *testing.T, server string) map[string]*dto.MetricFamily {
	t.Helper()
	answer, err := http.Get(server + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	all, err := parser.TextToMetricFamilies(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// tabled checks that a table of docs/metrics.md says what these metrics are.
func tabled(t *testing.T, which string, all map[string]*dto.MetricFamily) {
	t.Helper()
	table := "| metric | type | unit | labels | |\n| --- | --- | --- | --- | --- |\n"
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if !strings.HasPrefix(name, "waybill_") {
			continue
		}
		f := all[name]
		labels := map[string]bool{}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				labels["`"+l.GetName()+"`"] = true
			}
		}
		table += fmt.Sprintf("| `%s` | %s | %s | %s | %s |\n", name, strings.ToLower(f.GetType().String()), unit(name),
			strings.Join(slices.Sorted(maps.Keys(labels)), ", "), strings.ReplaceAll(f.GetHelp(), "|", `\|`))
	}
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	begin, end := "<!-- metrics of "+which+" -->\n\n", "\n<!-- /metrics of "+which+" -->"
	_, written, _ := strings.Cut(string(page), begin)
	if written, _, _ = strings.Cut(written, end); written != table {
		t.Errorf("between the marks of %s in docs/metrics.md stands\n%s\nand it is\n%s", which, written, table)
	}
}

// unit is what the end of a name says.
func unit(name string) string {
	name = strings.TrimSuffix(name, "_total")
	for _, unit := range []string{"seconds", "bytes", "records"} {
		if strings.HasSuffix(name, "_"+unit) {
			return unit
		}
	}
	return ""
}
