package main

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"
)

const stream = `{"Action":"run","Package":"p/a","Test":"TestSlow"}
{"Action":"output","Package":"p/a","Test":"TestSlow","Output":"=== RUN   TestSlow\n"}
{"Action":"output","Package":"p/a","Test":"TestSlow","Output":"    a_test.go:1: said by one that passed\n"}
{"Action":"pass","Package":"p/a","Test":"TestSlow/half","Elapsed":4}
{"Action":"pass","Package":"p/a","Test":"TestSlow","Elapsed":7}
{"Action":"pass","Package":"p/a","Test":"TestFast","Elapsed":0.5}
{"Action":"output","Package":"p/a","Test":"TestBad","Output":"    a_test.go:7: it is wrong\n"}
{"Action":"output","Package":"p/a","Test":"TestBad","Output":"        time=now msg=\"what a process said\"\n"}
{"Action":"output","Package":"p/a","Test":"TestBad","Output":"--- FAIL: TestBad (0.00s)\n"}
{"Action":"fail","Package":"p/a","Test":"TestBad"}
{"Action":"output","Package":"p/b","Test":"TestLacking/container","Output":"    b_test.go:3: left out: suites on Kafka, because of this\n"}
{"Action":"skip","Package":"p/b","Test":"TestLacking/container"}
{"Action":"output","Package":"p/b","Test":"TestOther/container","Output":"    b_test.go:3: left out: suites on Kafka, because of this\n"}
{"Action":"skip","Package":"p/b","Test":"TestOther/container"}
{"Action":"output","Package":"p/b","Test":"TestLong","Output":"    b_test.go:9: it takes hours\n"}
{"Action":"output","Package":"p/b","Test":"TestLong","Output":"--- SKIP: TestLong (0.00s)\n"}
{"Action":"skip","Package":"p/b","Test":"TestLong"}
{"Action":"output","Package":"p/a","Output":"exit status 1\n"}
{"Action":"output","Package":"p/a","Output":"FAIL\tp/a\t7.6s\n"}
{"Action":"fail","Package":"p/a","Elapsed":7.6}
{"Action":"output","Package":"p/b","Output":"ok  \tp/b\t0.1s\n"}
{"Action":"pass","Package":"p/b","Elapsed":0.1}
{"Action":"output","Package":"p/c","Output":"?   \tp/c\t[no test files]\n"}
{"Action":"skip","Package":"p/c"}
{"ImportPath":"p/d [p/d.test]","Action":"build-output","Output":"d_test.go:1:1: no such thing\n"}
{"Action":"output","Package":"p/d","Output":"FAIL\tp/d [build failed]\n"}
{"Action":"fail","Package":"p/d","FailedBuild":"p/d [p/d.test]"}
not JSON
{"Action":"output","Package":"p/e","Test":"TestCut","Output":"    e_test.go:1: the last words\n"}
`

const reported = `=== TestBad
    a_test.go:7: it is wrong
        time=now msg="what a process said"
--- FAIL: TestBad (0.00s)
exit status 1
FAIL	p/a	7.6s
ok  	p/b	0.1s
d_test.go:1:1: no such thing
FAIL	p/d [build failed]
not JSON
=== TestCut
    e_test.go:1: the last words

Left out:
  p/b: TestLong: it takes hours (skips: 1)
  p/b: suites on Kafka, because of this (skips: 2)

Slowest, each without its subtests:
      4.0s  p/a TestSlow/half
      3.0s  p/a TestSlow
      0.5s  p/a TestFast

Runs of go test, with the processor time of all that they started but containers:
      7.6s     2.0s  p/a -race

Failed, with the last that each said by a line of a test:
  TestBad
      a_test.go:7: it is wrong
  FAIL	p/a	7.6s
  FAIL	p/d [build failed]
  TestCut
      e_test.go:1: the last words

All that was said is in bin/test.log.

FAIL	p/a	7.6s
ok  	p/b	0.1s
FAIL	p/d [build failed]
`

// What fails is told, what is left out and what is slow is named, and all the
// rest is only in the log.
func TestReport(t *testing.T) {
	var out, log bytes.Buffer
	r := newReport(&out, &log, "bin/test.log")
	if err := r.read(strings.NewReader(stream)); err != nil {
		t.Fatal(err)
	}
	r.ran(spent{"p/a -race", 7600 * time.Millisecond, 2 * time.Second})
	r.end()
	if out.String() != reported {
		t.Errorf("reported:\n%s\ninstead of:\n%s", out.String(), reported)
	}
	if !strings.Contains(log.String(), "said by one that passed") {
		t.Errorf("the log has only:\n%s", log.String())
	}
}

// Two go tests that run side by side do not take each other's packages for cut off.
func TestReportOfTwoAtOnce(t *testing.T) {
	var out, log bytes.Buffer
	r := newReport(&out, &log, "bin/test.log")
	slow, tell := io.Pipe()
	ended := make(chan error)
	go func() { ended <- r.read(slow) }()
	say := func(line string) {
		if _, err := io.WriteString(tell, line+"\n"); err != nil {
			t.Error(err)
		}
	}
	say(`{"Action":"run","Package":"p/a","Test":"TestSlow"}`)
	say(`{"Action":"output","Package":"p/a","Test":"TestSlow","Output":"    a_test.go:1: said before\n"}`)
	if err := r.read(strings.NewReader(`{"Action":"output","Package":"p/b","Output":"ok  \tp/b\t0.1s\n"}
{"Action":"pass","Package":"p/b"}
`)); err != nil {
		t.Error(err)
	}
	say(`{"Action":"fail","Package":"p/a","Test":"TestSlow"}`)
	say(`{"Action":"output","Package":"p/a","Output":"FAIL\tp/a\t0.2s\n"}`)
	say(`{"Action":"fail","Package":"p/a"}`)
	if err := tell.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	const want = "ok  \tp/b\t0.1s\n=== TestSlow\n    a_test.go:1: said before\nFAIL\tp/a\t0.2s\n"
	if out.String() != want {
		t.Errorf("reported:\n%s\ninstead of:\n%s", out.String(), want)
	}
}
