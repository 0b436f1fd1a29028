package kafka

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/log"
	"go.uber.org/goleak"
)

// reaperVariable in the environment turns a test binary into its own reaper.
const reaperVariable = "WAYBILL_TEST_KAFKA_REAPER"

// removeTimeout bounds how long a reaper tries to remove a container.
const removeTimeout = time.Minute

// Main runs the tests of a package that may use [Container], removes the
// container, looks for goroutines that the tests left behind, and exits. Call
// it from TestMain before all else: the binary runs once more as its own reaper
// and goes no further than here. Options are goleak's, for packages whose
// libraries keep goroutines.
//
// Tests that wait for others most of the time say t.Parallel: more of them run side by
// side than there are processors. Those that measure out their deadlines run alone.
func Main(m *testing.M, options ...goleak.Option) {
	Reap()
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	reaper = &reaping{}
	code := m.Run()
	if err := errors.Join(closeShared(), reaper.finish()); err != nil {
		fmt.Fprintln(os.Stderr, "removing the Kafka container:", err)
		code = max(code, 1)
	}
	if code == 0 {
		if err := goleak.Find(options...); err != nil {
			fmt.Fprintln(os.Stderr, "the tests left goroutines behind:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// Reap ends here if this process is the reaper of another, once that has ended.
func Reap() {
	log.SetDefault(log.NewNoopLogger())
	if os.Getenv(reaperVariable) != "" {
		os.Exit(reap(os.Stdin))
	}
}

// reaper is this process's, once Main or Share runs.
var reaper *reaping

// reaping removes containers when this process ends, in whatever way it ends:
// a panic, a time-out of go test or a kill run no deferred function. So the
// removing is done by a child, the same binary, which waits for its standard
// input to end. The system closes that pipe for a process that no longer can.
type reaping struct {
	mu    sync.Mutex
	child *exec.Cmd
	pipe  io.WriteCloser
}

// watch gives the reaper the name of a container to come.
func (r *reaping) watch() (name string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.child == nil {
		if err := r.start(); err != nil {
			return "", fmt.Errorf("starting the reaper: %w", err)
		}
	}
	name = "waybill-test-kafka-" + strings.ToLower(rand.Text()[:12])
	if _, err := fmt.Fprintln(r.pipe, name); err != nil {
		return "", fmt.Errorf("telling the reaper: %w", err)
	}
	return name, nil
}

func (r *reaping) start() error {
	binary, err := os.Executable()
	if err != nil {
		return err
	}
	child := exec.Command(binary) //nolint:noctx // it must outlive every context of this process
	child.Env = append(os.Environ(), reaperVariable+"=1")
	// With our standard error, go test waits for the reaper too.
	child.Stderr = os.Stderr
	if r.pipe, err = child.StdinPipe(); err != nil {
		return err
	}
	r.child = child
	return child.Start()
}

// closeShared lets go of the shared container. Removing it is the reaper's.
func closeShared() error {
	if shared.own == nil {
		return nil
	}
	return shared.own.docker.Close()
}

// finish has the reaper remove its containers, and waits for it.
func (r *reaping) finish() error {
	if r.child == nil {
		return nil
	}
	if err := r.pipe.Close(); err != nil {
		return err
	}
	return r.child.Wait()
}

// reap removes the containers named in input once input has ended. It returns
// the reaper's exit code.
func reap(input io.Reader) int {
	// Ctrl-C, a closed terminal and a time-out reach a whole group of processes,
	// and are when we are needed.
	signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	var names []string
	for lines := bufio.NewScanner(input); lines.Scan(); {
		names = append(names, lines.Text())
	}
	ctx, cancel := context.WithTimeout(context.Background(), removeTimeout)
	defer cancel()
	code := 0
	for _, name := range names {
		if err := remove(ctx, name); err != nil {
			fmt.Fprintf(os.Stderr, "container %s is left behind: %v\n", name, err)
			code = 1
		}
	}
	return code
}

func remove(ctx context.Context, name string) error {
	docker, err := testcontainers.NewDockerClientWithOpts(ctx)
	if err != nil {
		return err
	}
	defer docker.Close()
	_, err = docker.ContainerRemove(ctx, name, client.ContainerRemoveOptions{RemoveVolumes: true, Force: true})
	if errdefs.IsNotFound(err) {
		return nil // it never came to be
	}
	return err
}
