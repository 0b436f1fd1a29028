package deploy

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	dockercontainer "github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/wait"
)

// startTimeout bounds how long one service takes to be what others wait for.
const startTimeout = 2 * time.Minute

// composeFile is as much of a compose file as ours has. It is read strictly: a
// key that is not here, and so would not be tried, is an error.
type composeFile struct {
	Name     string
	Services map[string]*composeService
	Volumes  map[string]any

	Confined     composeService `yaml:"x-confined"`
	Waybill      composeService `yaml:"x-waybill"`
	Stateless    composeService `yaml:"x-stateless"`
	Example      composeService `yaml:"x-example"`
	Orchestrator composeService `yaml:"x-orchestrator"`
}

type composeService struct {
	Profiles    []string
	Restart     string // Docker's matter
	Image       string
	PullPolicy  string `yaml:"pull_policy"`
	Command     []string
	Environment map[string]string
	Ports       []string
	Volumes     []string
	Tmpfs       []string
	DependsOn   map[string]struct{ Condition string } `yaml:"depends_on"`
	Healthcheck *struct {
		Test              []string
		Interval, Timeout time.Duration
		Retries           int
	}
	ReadOnly    bool     `yaml:"read_only"`
	CapDrop     []string `yaml:"cap_drop"`
	SecurityOpt []string `yaml:"security_opt"`
}

func readCompose(t *testing.T) *composeFile {
	t.Helper()
	source, err := os.ReadFile(filepath.Join(root, "deploy/compose.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var file composeFile
	if err := yaml.UnmarshalWithOptions(source, &file, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	return &file
}

// deployment are the services of the file, running.
type deployment struct {
	*testing.T
	file     *composeFile
	docker   *testcontainers.DockerClient
	provider testcontainers.GenericProvider
	network  string
	running  map[string]testcontainers.Container
}

// up starts all services that are of no profile, each when what it depends on is as far as it asks for.
func up(t *testing.T, docker *testcontainers.DockerClient) *deployment {
	t.Helper()
	d := &deployment{T: t, file: readCompose(t), docker: docker, network: "waybill-test-" + run, running: make(map[string]testcontainers.Container)}
	var err error
	if d.provider, err = testcontainers.ProviderDefault.GetProvider(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.provider.Close() })
	if _, err := docker.NetworkCreate(t.Context(), d.network, client.NetworkCreateOptions{Labels: map[string]string{label: run}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.down)
	for _, name := range slices.Sorted(maps.Keys(d.file.Services)) {
		if len(d.file.Services[name].Profiles) == 0 {
			d.start(name)
		}
	}
	return d
}

// down removes the containers. What it does not reach is the reaper's.
func (d *deployment) down() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for name, c := range d.running {
		if d.Failed() {
			d.Logf("the end of the log of %s:\n%s", name, d.log(ctx, c))
		}
		if _, err := d.docker.ContainerRemove(ctx, c.GetContainerID(), client.ContainerRemoveOptions{RemoveVolumes: true, Force: true}); err != nil {
			d.Errorf("removing %s: %v", name, err)
		}
	}
	if _, err := d.docker.NetworkRemove(ctx, d.network, client.NetworkRemoveOptions{}); err != nil {
		d.Errorf("removing the network: %v", err)
	}
}

func (d *deployment) log(ctx context.Context, c testcontainers.Container) string {
	logs, err := c.Logs(ctx)
	if err != nil {
		return err.Error()
	}
	defer logs.Close()
	text, err := io.ReadAll(logs)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-2048):])
}

// start starts a service and those that it depends on.
func (d *deployment) start(name string) {
	d.Helper()
	if _, ok := d.running[name]; ok {
		return
	}
	service := d.file.Services[name]
	if service == nil {
		d.Fatalf("there is no service %q", name)
	}
	for other := range service.DependsOn {
		d.start(other)
	}
	began := time.Now()
	c, err := d.provider.RunContainer(d.Context(), d.request(name, service))
	if c != nil {
		d.running[name] = c
	}
	if err != nil {
		d.Fatalf("starting %s: %v", name, err)
	}
	if d.awaited(name) == "service_completed_successfully" {
		if state, err := c.State(d.Context()); err != nil || state.ExitCode != 0 {
			d.Fatalf("%s ended with exit code %d, %v", name, state.ExitCode, err)
		}
	}
	d.Logf("%s: %s after %s", name, cmp.Or(d.awaited(name), "service_started"), time.Since(began).Round(time.Millisecond))
}

