package main

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/waybill-dev/waybill/test/oracle"
)

// Every metric of a program that runs stands in docs/metrics.md as it says of itself what it is, and no
// other does.
func TestTheTableOfMetrics(t *testing.T) {
	clearEnvironment(t)
	server := everyMetric(t)
	wants := []string{"waybill_agent_replies_total", "waybill_agent_window", "waybill_attempt_seconds", "waybill_orders", "waybill_limit_taken", "waybill_orders_errored_total"}
	ctx, cancel := context.WithTimeout(t.Context(), oracle.Patience)
	defer cancel()
	all := families(t, server)
	for !shows(all, wants) {
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
	tabled(t, "serve", all)
}

// trouble is there once there was some.
var trouble = map[string]string{
	"waybill_kafka_connect_errors_total": "Total number of connection errors",
	"waybill_kafka_disconnects_total":    "Total number of connections closed",
	"waybill_kafka_read_errors_total":    "Total number of read errors",
	"waybill_kafka_write_errors_total":   "Total number of write errors",
}

func shows(all map[string]*dto.MetricFamily, wants []string) bool {
	return !slices.ContainsFunc(wants, func(name string) bool { return all[name] == nil })
}

// everyMetric runs a program that has a reason to show each of its metrics.
func everyMetric(t *testing.T) (server string) {
	t.Helper()
	made := waybill(t, "", "key", "namespace", "--id", "k")
	file, key := accessFile(t, "admin")
	server, _, _ = startDev(t, t.TempDir(), "--access", file, "--namespace-keys", write(t, "keys.yaml", "keys:\n"+made.out))
	t.Setenv("WAYBILL_SERVER", server)
	t.Setenv("WAYBILL_TOKEN", key)
	waybill(t, "", "submit", "order-fulfilment", "--id", "o-1", "--wait").want(t, 0, "Processed", "")
	waybill(t, "", "submit", "order-fulfilment", "--id", "o-2", "--input", `{"card":"declined"}`, "--wait").want(t, 7, "", "o-2 is Error")
	waybill(t, "", "limit", "apply", write(t, "crm.yaml", "limit: crm\natATime: 2\n")).want(t, 0, "", "")
	waybill(t, "", "workflow", "register", write(t, "w.yaml", flow)).want(t, 0, "", "")
	waybill(t, "", "submit", "w", "--id", "o-3").want(t, 0, "o-3", "")
	return server
}

// families are the metrics of a program, but for those that are not Waybill's own.
func families(t *testing.T, server string) map[string]*dto.MetricFamily {
	t.Helper()
	answer, err := http.Get(server + "/metrics") //nolint:gosec,noctx // it is the test's own
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	all, err := parser.TextToMetricFamilies(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	maps.DeleteFunc(all, func(name string, _ *dto.MetricFamily) bool {
		return strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") || strings.HasPrefix(name, "promhttp_")
	})
	return all
}

// tabled checks that a table of docs/metrics.md says what these metrics are.
func tabled(t *testing.T, which string, all map[string]*dto.MetricFamily) {
	t.Helper()
	table := "| metric | type | unit | labels | |\n| --- | --- | --- | --- | --- |\n"
	for _, name := range slices.Sorted(maps.Keys(all)) {
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
