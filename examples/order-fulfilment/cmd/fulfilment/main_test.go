package main

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestUsage(t *testing.T) {
	for _, test := range []struct {
		args []string
		code int
	}{
		{nil, 2},
		{[]string{"nosuch"}, 2},
		{[]string{"services", "more"}, 2},
		{[]string{"agents", "--nosuch"}, 2},
		{[]string{"agents", "-h"}, 0},
	} {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) {
			var said bytes.Buffer
			if code := run(t.Context(), test.args, &said); code != test.code || !strings.Contains(said.String(), "usage:") {
				t.Errorf("exit code %d, want %d; it said:\n%s", code, test.code, &said)
			}
		})
	}
}

// lines tells of every line that is written.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
	seen chan struct{}
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Write(p)
	if bytes.Contains(p, []byte("msg=serving")) {
		l.seen <- struct{}{}
	}
	return len(p), nil
}

func TestServicesServeUntilTheyAreStopped(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	log := &lines{seen: make(chan struct{}, 2)}
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, []string{"services", "--payment-addr", "127.0.0.1:0", "--carrier-addr", "127.0.0.1:0"}, log)
	}()
	<-log.seen
	<-log.seen
	stop()
	if code := <-code; code != 0 {
		t.Errorf("exit code %d; it said:\n%s", code, &log.text)
	}
}

func TestSaysWhyItCannotServe(t *testing.T) {
	var said bytes.Buffer
	if code := run(t.Context(), []string{"services", "--payment-addr", "nowhere.invalid:1"}, &said); code != 1 || !strings.Contains(said.String(), `listen on "nowhere.invalid:1"`) {
		t.Errorf("exit code %d; it said:\n%s", code, &said)
	}
}
