package identity

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// entry is a key, and its lines for the file.
func entry(t *testing.T, id string) (token, lines string) {
	t.Helper()
	token, hash, err := NewKey(id)
	if err != nil {
		t.Fatal(err)
	}
	return token, "  - {id: " + id + ", hash: \"" + hash + "\", roles: [viewer]}\n"
}

// bearing is a request with a token, "" for none.
func bearing(t *testing.T, token string) *http.Request {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return r
}

// looks has the file looked at.
func (a *Access) looks() {
	a.mu.Lock()
	a.looked = time.Time{}
	a.mu.Unlock()
	a.now()
}

// knows says whether a token is taken, after the file may have been looked at.
func (a *Access) knows(t *testing.T, token string) bool {
	t.Helper()
	a.looks()
	a.looks() // what is the same at two is whole
	_, err := a.Identify(t.Context(), bearing(t, token))
	return err == nil
}

// Two servers with one file take the same keys. What changes in it counts while they run;
// what becomes wrong changes nothing, and is told.
func TestAFileThatChanges(t *testing.T) {
	path := filepath.Join(t.TempDir(), "access.yaml")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	one, oneLine := entry(t, "one")
	two, twoLine := entry(t, "two")
	write("keys:\n" + oneLine)
	var said bytes.Buffer
	log := slog.New(slog.NewTextHandler(&said, nil))
	a, err := Open(path, log)
	if err != nil {
		t.Fatal(err)
	}
	b, err := Open(path, log)
	if err != nil {
		t.Fatal(err)
	}
	expect := func(what string, knowsOne, knowsTwo bool) {
		t.Helper()
		for _, a := range []*Access{a, b} {
			if got := a.knows(t, one); got != knowsOne {
				t.Errorf("%s: the first key is taken: %t", what, got)
			}
			if got := a.knows(t, two); got != knowsTwo {
				t.Errorf("%s: the second key is taken: %t", what, got)
			}
		}
	}
	expect("at first", true, false)
	write("keys:\n" + oneLine + twoLine)
	expect("with a second", true, true)
	write("keys:\n" + oneLine + twoLine + "  - {id: x}\n")
	expect("while it is wrong", true, true)
	if err := a.Wrong(); err == nil || !strings.Contains(err.Error(), path+":4:10: ") {
		t.Errorf("wrong: %v", err)
	}
	if n := strings.Count(said.String(), "the access file is wrong"); n != 2 {
		t.Errorf("it was said %d times by two that it is wrong", n)
	}
	write("keys: []\n") // nobody could enter any more
	expect("while it names nobody", true, true)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	expect("while it is away", true, true)
	write("keys:\n" + twoLine)
	expect("without the first", false, true)
	if err := a.Wrong(); err != nil {
		t.Errorf("repaired: %v", err)
	}
	if strings.Contains(said.String(), one) || strings.Contains(said.String(), two) {
		t.Error("a key stands in the log")
	}
	if _, err := Open(path+".not", log); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}

// Only one Authorization counts, and none but Bearer.
func TestWhatNamesACaller(t *testing.T) {
	token, line := entry(t, "one")
	path := filepath.Join(t.TempDir(), "access.yaml")
	if err := os.WriteFile(path, []byte("keys:\n"+line), 0o600); err != nil {
		t.Fatal(err)
	}
	a, err := Open(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Identify(t.Context(), bearing(t, "")); !errors.Is(err, ErrNobody) {
		t.Errorf("without any: %v", err)
	}
	for _, given := range [][]string{{"bearer " + token}, {"Bearer  " + token}} {
		r := bearing(t, "")
		r.Header["Authorization"] = given
		if _, err := a.Identify(t.Context(), r); err != nil {
			t.Errorf("%q: %v", given, err)
		}
	}
	for _, given := range [][]string{{"Bearer"}, {token}, {"Basic " + token}, {"Bearer x"}, {"Bearer " + token, "Bearer " + token}, {""}} {
		r := bearing(t, "")
		r.Header["Authorization"] = given
		if c, err := a.Identify(t.Context(), r); err == nil || errors.Is(err, ErrNobody) || strings.Contains(err.Error(), token) {
			t.Errorf("%q: %+v, %v", given, c, err)
		}
	}
	if a.OnlyCertificates() {
		t.Error("keys are no way to be named")
	}
}

// A file that is being written is not read: its half may say more than the whole.
func TestAFileThatIsBeingWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "access.yaml")
	token, hash, err := NewKey("one")
	if err != nil {
		t.Fatal(err)
	}
	line := "  - id: one\n    hash: " + hash + "\n    roles: [viewer]\n"
	_, other := entry(t, "two")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("keys:\n" + other)
	a, err := Open(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	whole := "keys:\n" + line + "    expires: 2020-01-01\n"
	for end := len("keys:\n" + line); end <= len(whole); end += 6 {
		write(whole[:end])
		if a.looks(); a.said.keys["one"].hash != a.said.keys["none"].hash {
			t.Fatalf("after %d bytes of %d it was read", end, len(whole))
		}
	}
	write(whole)
	if a.knows(t, token) {
		t.Error("what has expired is taken")
	}
	if a.said.keys["one"].expires.IsZero() {
		t.Error("the whole was not read")
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if a.looks(); a.said.keys["one"].expires.IsZero() {
		t.Error("what is no file was read")
	}
}

// A key that was taken out while nobody asked is not taken once more.
func TestAKeyThatWasTakenOutLongAgo(t *testing.T) {
	token, hash, err := NewKey("one")
	if err != nil {
		t.Fatal(err)
	}
	_, other, _ := NewKey("two")
	path := filepath.Join(t.TempDir(), "access.yaml")
	write := func(id, hash string, at time.Time) {
		t.Helper()
		if err := errors.Join(os.WriteFile(path, fmt.Appendf(nil, "keys: [{id: %s, hash: %q, roles: [admin]}]\n", id, hash), 0o600), os.Chtimes(path, at, at)); err != nil {
			t.Fatal(err)
		}
	}
	write("one", hash, time.Now().Add(-2*time.Hour))
	a, err := Open(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	write("two", other, time.Now().Add(-time.Hour))
	a.mu.Lock()
	a.looked = time.Time{}
	a.mu.Unlock()
	if _, err := a.now().byToken(t.Context(), token, time.Now()); err == nil {
		t.Error("it is taken by the first who asks")
	}
}
