package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/waybill-dev/waybill/test/kafka"
)

// terminal is a new terminal: what a program sees of it, and what makes it go away.
func terminal(t *testing.T) (program, window *os.File) {
	t.Helper()
	window, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		kafka.LeaveOut(t, "what becomes of an act whose terminal goes away, because no terminal can be had: %v", err)
	}
	t.Cleanup(func() { _ = window.Close() }) // it may be closed
	if err := unix.IoctlSetPointerInt(int(window.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(window.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if program, err = os.OpenFile(fmt.Sprint("/dev/pts/", n), os.O_RDWR|syscall.O_NOCTTY, 0); err != nil {
		kafka.LeaveOut(t, "what becomes of an act whose terminal goes away, because no terminal can be had: %v", err)
	}
	return program, window
}

// Whoever closes the terminal in which a bulk act is followed has it be stopped, as by Ctrl-C.
func TestATerminalThatGoesAway(t *testing.T) {
	clearEnvironment(t)
	screen, window := terminal(t)
	defer screen.Close()
	var once sync.Once
	var stopped atomic.Bool
	mux := http.NewServeMux()
	answers := func(path, state string, more ...string) {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, standing(state, more...)) })
	}
	answers("POST /api/v1/bulk", "prepared")
	answers("POST /api/v1/bulk/b-1/start", "running")
	mux.HandleFunc("POST /api/v1/bulk/b-1/stop", func(w http.ResponseWriter, _ *http.Request) {
		stopped.Store(true)
		fmt.Fprint(w, standing("stopped"))
	})
	mux.HandleFunc("GET /api/v1/bulk/b-1", func(w http.ResponseWriter, _ *http.Request) {
		if stopped.Load() {
			fmt.Fprint(w, standing("stopped", ended, `"reason":"by you"`))
			return
		}
		once.Do(func() {
			if err := window.Close(); err != nil {
				t.Error(err)
			}
		})
		fmt.Fprint(w, standing("running", `"done":1`))
	})
	mux.HandleFunc("GET /api/v1/bulk/b-1/orders", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, strings.Replace(outcomes, `,"next":2`, "", 1))
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	program := exec.Command(os.Args[0], "order", "cancel", "--workflow", "w", "--yes", "--server", server.URL)
	program.Env = append(os.Environ(), asProgram+"=1")
	program.Stdin, program.Stdout, program.Stderr = screen, screen, screen
	program.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	err := program.Run()
	if ended, is := errors.AsType[*exec.ExitError](err); !is || !ended.Exited() || !stopped.Load() {
		t.Errorf("it ends with %v, and the act is stopped: %v", err, stopped.Load())
	}
}
