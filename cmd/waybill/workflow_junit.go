package main

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"os"

	"github.com/waybill-dev/waybill/internal/rehearsal"
	"github.com/waybill-dev/waybill/internal/words"
)

// The form of JUnit's reports, as far as those who read them agree on it. How long a test took is
// left out: time that jumps is no news to who watches over slow tests.
type (
	junitReport struct {
		XMLName  xml.Name     `xml:"testsuites"`
		Tests    int          `xml:"tests,attr"`
		Failures int          `xml:"failures,attr"`
		Errors   int          `xml:"errors,attr"`
		Suites   []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Errors   int         `xml:"errors,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Class   string        `xml:"classname,attr"`
		Name    string        `xml:"name,attr"`
		File    string        `xml:"file,attr,omitempty"`
		Line    int           `xml:"line,attr,omitempty"`
		Failure *junitFailure `xml:"failure"`
		Error   *junitFailure `xml:"error"`
	}
	junitFailure struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",cdata"`
	}
)

// writeJUnit writes a report in which each file is a suite, and each workflow a class.
func writeJUnit(path string, files []*rehearsal.File, results []*rehearsal.Result) error {
	report := junitReport{}
	for _, f := range files {
		suite := junitSuite{Name: f.Name}
		for _, r := range results {
			if r.File != f.Name {
				continue
			}
			c := junitCase{Class: f.Flow.ID(), Name: r.Name, File: r.File, Line: r.Line}
			if len(r.Differences) > 0 {
				first := r.Differences[0]
				var text bytes.Buffer
				printDifferences(&text, r)
				if err := printHistories(&text, r); err != nil {
					return err
				}
				c.Failure = &junitFailure{fmt.Sprintf("%s: expected %s, found %s", first.What, first.Expected, first.Found), text.String()}
				suite.Failures++
			}
			suite.Cases = append(suite.Cases, c)
		}
		suite.Tests = len(suite.Cases)
		report.Tests, report.Failures = report.Tests+suite.Tests, report.Failures+suite.Failures
		report.Suites = append(report.Suites, suite)
	}
	return report.write(path)
}

// writeJUnitError writes a report that says why no test was performed: who watches over reports does not take that
// of a run before for this one's.
func writeJUnitError(path string, why error) error {
	text := words.Clean(why.Error())
	c := junitCase{Class: "waybill workflow test", Name: "no test was performed", Error: &junitFailure{words.Short(text), why.Error()}}
	return (&junitReport{Tests: 1, Errors: 1, Suites: []junitSuite{{Name: c.Class, Tests: 1, Errors: 1, Cases: []junitCase{c}}}}).write(path)
}

func (r *junitReport) write(path string) error {
	text, err := xml.MarshalIndent(r, "", "  ")
	if err == nil {
		err = os.WriteFile(path, append([]byte(xml.Header), append(text, '\n')...), 0o644) //nolint:gosec // it is for others to read
	}
	if err != nil {
		return fmt.Errorf("write the report to %s: %w", path, err)
	}
	return nil
}
