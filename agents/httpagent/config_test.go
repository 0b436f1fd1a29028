package httpagent

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

func environment(name string) (string, bool) {
	value, ok := map[string]string{"URL": "https://a.example:8443/api/", "HOST": "b.example", "PATH": "/p", "TOKEN": "t0ken", "LINES": "a\nb", "EMPTY": ""}[name]
	return value, ok
}

// with makes a file with one operation and these lines in it.
func with(lines string) string {
	return "agent: a\nbase: https://a.example\noperations:\n  op:\n    " + strings.ReplaceAll(lines, "\n", "\n    ") + "\n"
}

// Whatever is wrong is refused with its place.
func TestWrongFiles(t *testing.T) {
	for _, test := range []struct{ file, want string }{
		{"", "1:1: the file is empty"},
		{"# nothing\n", "1:1: the file is empty"},
		{"a: [", "1:4: this is not YAML"},
		{"agent: \xff", "1:1: the file is not UTF-8"},
		{"- a\n", "1:1: the file is a mapping of keys to values, this is a list"},
		{"agent: a\n---\nagent: b\n", "2:1: a second document"},
		{"agent: a\n", `1:1: the file has no "operations"`},
		{"operations: {a: {url: http://a}}\n", `1:1: the file has no "agent"`},
		{"agent: a b\n", `1:8: the agent's name is "a b"`},
		{"agent: [a]\n", "1:8: the agent's name is a text, this is a list"},
		{"agent: &x a\n", "1:8: the agent's name is a text, this is an anchor"},
		{"agent: a\nagent: b\n", `2:1: the key "agent" is given twice, first at line 1, column 1`},
		{"agent: a\noperation: {}\n", `2:1: unknown key "operation" in the file; did you mean "operations"?; the keys are agent, concurrency`},
		{"agent: a\noperations: {}\n", "2:13: there are no operations"},
		{"agent: a\noperations: [charge]\n", "2:13: operations is a mapping"},
		{"agent: a\noperations: {a: /charges}\n", "2:17: an operation is a mapping of keys to values, this is \"/charges\""},
		{"concurrency: 0\n", "1:14: concurrency is a whole number from 1 to 10000"},
		{"concurrency: \"1\"\n", "1:14: concurrency is a whole number"},
		{"concurrency: 0x10\n", "1:14: concurrency is a whole number"},
		{"retry: 3\n", `1:8: retry is a mapping of keys to values, this is "3"`},
		{"retry: {attempts: 0}\n", "1:19: attempts is a whole number from 1 to 100"},
		{"retry: {multiplier: 2}\n", `1:9: unknown key "multiplier" in retry`},
		{"retry: {backoff: 3}\n", "1:18: backoff is \"3\" of what? write a unit"},
		{"retry: {backoff: -3s}\n", "1:18: backoff is -3s"},
		{"retry: {backoff: 3s, max: 2s}\n", "1:22: max is 2s, less than backoff"},
		{"retry: {jitter: 1.5}\n", "1:17: jitter is a number from 0 to 1"},
		{"breaker: {failures: 5, window: 4}\n", "1:24: window is 4, less than failures"},
		{"breaker: {delay: soon}\n", "1:18: delay is a duration"},
		{"breaker: {successes: 0}\n", "1:22: successes is a whole number"},

		{"base: /api\n", "1:7: base names no host"},
		{"base: //a.example\n", "1:7: base names a host without a scheme"},
		{"base: ftp://a.example\n", "1:7: base is neither a URL nor a path"},
		{"base: https://a.example/{order}\n", "1:7: base has a placeholder or a query"},
		{"base: https://a.example?x=1\n", "1:7: base has a placeholder or a query"},
		{"base: ${NOT_SET}\n", "1:7: the environment variable NOT_SET is not set"},
		{"base: ${EMPTY}\n", "1:7: the environment variable EMPTY is not set"},
		{"base: ${TOKEN}\n", "1:7: base is neither a URL nor a path"},
		{"base: https://u:p@a.example\n", "1:7: base holds a user or password"},
		{"base: https://\n", "1:7: base has no valid host"},
		{"base: https://:80/\n", "1:7: base has no valid host"},
		{"base: https://a b/\n", "1:7: base has no valid host"},
		{"base: https://a:x/\n", "1:7: base has no valid host"},
		{"base: https://a:/\n", "1:7: base has no valid host"},
		{"base: https://a:70000/\n", "1:7: base has port 70000"},

		{"headers: {Idempotency-Key: x}\n", "1:11: the header Idempotency-Key cannot be set: it is always"},
		{"headers: {host: x}\n", "1:11: the header Host cannot be set"},
		{"headers: {\"a b\": x}\n", `1:11: "a b" is no name of a header`},
		{"headers: {x-a: 1, X-A: 2}\n", "1:19: the header X-A is given twice"},
		{"headers: {x-a: \"${LINES}\"}\n", "1:16: the environment variable LINES holds a line break"},
		{"headers: {x-a: \"a\\nb\"}\n", "1:16: the header X-A holds a line break"},
		{"headers: {x-a: {order}}\n", `1:16: a header's value is a mapping to YAML without quotes; write "{order}"`},
		{"headers: {x-a: {a: b}}\n", "1:16: a header's value is a text, this is a mapping"},
		{"headers: {x-a: \"${a b}\"}\n", "1:16: ${a b} is no variable"},

		{with("url: /c\nurl: /d"), `6:5: the key "url" is given twice, first at line 5, column 5`},
		{with("method: POST"), `4:3: the operation "op" has no "url"`},
		{with("url: {order}"), `5:10: url is a mapping to YAML without quotes; write "{order}"`},
		{with("url: charges"), "5:10: url is neither a URL nor a path"},
		{with("url: \"{input.url}\""), "5:10: url is neither a URL nor a path"},
		{with("url: https://{input.host}/"), "5:10: url has a placeholder in its host"},
		{with("url: https://a.example{order}"), "5:10: url has a placeholder in its host"},
		{with("url: https://a.example:{order}/"), "5:10: url has a placeholder in its host"},
		{with("url: //evil/{order}"), "5:10: url names a host without a scheme"},
		{with("url: /c#x"), "5:10: url has a space, #"},
		{with("url: /c d"), "5:10: url has a space, #"},
		{with("url: /ä"), "5:10: url has a space, #"},
		{with("url: /c\\d"), "5:10: url has a space, #"},
		{with("url: /%zz"), "5:10: url is no valid URL"},
		{with("url: /a/../b"), "5:10: url has a . or .."},
		{with("url: /a/%2e%2E/b"), "5:10: url has a . or .."},
		{with("url: /{ordr}"), "5:10: the placeholder {ordr} is unknown; write one of order, step"},
		{with("url: /{order.x}"), "5:10: the placeholder {order.x} has a path"},
		{with("url: /{input..x}"), "5:10: the placeholder {input..x} has an empty name"},
		{with("url: /{}"), "5:10: the placeholder {} is unknown"},
		{with("url: /{order"), `5:10: the placeholder "{order" has no }`},
		{with("url: /order}"), "5:10: a } closes nothing"},
		{with("url: /{response.status}"), "5:10: the placeholder {response.status} is only known under output"},
		{with("url: /{input.x?}"), "5:10: url has the placeholder {input.x?} in its path"},
		{with("url: /\nmethod: post"), `6:13: method is "post"; write one of POST`},
		{with("url: /\nmethod: CONNECT"), `6:13: method is "CONNECT"`},
		{with("url: /\nmethod: GET\nbody: input"), "7:5: GET sends no body"},
		{with("url: /\nmethod: HEAD\nform: {a: b}"), "7:5: HEAD sends no form"},
		{with("url: /\nbody: input\nform: {a: b}"), "7:5: the operation has a body and a form"},
		{with("url: /\nbody: inptu"), `6:11: body is "inptu"; write input, output or none`},
		{with("url: /\nbody: {a: {order}}"), `6:15: a placeholder is a mapping to YAML without quotes; write "{order}"`},
		{with("url: /\nbody: {a: 0x1F}"), `6:15: "0x1F" is no number in JSON`},
		{with("url: /\nbody: {a: .inf}"), "6:15: body holds"},
		{with("url: /\nbody: {a: 1, a: 2}"), `6:18: the key "a" is given twice`},
		{with("url: /\nbody: {a: [\"{x}\"]}"), "6:16: the placeholder {x} is unknown"},
		{with("url: /\nbody: {a: !!str x}"), "6:15: body holds a tag"},
		{with("url: /\nbody: {a: *x}"), "6:15: body holds an anchor or alias"},
		{with("url: /\nbody: {<<: {a: 1}}"), "6:12: merge keys"},
		{with("url: /\nbody: |\n  text"), "6:11: body holds block text"},
		{with("url: /\noutput: response"), `6:13: output is "response"; write body or none`},
		{with("url: /\noutput: \"{response}\""), "6:13: the placeholder {response} is unknown; of a response"},
		{with("url: /\noutput: \"{response.headers}\""), "6:13: the placeholder {response.headers} is unknown"},
		{with("url: /\noutput: \"{response.status.x}\""), "6:13: the placeholder {response.status.x} is unknown"},
		{with("url: /\ntimeout: 0s"), "6:14: timeout is 0s"},
		{with("url: /\ntimeout: 48h"), "6:14: timeout is 48h0m0s"},
		{with("url: /\ntransient: 409"), `6:16: transient is a list, this is "409"`},
		{with("url: /\ntransient: [199]"), `6:17: "199" is no status that can be listed here; write numbers from 200 to 599, 4xx, 5xx or network`},
		{with("url: /\ntransient: [4xy]"), `6:17: "4xy" is no status`},
		{with("url: /\ntransient: [0404]"), `6:17: "0404" is no status`},
		{with("url: /\nsuccess: [200]"), `6:15: "200" is no status that can be listed here; write numbers from 300 to 599`},
		{with("url: /\nsuccess: [5xx]"), "6:15: 5xx cannot be a success"},
		{with("url: /\nsuccess: [404]\npermanent: [404]"), "7:17: 404 is listed twice, first as success"},
	} {
		t.Run(test.file, func(t *testing.T) {
			_, err := Read("a.yaml", []byte(test.file), environment)
			problems, ok := errors.AsType[Errors](err)
			if !ok {
				t.Fatalf("accepted, or another error: %v", err)
			}
			for line := range strings.SplitSeq(problems.Error(), "\n") {
				if strings.HasPrefix(line, "a.yaml:"+test.want) {
					return
				}
			}
			t.Errorf("want %q in\n%v", test.want, problems)
		})
	}
}

