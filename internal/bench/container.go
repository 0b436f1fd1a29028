package bench

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

// container is one that Docker runs on this machine.
type container struct {
	name   string
	client http.Client
}

// consumption is what a container has used.
type consumption struct {
	at     time.Time
	cpu    time.Duration
	memory float64 // MiB
}

// newContainer asks nothing yet. Docker is where DOCKER_HOST says.
func newContainer(name string) (*container, error) {
	host := cmp.Or(os.Getenv("DOCKER_HOST"), "unix:///var/run/docker.sock")
	socket, ok := strings.CutPrefix(host, "unix://")
	if !ok {
		return nil, fmt.Errorf("DOCKER_HOST is %s, and Docker is asked only on this machine: let it name a socket as unix:///path", host)
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	return &container{name, http.Client{Transport: &http.Transport{DialContext: dial}}}, nil
}

func (c *container) close() { c.client.CloseIdleConnections() }

// read takes a few milliseconds.
func (c *container) read(ctx context.Context) (*consumption, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	ask, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://docker/containers/"+url.PathEscape(c.name)+"/stats?stream=false&one-shot=true", http.NoBody)
	if err != nil {
		return nil, err
	}
	answer, err := c.client.Do(ask)
	if err != nil {
		return nil, fmt.Errorf("what container %s uses: %w", c.name, err)
	}
	defer answer.Body.Close()
	var said struct {
		Message string    `json:"message"`
		Read    time.Time `json:"read"`
		CPU     struct {
			Usage struct {
				Total int64 `json:"total_usage"` // ns
			} `json:"cpu_usage"`
		} `json:"cpu_stats"`
		Memory struct {
			Usage int64 `json:"usage"`
			Stats struct {
				V2 int64 `json:"inactive_file"`
				V1 int64 `json:"total_inactive_file"` // with those of what is in the container
			} `json:"stats"`
		} `json:"memory_stats"`
	}
	err = json.NewDecoder(answer.Body).Decode(&said)
	switch {
	case answer.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("what container %s uses: Docker says %s: %s", c.name, answer.Status, said.Message)
	case err != nil:
		return nil, fmt.Errorf("what container %s uses: %w", c.name, err)
	case said.CPU.Usage.Total == 0:
		return nil, fmt.Errorf("what container %s uses: Docker does not say; does it run?", c.name)
	}
	idle := cmp.Or(said.Memory.Stats.V1, said.Memory.Stats.V2)
	return &consumption{said.Read, time.Duration(said.CPU.Usage.Total), float64(said.Memory.Usage-idle) / (1 << 20)}, nil
}

// since is what was used since before, while so many orders ended.
func (c *consumption) since(before *consumption, orders int) *Usage {
	cpu := c.cpu - before.cpu
	u := &Usage{CPU: cpu.Seconds() / c.at.Sub(before.at).Seconds(), Memory: c.memory}
	if orders > 0 {
		u.CPUPerOrder = float64(cpu.Microseconds()) / float64(orders)
	}
	return u
}
