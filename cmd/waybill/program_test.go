package main

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/waybill-dev/waybill/test/child"
)

// startProgram is [startDev] of the program that people have: built, and as a process of its own.
func startProgram(t *testing.T, dir string, args ...string) (server, brokers string, stop func()) {
	t.Helper()
	program, err := child.Waybill()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, append([]string{"dev", "--data-dir", dir, "--kafka-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0"}, args...)...)
	cmd.Dir, cmd.SysProcAttr = t.TempDir(), child.DieWithUs()
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, envPrefix) })
	log := new(bytes.Buffer)
	cmd.Stderr = log
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		_ = cmd.Process.Signal(os.Interrupt) // it may have ended, which is seen below
		<-ended
		if err := cmd.Wait(); err != nil {
			t.Errorf("waybill dev ended with %v", err)
		}
		if t.Failed() {
			t.Logf("waybill dev said:\n%s", log)
		}
	}
	t.Cleanup(stop)
	lines, said := bufio.NewScanner(out), ""
	for !strings.Contains(said, "Ctrl-C") && lines.Scan() {
		said += lines.Text() + "\n"
	}
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, out) // until it ends
	}()
	kafka := kafkaAddress.FindStringSubmatch(said)
	if kafka == nil {
		t.Fatalf("waybill dev did not begin:\n%s", said)
	}
	return httpAddress.FindString(said), kafka[1], stop
}
