package identity

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/waybill-dev/waybill/orchestrator/proof"
)

func madeKey(t *testing.T, id string) string {
	t.Helper()
	text, err := NewNamespaceKey(id)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// ADR 0026: what `waybill key namespace` prints is what the file takes.
func TestNamespaceKeys(t *testing.T) {
	one, two := madeKey(t, "one"), madeKey(t, "two")
	a := &proof.Attempt{Order: "o-1"}
	keys, err := readNamespace("keys.yaml", []byte("keys:\n"+two+one+"tokens:\n  others: off\n  agents:\n    - {agent: payment, is: require}\n    - {agent: stock, is: watch}\n"))
	if err != nil {
		t.Fatal(err)
	}
	before, err := readNamespace("keys.yaml", []byte("keys:\n"+one))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(keys.Token(a), "two.") || !keys.Repeats(a, before.Token(a)) {
		t.Errorf("signed by %s; the other is believed: %t", keys.Token(a), keys.Repeats(a, before.Token(a)))
	}
	for agent, want := range map[string]proof.Setting{"payment": proof.Require, "stock": proof.Watch, "mail": proof.Off} {
		if got := keys.Setting(agent); got != want {
			t.Errorf("%s: %s", agent, got)
		}
	}
	if got := before.Setting("payment"); got != proof.Watch {
		t.Errorf("where nothing is said, replies are: %s", got)
	}
	if _, err := NewNamespaceKey("a.b"); err == nil {
		t.Error("an id with a dot is taken")
	}
}

func TestNamespaceFilesThatAreWrong(t *testing.T) {
	one, two, three := madeKey(t, "one"), madeKey(t, "two"), madeKey(t, "three")
	secret := strings.TrimSpace(one[strings.Index(one, "secret:")+len("secret:"):])
	for text, want := range map[string]string{
		"":                                  "keys.yaml:1:1: there are no keys; `waybill key namespace` prints one",
		"keys: []\n":                        "docs/security.md",
		"keys:\n" + one + two + three:       "there are 3 keys; there may be one, which signs, and another",
		"keys:\n" + one + one:               `the id "one" is given twice`,
		"keys:\n  - {id: a.b, secret: x}\n": "keys.yaml:2:10: an id has 1 to 32",
		"keys:\n  - {id: " + secret + ", secret: one}\n":                                      "an id has 1 to 32",
		"keys:\n  - {" + secret + ": one}\n":                                                  "docs/security.md",
		"keys:\n  - {secret: x}\n":                                                            "an id has 1 to 32",
		"keys:\n  - {id: one, secret: " + secret[1:] + "}\n":                                  "secret is 32 random bytes in base64",
		"keys:\n  - {id: one, secret: " + secret[:42] + "_}\n":                                "secret is 32 random bytes in base64",
		"keys:\n  - id: one\n":                                                                "keys.yaml:2:9: secret is 32 random bytes",
		"keys:\n" + one + "tokens: {others: always}\n":                                        `keys.yaml:4:18: "always": use off, watch or require`,
		"keys:\n" + one + "tokens: {agents: [{agent: a}]}\n":                                  `"": use off, watch or require`,
		"keys:\n" + one + "tokens: {agents: [{is: off}]}\n":                                   "name an agent",
		"keys:\n" + one + "tokens: {agents: {payment: watch}}\n":                              "docs/security.md",
		"keys:\n" + one + "token: {}\n":                                                       "docs/security.md",
		"keys:\n" + one + "tokens:\n  agents: [{agent: a, is: off}, {agent: a, is: watch}]\n": "each once",
	} {
		_, err := readNamespace("keys.yaml", []byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
		if err != nil && (strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), secret[1:])) {
			t.Errorf("%q: the error has the secret: %v", text, err)
		}
	}
}

// ADR 0026: the file is read again while it is watched; one that became wrong changes nothing.
func TestNamespaceKeysThatChange(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := OpenNamespace(file, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "the file of the namespace's keys") {
		t.Errorf("without a file: %v", err)
	}
	one, two := madeKey(t, "one"), madeKey(t, "second")
	write("keys:\n" + one)
	n, err := OpenNamespace(file, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	looks := func() {
		for range 2 { // what changes between two looks is not read
			n.look()
		}
	}
	by := func() string { id, _, _ := strings.Cut(n.Keys().Token(new(proof.Attempt)), "."); return id }
	write("keys:\n" + two + one)
	if looks(); by() != "second" || n.Wrong() {
		t.Errorf("signed by %s, wrong: %v", by(), n.Wrong())
	}
	write("keys: 7\n")
	if looks(); by() != "second" || !n.Wrong() {
		t.Errorf("signed by %s, wrong: %v", by(), n.Wrong())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	n.Watch(ctx) // it ends
}
