//go:build unix

package chaos

import (
	"errors"
	"io"
	"net"
	"os"
	"reflect"
	"testing"
	"time"
)

// echo answers with what it hears.
func echo(t *testing.T) string {
	t.Helper()
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
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	return l.Addr().String()
}

func TestProxyWeather(t *testing.T) {
	p := newProxy(t, "127.0.0.1:0", echo(t))
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
		if _, err := c.Write([]byte(what)); err != nil {
			t.Fatal(err)
		}
	}
	hear := func(patience time.Duration) (string, error) {
		if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 64)
		n, err := c.Read(b)
		return string(b[:n]), err
	}
	wants := func(what string) {
		t.Helper()
		if got, err := hear(10 * time.Second); got != what || err != nil {
			t.Fatalf("%q, %v instead of %q", got, err, what)
		}
	}
	say("fair")
	wants("fair")
	for _, w := range []weather{{holdUp: true}, {holdDown: true}} {
		p.set(w)
		say("held")
		if got, err := hear(50 * time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("%+v: %q, %v", w, got, err)
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
}

// A seed draws the same faults again, other targets draw others, and all kinds
// come up.
func TestScheduleFollowsFromTheSeed(t *testing.T) {
	one := schedule(7, 1, time.Hour, time.Second)
	if !reflect.DeepEqual(one, schedule(7, 1, time.Hour, time.Second)) {
		t.Error("the same seed drew something else")
	}
	if reflect.DeepEqual(one, schedule(7, 2, time.Hour, time.Second)) || reflect.DeepEqual(one, schedule(8, 1, time.Hour, time.Second)) {
		t.Error("another instance, or another seed, drew the same")
	}
	drawn := make(map[kind]bool)
	for _, f := range append(one, schedule(7, 0, time.Hour, time.Second)...) {
		drawn[f.Kind] = true
	}
	for _, k := range kinds {
		if !drawn[k] {
			t.Errorf("in an hour there was no %s", k)
		}
	}
}
