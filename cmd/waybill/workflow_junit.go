package main

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"os"

	"github.com/waybill-dev/waybill/internal/rehearsal"
)

// The form of JUnit's reports, as far as those who read them agree on it. How long a test took is
// left out: time that jumps is no news to who watches over slow tests.
type (
	junitReport struct {
		XMLName  xml.Name     `xml:"testsuites"`
		Tests    int          `xml:"tests,attr"`
		Failures int          `xml:"failures,attr"`
		Suites   []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Class   string        `xml:"classname,attr"`
		Name    string        `xml:"name,attr"`
		File    string        `xml:"file,attr"`
		Line    int           `xml:"line,attr"`
		Failure *junitFailure `xml:"failure"`
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
	text, err := xml.MarshalIndent(report, "", "  ")
	if err == nil {
		err = os.WriteFile(path, append([]byte(xml.Header), append(text, '\n')...), 0o644) //nolint:gosec // it is for others to read
	}
	if err != nil {
		return fmt.Errorf("write the report to %s: %w", path, err)
	}
	return nil
}
