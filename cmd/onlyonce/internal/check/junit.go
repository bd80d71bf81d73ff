package check

import (
	"encoding/xml"
	"io"
	"strconv"
	"strings"

	"github.com/onlyonce-go/onlyonce/conform"
)

type junitSuites struct {
	XMLName xml.Name   `xml:"testsuites"`
	Suite   junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name      string      `xml:"name,attr"`
	Tests     int         `xml:"tests,attr"`
	Failures  int         `xml:"failures,attr"`
	Errors    int         `xml:"errors,attr"`
	Skipped   int         `xml:"skipped,attr"`
	Time      string      `xml:"time,attr"`
	Timestamp string      `xml:"timestamp,attr"`
	Cases     []junitCase `xml:"testcase"`
}

type junitCase struct {
	Class   string      `xml:"classname,attr"`
	Name    string      `xml:"name,attr"`
	Skipped *junitNote  `xml:"skipped"`
	Failure *junitNote  `xml:"failure"`
	Error   *junitNote  `xml:"error"`
	Out     *junitPlain `xml:"system-out"`
}

type junitNote struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

type junitPlain struct {
	Text string `xml:",chardata"`
}

// writeJUnit writes a test case for each row, and one with an error if not all rows
// could be checked.
func writeJUnit(out io.Writer, r conform.Report, err error) error {
	suite := junitSuite{
		Name: "onlyonce check", Tests: len(r.Rows), Failures: r.Count(conform.Fail), Skipped: r.Count(conform.NotSupported),
		Time: strconv.FormatFloat(r.Took.Seconds(), 'f', 3, 64), Timestamp: r.Began.UTC().Format("2006-01-02T15:04:05"),
	}
	for _, row := range r.Rows {
		c := junitCase{Class: "onlyonce.check", Name: row.ID + ": " + row.Title}
		var shown strings.Builder
		for _, e := range row.Exchanges {
			shown.WriteString("\n" + e.Note + ":\n" + message(e.Request) + "\n\n" + message(e.Response) + "\n")
		}
		switch row.Verdict {
		case conform.Fail:
			c.Failure = &junitNote{readable(row.Detail), row.Advice + "\n" + shown.String()}
		case conform.NotSupported:
			c.Skipped = &junitNote{Message: readable(row.Detail)}
		default:
			c.Out = &junitPlain{detailOf(row) + "\n" + shown.String()}
		}
		suite.Cases = append(suite.Cases, c)
	}
	if err != nil {
		suite.Tests++
		suite.Errors++
		suite.Cases = append(suite.Cases, junitCase{Class: "onlyonce.check", Name: "the check itself", Error: &junitNote{Message: readable(err.Error())}})
	}
	if _, err := io.WriteString(out, xml.Header); err != nil {
		return err
	}
	enc := xml.NewEncoder(out)
	enc.Indent("", "  ")
	if err := enc.Encode(junitSuites{Suite: suite}); err != nil {
		return err
	}
	_, err = io.WriteString(out, "\n")
	return err
}
