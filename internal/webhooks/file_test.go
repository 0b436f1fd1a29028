package webhooks

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const secretText = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

func environment(name string) (string, bool) {
	value, set := map[string]string{"SECRET": secretText, "URL": "https://pager.example/hush", "TOKEN": "hush", "BAD": "hush", "LINE": "hush\nX-Other: 1"}[name]
	return value, set
}

func secretFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// What a file says is what is sent, to whom.
func TestAFileOfWebhooks(t *testing.T) {
	file := secretFile(t, secretText+"\n")
	all, err := Read("w.yaml", []byte(`webhooks:
  pager:
    url: ${URL}
    secretFile: `+file+`
    reasons: [held, error]
    workflows: [order-*]
    headers: {authorization: "Bearer ${TOKEN}"}
    timeout: 2s
  chat: {url: "http://127.0.0.1:1/a?b=c", secret: "${SECRET}"}
`), environment)
	if err != nil || len(all) != 2 {
		t.Fatal(all, err)
	}
	chat, pager := all[0], all[1]
	if pager.url.String() != "https://pager.example/hush" || pager.headers.Get("Authorization") != "Bearer hush" || pager.timeout != 2*time.Second || chat.timeout != 15*time.Second {
		t.Errorf("%+v", pager)
	}
	for _, c := range []struct {
		d           data
		pager, chat bool
	}{
		{data{Reason: "held", Order: "o", Workflow: "order-1"}, true, true},
		{data{Reason: "overdue", Order: "o", Workflow: "order-1"}, false, true},
		{data{Reason: "error", Order: "o", Workflow: "loan"}, false, true},
		{data{Reason: "error", Order: "o"}, false, true},
		{data{Reason: "namespace"}, false, true},
	} {
		if pager.wants(&c.d) != c.pager || chat.wants(&c.d) != c.chat {
			t.Errorf("%+v: %t, %t", c.d, pager.wants(&c.d), chat.wants(&c.d))
		}
	}
	// Two secrets sign both, from the next message on, and a file that is wrong lets nothing be sent.
	for text, n := range map[string]int{secretText + "\n" + secretText + "\n": 2, secretText: 1, "": 0, "whsec_x": 0} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if secrets, err := pager.secrets(); len(secrets) != n || (err == nil) != (n > 0) {
			t.Errorf("%q: %d secrets, %v", text, len(secrets), err)
		}
	}
}

// All that is wrong is said, where, and no secret with it.
func TestAFileOfWebhooksThatIsWrong(t *testing.T) {
	good := "url: https://a.example, secret: '${SECRET}'"
	many := ""
	for i := range 21 {
		many += "  w" + string(rune('a'+i)) + ": {" + good + "}\n"
	}
	for source, want := range map[string]string{
		"":                                      `1:1: the file is empty`,
		"hooks: {}":                             `1:1: unknown key "hooks" in the file; the keys are webhooks`,
		"webhooks: {}":                          `there are no webhooks; write at least one`,
		"webhooks:\n" + many:                    `there are 21 webhooks; at most 20 are allowed`,
		"webhooks: {a: {" + good + ", ulr: x}}": `unknown key "ulr" in a webhook; did you mean "url"?`,
		"webhooks: {A_b: {" + good + "}}":       `1:12: the webhook's name is "A_b"; use 1 to 40 of a-z 0-9 -`,
		"webhooks: {a: {secret: '${SECRET}'}}":  `a webhook has no "url"; add it`,
		"webhooks: {a: {url: https://a.example}}":                          `the webhook has no secret`,
		"webhooks: {a: {" + good + ", secretFile: x}}":                     `the webhook has a secret and a secretFile; remove one`,
		"webhooks: {a: {url: https://a.example, secret: hush}}":            `the secret does not stand in the file; put it into a variable`,
		"webhooks: {a: {url: https://a.example, secret: 'hush${SECRET}'}}": `the secret does not stand in the file`,
		"webhooks: {a: {url: https://a.example, secret: '${BAD}'}}":        `a secret is whsec_ and the base64 of 24 to 64 random bytes`,
		"webhooks: {a: {url: https://a.example, secret: '${NONE}'}}":       `secret needs the variable NONE of the environment, which is not set`,
		"webhooks: {a: {url: https://a.example, secretFile: /nowhere}}":    `secretFile: open /nowhere: no such file`,
		"webhooks: {a: {url: 'hush://a', secret: '${SECRET}'}}":            `url is no address that can be sent to`,
		"webhooks: {a: {url: 'https://u:hush@a', secret: '${SECRET}'}}":    `with names and passwords among the headers`,
		"webhooks: {a: {url: 'https://', secret: '${SECRET}'}}":            `url is no address that can be sent to`,
		"webhooks: {a: {" + good + ", reasons: [eror]}}":                   `there is no reason "eror"; did you mean "error"?; the reasons are error, held, overdue, approval, namespace`,
		"webhooks: {a: {" + good + ", reasons: []}}":                       `there are no reasons`,
		"webhooks: {a: {" + good + ", workflows: ['[']}}":                  `"[" is no pattern for names of workflows`,
		"webhooks: {a: {" + good + ", workflows: []}}":                     `there are no workflows`,
		"webhooks: {a: {" + good + ", timeout: 2m}}":                       `timeout is 2m0s; at most 1m is allowed`,
		"webhooks: {a: {" + good + ", headers: {webhook-id: x}}}":          `the header Webhook-Id cannot be set: Waybill sets it`,
		"webhooks: {a: {" + good + ", headers: {'a b': x}}}":               `"a b" is no name of a header`,
		"webhooks: {a: {" + good + ", headers: {a: x, A: y}}}":             `the header A is given twice`,
		"webhooks: {a: {" + good + ", headers: {a: '${LINE}'}}}":           `the header A has a line break`,
		"webhooks: {a: {" + good + ", ca: /nowhere}}":                      `ca: open /nowhere`,
	} {
		all, err := Read("w.yaml", []byte(source), environment)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hush") || strings.Contains(err.Error(), secretText) {
			t.Errorf("%s: %v, %v instead of %q", source, all, err, want)
		}
	}
}
