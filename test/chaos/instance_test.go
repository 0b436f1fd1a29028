//go:build unix

package chaos

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/test/child"
)

// instance is a `waybill serve` that is started again whenever it ends, by the
// one who ended it, or as a process supervisor would.
type instance struct {
	*testing.T
	name    string
	program string
	args    []string
	dir     string // of its state store
	full    bool   // the directory is on a file system of its own, that can be filled
	log     string
	http    string
	client  *api.Client
	network network

	mu     sync.Mutex
	clock  *rand.Rand // draws how wrong its clock is at each start; nil if it is right
	starts []started
	wanted bool
	cmd    *exec.Cmd
	ended  chan struct{}
	// Died counts how often it ended without being asked.
	died int
}

func (i *instance) up() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.wanted = true
	i.spawn()
}

// spawn starts the process. Whoever calls holds the lock.
func (i *instance) spawn() {
	log, err := os.OpenFile(i.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		i.Error(err)
		return
	}
	defer log.Close()
	cmd := exec.Command(i.program, i.args...)
	cmd.Dir = filepath.Dir(i.log)
	cmd.SysProcAttr = child.DieWithUs()
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "WAYBILL_") })
	start := started{at: time.Now()}
	if i.clock != nil {
		start.offset = drawOffset(i.clock)
		cmd.Env = append(cmd.Env, "WAYBILL_CLOCK_OFFSET="+start.offset.String())
	}
	i.starts = append(i.starts, start)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		i.Errorf("%s: %v", i.name, err)
		return
	}
	ended := make(chan struct{})
	i.cmd, i.ended = cmd, ended
	go func() {
		_ = cmd.Wait() // ProcessState has it
		close(ended)
		i.mu.Lock()
		defer i.mu.Unlock()
		if !i.wanted || i.cmd != cmd {
			return
		}
		i.died++
		note(i.log, fmt.Sprintf("the instance ended by itself: %s", cmd.ProcessState))
		time.AfterFunc(time.Second, func() {
			i.mu.Lock()
			defer i.mu.Unlock()
			if i.wanted && i.cmd == cmd {
				i.spawn()
			}
		})
	}()
}

// note writes a line of ours among those of the instance.
func note(file, text string) {
	log, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return // the log is for people
	}
	defer log.Close()
	fmt.Fprintf(log, "time=%s level=CHAOS msg=%q\n", time.Now().Format("2006-01-02T15:04:05.000Z07:00"), text)
}

func (i *instance) signal(s syscall.Signal) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.cmd != nil {
		_ = i.cmd.Process.Signal(s) // it may have ended
	}
}

// down ends the process with a signal, and by force if it does not end by then.
// It says whether it ended well.
func (i *instance) down(s syscall.Signal, patience time.Duration) bool {
	i.mu.Lock()
	i.wanted = false
	cmd, ended := i.cmd, i.ended
	i.mu.Unlock()
	if cmd == nil {
		return true
	}
	_ = cmd.Process.Signal(s) // it may have ended
	select {
	case <-ended:
		return cmd.ProcessState.ExitCode() == 0
	case <-time.After(patience):
		_ = cmd.Process.Signal(syscall.SIGQUIT) // the log then has what every goroutine waits for
		<-ended
		return false
	}
}
