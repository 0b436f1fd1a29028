package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	dto "github.com/prometheus/client_model/go"

	"github.com/waybill-dev/waybill/test/kafka"
)

const deployed = "../../deploy/"

// rulesFile is as much of a file of rules as ours has.
type rulesFile struct {
	Groups []struct {
		Name  string
		Rules []struct {
			Alert, Expr, For string
			Labels           map[string]string
			Annotations      struct {
				Summary    string
				RunbookURL string `yaml:"runbook_url"`
			}
		}
	}
}

func readRules(t *testing.T) (f rulesFile) {
	t.Helper()
	source, err := os.ReadFile(deployed + "prometheus/rules.yaml")
	if err == nil {
		err = yaml.UnmarshalWithOptions(source, &f, yaml.Strict())
	}
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// Every alert has its section in the runbook, and no section is of another.
func TestEveryAlertHasARunbook(t *testing.T) {
	page, err := os.ReadFile("../../docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	var sections, alerts []string
	for _, m := range regexp.MustCompile(`(?m)^## (.*)$`).FindAllStringSubmatch(string(page), -1) {
		sections = append(sections, m[1])
	}
	for _, g := range readRules(t).Groups {
		for _, r := range g.Rules {
			alerts = append(alerts, r.Alert)
			if want := "docs/runbook.md#" + strings.ToLower(r.Alert); r.Annotations.RunbookURL != want || r.Annotations.Summary == "" || r.Labels["severity"] == "" {
				t.Errorf("%s has the runbook %q, not %q, or no summary, or no severity", r.Alert, r.Annotations.RunbookURL, want)
			}
		}
	}
	slices.Sort(sections)
	if slices.Sort(alerts); !slices.Equal(sections, alerts) {
		t.Errorf("the runbook has sections for %v, and there are the alerts %v", sections, alerts)
	}
}

// expressions are those of the rules and of the dashboards, by where they stand.
func expressions(t *testing.T) map[string]string {
	t.Helper()
	all := make(map[string]string)
	for _, g := range readRules(t).Groups {
		for _, r := range g.Rules {
			all[r.Alert] = r.Expr
		}
	}
	boards, err := filepath.Glob(deployed + "grafana/dashboards/*.json")
	if err != nil || len(boards) != 2 {
		t.Fatalf("there are the dashboards %q: %v", boards, err)
	}
	for _, file := range boards {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var board struct {
			Panels []struct {
				Title   string `json:"title"`
				Targets []struct {
					RefID string `json:"refId"`
					Expr  string `json:"expr"`
				} `json:"targets"`
			} `json:"panels"`
		}
		if err := json.Unmarshal(source, &board); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, p := range board.Panels {
			for _, target := range p.Targets {
				all[filepath.Base(file)+": "+p.Title+" "+target.RefID] = target.Expr
			}
		}
	}
	return all
}

var metricName = regexp.MustCompile(`\b(waybill|go|process)_[a-z0-9_]+`)

// What Prometheus' own tool says of the metrics of programs that run, and of the rules; and every expression of rules
// and dashboards is evaluated on these metrics, and names none that is not among them.
func TestPrometheusTakesMetricsRulesAndDashboards(t *testing.T) {
	promtool := cmp.Or(os.Getenv("WAYBILL_PROMTOOL"), "promtool")
	if _, err := exec.LookPath(promtool); err != nil {
		kafka.LeaveOut(t, "what promtool says of metrics and rules, because it is not here (%v): install Prometheus, or say with WAYBILL_PROMTOOL where it is", err)
	}
	tool := func(input string, args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), promtool, args...)
		cmd.Stdin = strings.NewReader(input)
		if said, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %q: %v\n%s", args, err, said)
		}
	}
	clearEnvironment(t)
	server, brokers := everyMetric(t)
	shown := slices.Collect(maps.Values(settled(t, server, last...)))
	tool(exposition(t, server), "check", "metrics")
	service := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer service.Close()
	t.Setenv("GIFT_URL", service.URL)
	waybill(t, "", "workflow", "register", write(t, "w.yaml", "workflow: wrapped\nsteps:\n- {name: wrap, agent: gift}\n")).want(t, 0, "", "")
	said, stop := background(t, true, "probes and metrics are answered", "agent", "http", "--config", write(t, "gift.yaml", calls), "--brokers", brokers, "--admin-addr", "127.0.0.1:0")
	defer stop() // before its Kafka does
	waybill(t, "", "submit", "wrapped", "--id", "o-4", "--wait").want(t, 0, "Processed", "")
	admin := httpAddress.FindString(said)
	shown = slices.AppendSeq(shown, maps.Values(settled(t, admin, "waybill_agent_call_seconds")))
	tool(exposition(t, admin), "check", "metrics")
	tool("", "check", "rules", deployed+"prometheus/rules.yaml")

	series, names := make(map[string]bool), make(map[string]bool)
	for _, f := range shown {
		for _, one := range samples(f) {
			name, _, _ := strings.Cut(one, "{")
			series[one], names[name] = true, true
		}
	}
	recorded, test := "groups: [{name: all, interval: 1m, rules: [\n", "rule_files: [rules.yaml]\nevaluation_interval: 1m\ntests: [{interval: 1m, input_series: [\n"
	all := expressions(t)
	for i, where := range slices.Sorted(maps.Keys(all)) {
		for _, name := range metricName.FindAllString(all[where], -1) {
			if !names[name] {
				t.Errorf("%s: no program shows %s", where, name)
			}
		}
		recorded += fmt.Sprintf("{record: %q, expr: %q},\n", fmt.Sprint("expression:", i), all[where])
	}
	for _, one := range slices.Sorted(maps.Keys(series)) {
		test += fmt.Sprintf("{series: %q, values: '1+1x20'},\n", one)
	}
	dir := t.TempDir()
	for name, content := range map[string]string{"rules.yaml": recorded + "]}]\n", "test.yaml": test + "], promql_expr_test: [{expr: 'count(waybill_ready)', eval_time: 20m, exp_samples: [{labels: '{}', value: 1}]}]}]\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tool("", "test", "rules", filepath.Join(dir, "test.yaml"))
}

// samples are the series of a family as Prometheus names them, but for what tells buckets and quantiles apart from another.
func samples(f *dto.MetricFamily) (all []string) {
	for _, m := range f.GetMetric() {
		labels := []string{`instance="i"`}
		for _, l := range m.GetLabel() {
			labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
		}
		add := func(suffix string, more ...string) {
			all = append(all, f.GetName()+suffix+"{"+strings.Join(append(labels[:len(labels):len(labels)], more...), ",")+"}")
		}
		if m.GetHistogram() == nil {
			add("")
			continue
		}
		add("_sum")
		add("_count")
		for _, b := range m.GetHistogram().GetBucket() {
			add("_bucket", fmt.Sprintf("le=%q", fmt.Sprint(b.GetUpperBound())))
		}
	}
	return all
}

// exposition is what a program says at /metrics.
func exposition(t *testing.T, server string) string {
	t.Helper()
	answer, err := http.Get(server + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var all bytes.Buffer
	if _, err := all.ReadFrom(answer.Body); err != nil {
		t.Fatal(err)
	}
	return all.String()
}
