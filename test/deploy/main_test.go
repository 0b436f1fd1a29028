package deploy

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/log"
	"go.uber.org/goleak"
)

// reaperVariable in the environment turns the test binary into its own reaper.
const reaperVariable = "WAYBILL_TEST_DEPLOY_REAPER"

// label marks everything that a run makes in the Docker engine; its value is the
// run.
const label = "dev.waybill.test.deploy"

// run is the name of this run.
var run = strings.ToLower(rand.Text()[:12])

// reapTimeout bounds how long the reaper tries.
const reapTimeout = 2 * time.Minute

func TestMain(m *testing.M) {
	log.SetDefault(log.NewNoopLogger())
	if reaped := os.Getenv(reaperVariable); reaped != "" {
		os.Exit(reap(reaped))
	}
	os.Exit(runTests(m))
}

// runTests runs the tests beside a child, the same binary, that removes what they
// made once this process has ended, in whatever way it ends: a panic, a time-out
// of go test or a kill run no deferred function. The child waits for the end of
// its standard input, which the system closes for a process that no longer can.
func runTests(m *testing.M) int {
	// Our own reaper needs no privileged container and no second image.
	if err := os.Setenv("TESTCONTAINERS_RYUK_DISABLED", "true"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	binary, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	child := exec.Command(binary)
	child.Env = append(os.Environ(), reaperVariable+"="+run)
	child.Stderr = os.Stderr // with it, go test waits for the reaper too
	pipe, err := child.StdinPipe()
	if err == nil {
		err = child.Start()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "starting the reaper:", err)
		return 1
	}
	code := m.Run()
	if err := errors.Join(pipe.Close(), child.Wait()); err != nil {
		code = max(code, 1)
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, "the tests left goroutines behind:", err)
			code = 1
		}
	}
	return code
}

// reap removes what a run made once standard input has ended, and returns the
// exit code.
func reap(run string) int {
	// Ctrl-C reaches every process of the terminal, and is when we are needed.
	signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	_, _ = io.Copy(io.Discard, os.Stdin)
	ctx, cancel := context.WithTimeout(context.Background(), reapTimeout)
	defer cancel()
	docker, err := testcontainers.NewDockerClientWithOpts(ctx)
	if err != nil {
		return 0 // there is no engine, so nothing was made
	}
	defer docker.Close()
	if err := removeAll(ctx, docker, run); err != nil {
		fmt.Fprintf(os.Stderr, "what is labelled %s=%s is left behind: %v\n", label, run, err)
		return 1
	}
	return 0
}

// made lists what a run has in the engine: containers, networks, images.
func made(ctx context.Context, docker *testcontainers.DockerClient, run string) (containers, networks, images []string, err error) {
	of := make(client.Filters).Add("label", label+"="+run)
	c, err := docker.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: of})
	if err != nil {
		return nil, nil, nil, err
	}
	for i := range c.Items {
		containers = append(containers, c.Items[i].ID)
	}
	n, err := docker.NetworkList(ctx, client.NetworkListOptions{Filters: of})
	if err != nil {
		return nil, nil, nil, err
	}
	for i := range n.Items {
		networks = append(networks, n.Items[i].ID)
	}
	i, err := docker.ImageList(ctx, client.ImageListOptions{Filters: of})
	if err != nil {
		return nil, nil, nil, err
	}
	for k := range i.Items {
		images = append(images, i.Items[k].ID)
	}
	return containers, networks, images, nil
}

func removeAll(ctx context.Context, docker *testcontainers.DockerClient, run string) error {
	containers, networks, images, err := made(ctx, docker, run)
	if err != nil {
		if client.IsErrConnectionFailed(err) {
			return nil
		}
		return err
	}
	var failed error
	note := func(err error) {
		if err != nil && !errdefs.IsNotFound(err) {
			failed = errors.Join(failed, err)
		}
	}
	for _, id := range containers {
		_, err := docker.ContainerRemove(ctx, id, client.ContainerRemoveOptions{RemoveVolumes: true, Force: true})
		note(err)
	}
	for _, id := range networks {
		_, err := docker.NetworkRemove(ctx, id, client.NetworkRemoveOptions{})
		note(err)
	}
	for _, id := range images {
		_, err := docker.ImageRemove(ctx, id, client.ImageRemoveOptions{Force: true, PruneChildren: true})
		note(err)
	}
	return failed
}
