//go:build unix

package chaos

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"reflect"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-dev/waybill/test/oracle"
)

// echo answers with what it hears, and counts the bytes of that.
func echo(t *testing.T) (address string, heard *atomic.Int64) {
	t.Helper()
	heard = new(atomic.Int64)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, io.TeeReader(c, counting{heard}))
			}()
		}
	}()
	return l.Addr().String(), heard
}

type counting struct{ *atomic.Int64 }

func (c counting) Write(b []byte) (int, error) {
	c.Add(int64(len(b)))
	return len(b), nil
}

func TestProxyWeather(t *testing.T) {
	address, heard := echo(t)
	p := newProxy(t, "127.0.0.1:0", address)
	dial := func() net.Conn {
		c, err := net.Dial("tcp", p.listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	c := dial()
	say := func(what string) {
		if _, err := c.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(what))), what...)); err != nil {
			t.Fatal(err)
		}
	}
	hear := func(patience time.Duration) (string, error) {
		if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 64)
		n, err := c.Read(b)
		return string(b[min(4, n):n]), err
	}
	wants := func(what string) {
		t.Helper()
		if got, err := hear(10 * time.Second); got != what || err != nil {
			t.Fatalf("%q, %v instead of %q", got, err, what)
		}
	}
	say("fair")
	wants("fair")
	for n, w := range []weather{{holdUp: true}, {holdDown: true}} {
		p.set(w)
		before := heard.Load()
		say("held")
		oracle.Until(t, "something is held", func() error {
			p.mu.Lock()
			defer p.mu.Unlock()
			if p.held != n+1 {
				return fmt.Errorf("%d pieces were", p.held)
			}
			return nil
		})
		if got := heard.Load() > before; got != w.holdDown {
			t.Fatalf("%+v: it was heard: %t", w, got)
		}
		p.set(weather{})
		wants("held") // later, and not lost
	}
	p.set(weather{delay: 40 * time.Millisecond})
	began := time.Now()
	say("slow")
	wants("slow")
	if took := time.Since(began); took < 80*time.Millisecond {
		t.Errorf("there and back took %s", took)
	}
	p.set(weather{cut: true})
	if got, err := hear(10 * time.Second); err == nil {
		t.Fatalf("cut, and %q arrived", got)
	}
	c = dial()
	if got, err := hear(10 * time.Second); err == nil {
		t.Fatalf("cut, and %q arrived on a new connection", got)
	}
	p.set(weather{})
	c = dial()
	say("fair again")
	wants("fair again")

	// What echoes looks like an answer if it begins with the number of the request.
	p.set(weather{swallow: true})
	commit := string([]byte{0, byte(kmsg.EndTxn), 0, 5, 0, byte(kmsg.EndTxn), 0, 5})
	say(commit)
	if got, err := hear(10 * time.Second); err == nil {
		t.Fatalf("swallowed, and %q arrived", got)
	}
	c = dial()
	say(commit)
	wants(commit)
	if n := (network{p}).swallowed(); n != 1 {
		t.Errorf("%d answers were swallowed", n)
	}
}

// A seed draws the same faults again, other targets draw others, and all kinds
// come up.
func TestScheduleFollowsFromTheSeed(t *testing.T) {
	drawn := make(map[kind]bool)
	for _, brokers := range []int{1, 3} {
		draw := func(seed uint64, target int) []fault {
			return schedule(seed, target, brokers, 2*time.Hour, time.Second)
		}
		one := draw(7, 1)
		if !reflect.DeepEqual(one, draw(7, 1)) {
			t.Error("the same seed drew something else")
		}
		if reflect.DeepEqual(one, draw(7, 2)) || reflect.DeepEqual(one, draw(8, 1)) {
			t.Error("another instance, or another seed, drew the same")
		}
		for _, f := range slices.Concat(one, draw(7, ofKafka), draw(7, ofCallers), draw(7, ofTopics)) {
			drawn[f.Kind] = true
		}
	}
	for _, k := range kinds {
		if !drawn[k] {
			t.Errorf("in two hours there was no %s", k)
		}
	}
}