func TestAllProblemsAtOnce(t *testing.T) {
	_, err := Read("a.yaml", []byte(`agent: "a b"
headers: {Authorization: "Bearer ${NONE}"}
retry: {attempts: x}
operations:
  b: {url: "/{ordr}", transient: [1]}
`), environment)
	want := `a.yaml:1:8: the agent's name is "a b"; use 1 to 100 of a-z A-Z 0-9 . _ -
a.yaml:2:26: the environment variable NONE is not set; set it to what is to stand here
a.yaml:3:19: attempts is a whole number from 1 to 100, this is "x"
a.yaml:5:12: the placeholder {ordr} is unknown; write one of order, step, attempt, operation, idempotencyKey, completeBy, undo, outcome, stepKey, priority, input, output, or {{ for the character itself
a.yaml:5:35: "1" is no status that can be listed here; write numbers from 200 to 599, 4xx, 5xx or network`
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

func TestURLsOfFiles(t *testing.T) {
	for _, test := range []struct{ base, url, want string }{
		{"https://a.example", "/c/{order}", "https://a.example/c/x"},
		{"https://a.example/", "/c", "https://a.example/c"},
		{"https://A.example/v1/", "?q={order}", "https://a.example/v1?q=x"},
		{"${URL}", "/c", "https://a.example:8443/api/c"},
		{"https://${HOST}/${TOKEN}", "/c", "https://b.example/t0ken/c"},
		{"https://${HOST}:81${PATH}", "/c", "https://b.example:81/p/c"},
		{"https://a.example", "http://b.example", "http://b.example"},
		{"https://a.example", "HTTP://b.example?{order}={order}", "http://b.example?x=x"},
		{"https://a.example", "${URL}c", "https://a.example:8443/api/c"},
		{"https://a.example", "${PATH}/c", "https://a.example/p/c"},
		{"https://a.example", "/c${PATH}", "https://a.example/c%2Fp"},
		{"https://[::1]:80", "/c", "https://[::1]:80/c"},
		{"https://a.example", "/c/{{x}}", "https://a.example/c/{x}"},
	} {
		a, err := Read("a.yaml", []byte("agent: a\nbase: \""+test.base+"\"\noperations: {op: {url: \""+test.url+"\"}}\n"), environment)
		if err != nil {
			t.Errorf("%s %s: %v", test.base, test.url, err)
			continue
		}
		got, err := a.operations["op"].target.render(func(part) (string, error) { return "x", nil })
		if err != nil || got != test.want {
			t.Errorf("%s and %s make %s (%v), want %s", test.base, test.url, got, err, test.want)
		}
	}
}

// A6: without a word in the file there are retries and a breaker.
func TestRetryAndBreakerSettings(t *testing.T) {
	read := func(lines string) *Agent {
		t.Helper()
		a, err := Read("a.yaml", []byte("agent: a\noperations: {op: {url: http://a}}\n"+lines), environment)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	if a := read(""); a.retry == nil || a.breaker == nil || a.concurrency != 16 {
		t.Errorf("by default %+v", a)
	}
	if a := read("retry: none\nbreaker: none\nconcurrency: 7\n"); a.retry != nil || a.breaker != nil || a.concurrency != 7 {
		t.Errorf("switched off %+v", a)
	}
	a := read("retry: {attempts: 5, backoff: 1s, max: 3s, jitter: 0}\nbreaker: {failures: 2, window: 3, delay: 4s, successes: 5}\n")
	if r := a.retry; r.Attempts != 5 || r.Backoff != time.Second || r.Max != 3*time.Second || r.Jitter >= 0 {
		t.Errorf("the retry is %+v", r)
	}
	if b := a.breaker; b.Failures != 2 || b.Window != 3 || b.Delay != 4*time.Second || b.Successes != 5 {
		t.Errorf("the breaker is %+v", b)
	}
}

// The example, and the one of the documentation, are right.
func TestShippedExamples(t *testing.T) {
	example, err := os.ReadFile("testdata/payment.yaml")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/http-agent.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(page), "```yaml\n")
	block, _, _ = strings.Cut(block, "```")
	for _, source := range []string{string(example), block} {
		if _, err := Read("payment.yaml", []byte(source), func(name string) (string, bool) {
			value, ok := map[string]string{"PAYMENT_URL": "https://payments.internal", "PAYMENT_TOKEN": "t0ken"}[name]
			return value, ok
		}); err != nil {
			t.Error(err)
		}
	}
}

// Whatever a file holds is read or refused, never a crash; and what is read
// leads to its own host only, whatever a request holds.
func FuzzRead(f *testing.F) {
	example, err := os.ReadFile("testdata/payment.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(example), "..")
	f.Add(with("url: /{input.x}/a?b={input.x}\nbody: {a: [\"{input.x?}\"]}\noutput: \"{response.body.x}\""), "/../\r\n")
	f.Add(with("url: https://a.example/{input.x}${TOKEN}"), "@evil")
	f.Fuzz(func(t *testing.T, file, value string) {
		if len(file) > 2000 {
			t.Skip("the YAML library takes more than linear time for some files")
		}
		a, err := Read("a.yaml", []byte(file), environment)
		if err != nil {
			if problems, ok := errors.AsType[Errors](err); !ok || len(problems) == 0 {
				t.Fatalf("the error is %v", err)
			}
			return
		}
		req := request(`{"x":` + string(text(value)) + `}`)
		for _, name := range a.Operations() {
			o := a.operations[name]
			_ = a.Call(name)
			v := &values{operation: name, request: &req}
			if u, err := o.target.url(v); err == nil && (u.Scheme+"://"+u.Host != o.target.origin || u.User != nil) {
				t.Errorf("the URL became %s, of %s", u, o.target.origin)
			}
			if content, _, err := o.body.encode(v); err == nil && o.body.json != nil && len(content) > 0 && text(value) != nil && !isValid(content) {
				t.Errorf("the body is no JSON: %s", content)
			}
		}
	})
}

func isValid(content []byte) bool { return jsontext.Value(content).IsValid() }
