//go:build unix

// Package process tries waybill as a program: real processes that are killed,
// stopped and started again, on the embedded broker and on Apache Kafka.
package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/test/child"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/oracle"
	"github.com/waybill-dev/waybill/test/world"
)

func TestMain(m *testing.M) {
	work()
	kafka.Main(m)
}

func command(ctx context.Context, t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	program, err := child.Waybill()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = t.TempDir() // where it writes if it writes where it should not
	cmd.SysProcAttr = child.DieWithUs()
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "WAYBILL_") })
	return cmd
}

// waybill runs a command to its end, wants that it succeeds, and returns what it
// printed.
func waybill(t *testing.T, args ...string) string {
	t.Helper()
	return waybillWithin(t, oracle.Patience, args...)
}

func waybillWithin(t *testing.T, patience time.Duration, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := command(ctx, t, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("waybill %q: %v\n%s%s", args, err, &stdout, &stderr)
	}
	return stdout.String()
}

// process is a waybill, or another program, that runs until it is stopped, at the latest when the
// test ends.
type process struct {
	*testing.T
	name  string
	cmd   *exec.Cmd
	log   *world.Log
	ended chan struct{}
	began time.Time
}

func start(t *testing.T, name string, args ...string) *process {
	t.Helper()
	return startOf(t, "", name, args...)
}

// startOf starts the program of another release; empty is that of this one.
func startOf(t *testing.T, program, name string, args ...string) *process {
	t.Helper()
	cmd := command(context.Background(), t, args...)
	if program != "" {
		cmd.Path, cmd.Args[0] = program, program
	}
	return startCommand(t, name, cmd)
}

func startCommand(t *testing.T, name string, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{T: t, name: name, cmd: cmd, log: &world.Log{}, ended: make(chan struct{}), began: time.Now()}
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait() // ProcessState has it
	}()
	t.Cleanup(func() {
		if t.Failed() {
			_ = p.cmd.Process.Signal(syscall.SIGQUIT) // the log then has what every goroutine waits for
			select {
			case <-p.ended:
			case <-time.After(10 * time.Second): // it may be stopped
			}
		}
		p.kill()
		if said := p.log.String(); strings.Contains(said, "DATA RACE") {
			t.Errorf("%s has a data race", name)
		}
		if t.Failed() {
			t.Logf("what %s (process %d) said:\n%s", name, p.cmd.Process.Pid, p.log)
		}
	})
	return p
}

// kill ends the process as a crash does: nothing of it runs any more.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.ended
}

// stop ends the process as an orderly shutdown does.
func (p *process) stop() {
	p.Helper()
	p.signal(syscall.SIGTERM)
	p.exits(0)
}

// exits waits until the process has ended by itself, with the code.
func (p *process) exits(code int) {
	p.Helper()
	select {
	case <-p.ended:
	case <-time.After(oracle.Patience):
		p.Fatalf("%s does not end", p.name)
	}
	if got := p.cmd.ProcessState.ExitCode(); got != code {
		p.Fatalf("%s: %s instead of exit code %d", p.name, p.cmd.ProcessState, code)
	}
}

func (p *process) signal(s syscall.Signal) {
	p.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.Fatalf("%s: %s: %v", p.name, s, err)
	}
}

// until waits for a condition while the process runs.
func (p *process) until(what string, check func() error) {
	p.Helper()
	p.within(oracle.Patience, what, check)
}

func (p *process) within(patience time.Duration, what string, check func() error) {
	p.Helper()
	oracle.Within(p.T, patience, what, func() error {
		select {
		case <-p.ended:
			p.Fatalf("%s, but %s ended: %s", what, p.name, p.cmd.ProcessState)
		default:
		}
		return check()
	})
}

// ready waits until the process serves all partitions that it was given.
func (p *process) ready(client *api.Client) {
	p.Helper()
	p.until(p.name+" is ready", func() error { return client.Ready(p.Context()) })
	p.Logf("%s is ready %s after its start", p.name, time.Since(p.began).Round(time.Millisecond))
}

// notReady wants that the process answers, and says why it serves nothing.
func (p *process) notReady(client *api.Client) {
	p.Helper()
	var problem *api.Problem
	if err := client.Ready(p.Context()); !errors.As(err, &problem) || problem.Status != http.StatusServiceUnavailable {
		p.Errorf("%s: readyz: %v", p.name, err)
	}
}

// says waits until the process has written text.
func (p *process) says(text string) {
	p.Helper()
	p.until(fmt.Sprintf("%s says %q", p.name, text), func() error {
		if !strings.Contains(p.log.String(), text) {
			return errors.New("it does not")
		}
		return nil
	})
}

func clientOf(t *testing.T, address string) *api.Client {
	t.Helper()
	client, err := api.NewClient(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}
