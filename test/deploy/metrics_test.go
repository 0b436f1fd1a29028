package deploy

import (
	"encoding/json"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// below finds what a container of a service sees at a path, among what the file mounts for it; "" where that
// is nothing. What is mounted from here must be there, and not be written to.
func (s *composeService) below(t *testing.T, at string) (found string) {
	t.Helper()
	for _, volume := range s.Volumes {
		from, to, _ := strings.Cut(volume, ":")
		to, mode, _ := strings.Cut(to, ":")
		if !strings.HasPrefix(from, ".") {
			continue // one of its own
		}
		here := filepath.Join(root, "deploy", from)
		if _, err := os.Stat(here); err != nil || mode != "ro" {
			t.Errorf("%s: %v", volume, err)
		}
		if at == to || strings.HasPrefix(at, to+"/") {
			found = filepath.Join(here, strings.TrimPrefix(at, to))
		}
	}
	return found
}

func readYAML(t *testing.T, name string, into any) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// The profile with Prometheus and Grafana mounts what is there, asks services that are there, and shows every dashboard:
// this needs no Docker.
func TestTheProfileOfMetrics(t *testing.T) {
	file := readCompose(t)
	var profiled []string
	for name, s := range file.Services {
		for _, profile := range s.Profiles {
			profiled = append(profiled, profile+"/"+name)
		}
		s.below(t, "")
		for other := range s.DependsOn {
			if file.Services[other] == nil || len(s.Profiles) == 0 && len(file.Services[other].Profiles) > 0 {
				t.Errorf("%s needs %s, which is not there", name, other)
			}
		}
	}
	if slices.Sort(profiled); !slices.Equal(profiled, []string{"metrics/grafana", "metrics/prometheus"}) {
		t.Fatalf("the profiles have %q", profiled)
	}

	prometheus, grafana := file.Services["prometheus"], file.Services["grafana"]
	listens := map[string]string{"prometheus": "9090"} // services that answer about metrics, and where
	for name, s := range file.Services {
		switch {
		case slices.Contains(s.Command, "serve"):
			listens[name] = "8080"
		case s.Environment["WAYBILL_ADMIN_ADDR"] != "":
			listens[name] = strings.TrimPrefix(s.Environment["WAYBILL_ADMIN_ADDR"], ":")
		}
	}
	var config struct {
		Rules  []string `yaml:"rule_files"`
		Scrape []struct {
			Static []struct {
				Targets []string
			} `yaml:"static_configs"`
		} `yaml:"scrape_configs"`
	}
	named, _, _ := strings.Cut(strings.Join(prometheus.Command, " ")+" ", " ")
	at := strings.TrimPrefix(named, "--config.file=")
	readYAML(t, prometheus.below(t, at), &config)
	for _, rules := range config.Rules {
		readYAML(t, prometheus.below(t, path.Join(path.Dir(at), rules)), new(map[string]any))
	}
	// Its image has the directory, which is nobody's: as whom Prometheus runs. What is mounted over it is root's, with the same
	// mode, if it does not say whose it is.
	_, stored, _ := strings.Cut(strings.Join(prometheus.Command, " ")+" ", "--storage.tsdb.path=")
	if stored, _, _ = strings.Cut(stored, " "); !slices.Contains(prometheus.Tmpfs, stored+":uid=65534,gid=65534") {
		t.Errorf("Prometheus cannot write to %q: it has %q", stored, prometheus.Tmpfs)
	}
	var asked []string
	for _, job := range config.Scrape {
		for _, static := range job.Static {
			asked = append(asked, static.Targets...)
		}
	}
	want := []string{}
	for name, port := range listens {
		if name != "prometheus" {
			want = append(want, name+":"+port)
		}
	}
	if slices.Sort(asked); !slices.Equal(asked, slices.Sorted(slices.Values(want))) || len(config.Rules) == 0 {
		t.Errorf("Prometheus asks %q of %q, with the rules %q", asked, want, config.Rules)
	}

	var sources struct {
		Datasources []struct{ Type, URL string }
	}
	readYAML(t, grafana.below(t, "/etc/grafana/provisioning/datasources/prometheus.yaml"), &sources)
	for _, source := range sources.Datasources {
		if u, err := url.Parse(source.URL); err != nil || listens[u.Hostname()] != u.Port() || source.Type != "prometheus" {
			t.Errorf("Grafana asks %+v: %v", source, err)
		}
	}
	var dashboards struct {
		Providers []struct {
			Type    string
			Options struct{ Path string }
		}
	}
	readYAML(t, grafana.below(t, "/etc/grafana/provisioning/dashboards/waybill.yaml"), &dashboards)
	if len(sources.Datasources) != 1 || len(dashboards.Providers) != 1 {
		t.Fatalf("Grafana is provided with %+v, %+v", sources, dashboards)
	}
	shown := grafana.below(t, dashboards.Providers[0].Options.Path)
	all, err := filepath.Glob(filepath.Join(root, "deploy/grafana/dashboards/*.json"))
	if err != nil || len(all) < 2 || dashboards.Providers[0].Type != "file" {
		t.Errorf("%q, %+v: %v", all, dashboards, err)
	}
	for _, name := range all {
		text, err := os.ReadFile(filepath.Join(shown, filepath.Base(name)))
		if err != nil || !json.Valid(text) {
			t.Errorf("%s is not shown: %v", name, err)
		}
	}
}