// awaited is what the other services want of one.
func (d *deployment) awaited(name string) string {
	for _, other := range d.file.Services {
		if on, ok := other.DependsOn[name]; ok {
			return on.Condition
		}
	}
	return ""
}

// request is a service as testcontainers takes it. Host ports are free ones, and
// named volumes have no name, so that nobody's own deployment is met.
func (d *deployment) request(name string, service *composeService) testcontainers.ContainerRequest {
	d.Helper()
	r := testcontainers.ContainerRequest{
		Image:          d.image(service.Image),
		Cmd:            service.Command,
		Env:            service.Environment,
		Labels:         map[string]string{label: run},
		Networks:       []string{d.network},
		NetworkAliases: map[string][]string{d.network: {name}},
	}
	ports := network.PortMap{}
	for _, p := range service.Ports {
		host, inside, _ := cutLast(p, ":")
		if !strings.HasPrefix(host, "127.0.0.1:") {
			d.Errorf("%s: port %s is open to other machines", name, p)
		}
		port := network.MustParsePort(inside + "/tcp")
		r.ExposedPorts = append(r.ExposedPorts, port.String())
		ports[port] = []network.PortBinding{{HostIP: netip.MustParseAddr("127.0.0.1")}}
	}
	r.ConfigModifier = func(c *dockercontainer.Config) {
		if h := service.Healthcheck; h != nil {
			c.Healthcheck = &dockercontainer.HealthConfig{Test: h.Test, Interval: h.Interval, Timeout: h.Timeout, Retries: h.Retries}
		}
	}
	r.HostConfigModifier = func(c *dockercontainer.HostConfig) {
		c.PortBindings, c.ReadonlyRootfs, c.CapDrop, c.SecurityOpt = ports, service.ReadOnly, service.CapDrop, service.SecurityOpt
		c.Mounts = d.mounts(service.Volumes)
		c.Tmpfs = make(map[string]string)
		for _, t := range service.Tmpfs {
			path, options, _ := strings.Cut(t, ":")
			c.Tmpfs[path] = options
		}
	}
	switch d.awaited(name) {
	case "service_healthy":
		r.WaitingFor = wait.ForHealthCheck().WithStartupTimeout(startTimeout)
	case "service_completed_successfully":
		r.WaitingFor = wait.ForExit().WithExitTimeout(startTimeout)
	}
	return r
}

var variable = regexp.MustCompile(`\$\{(\w+):-[^}]*\}`)

// image sets the variables that stand in the names of images.
func (d *deployment) image(name string) string {
	return variable.ReplaceAllStringFunc(name, func(v string) string {
		switch variable.FindStringSubmatch(v)[1] {
		case "WAYBILL_IMAGE":
			return waybillImage
		case "WAYBILL_EXAMPLE_IMAGE":
			return exampleImage
		}
		d.Errorf("%s: nobody documented the variable", v)
		return v
	})
}

func (d *deployment) mounts(volumes []string) []mount.Mount {
	var all []mount.Mount
	for _, v := range volumes {
		v, readOnly := strings.CutSuffix(v, ":ro")
		source, target, _ := strings.Cut(v, ":")
		if _, named := d.file.Volumes[source]; named {
			all = append(all, mount.Mount{Type: mount.TypeVolume, Target: target})
			continue
		}
		path, err := filepath.Abs(filepath.Join(root, "deploy", source))
		if err != nil {
			d.Error(err)
		}
		all = append(all, mount.Mount{Type: mount.TypeBind, Source: path, Target: target, ReadOnly: readOnly})
	}
	return all
}

// url is where a port of a service is reached from this machine: ports are bound
// to its own address, whatever testcontainers takes for the engine's.
func (d *deployment) url(name string, port int) string {
	d.Helper()
	mapped, err := d.running[name].MappedPort(d.Context(), fmt.Sprintf("%d/tcp", port))
	if err != nil {
		d.Fatal(err)
	}
	return "http://127.0.0.1:" + mapped.Port()
}

// get reads a page of a service.
func (d *deployment) get(url string) string {
	d.Helper()
	response, err := http.Get(url)
	if err != nil {
		d.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		d.Fatal(err)
	}
	return string(text)
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}
