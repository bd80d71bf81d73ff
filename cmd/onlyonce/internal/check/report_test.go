package check

import (
	"bytes"
	"encoding/xml"
	"errors"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce/conform"
)

func TestReport_TheJUnitReportIsWellFormedAndCounts(t *testing.T) {
	t.Parallel()
	report := conform.Report{Requests: 3, Rows: []conform.Row{
		{ID: "replay", Title: "a < b", Verdict: conform.Pass, Detail: "\x1b[2J]]>"},
		{ID: "burst", Title: "b", Verdict: conform.Fail, Detail: "\x00 & <", Exchanges: []conform.Exchange{{Note: "n", Request: []byte("POST / HTTP/1.1\r\n\r\n\xff\x01")}}},
		{ID: "case", Title: "c", Verdict: conform.NotSupported, Detail: "why"},
	}}
	var out bytes.Buffer
	if err := writeJUnit(&out, report, errors.New("it took too long")); err != nil {
		t.Fatal(err)
	}
	var doc junitSuites
	if err := xml.Unmarshal(out.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	s := doc.Suite
	if s.Tests != 4 || s.Failures != 1 || s.Skipped != 1 || s.Errors != 1 || len(s.Cases) != 4 {
		t.Errorf("%+v", s)
	}
	if f := s.Cases[1].Failure; f == nil || f.Message != `\x00 & <` || !strings.Contains(f.Text, `\xff\x01`) {
		t.Errorf("%+v", f)
	}
	if strings.ContainsAny(out.String(), "\x1b\x00\x01\uFFFD") {
		t.Errorf("%q", out.String())
	}
}

func TestReport_EveryFormatSaysWhatARowThatPassedCouldNotObserve(t *testing.T) {
	t.Parallel()
	report := conform.Report{Rows: []conform.Row{{ID: "disconnect", Title: "a", Verdict: conform.Pass, Detail: "b.", Caveat: "It may have run twice."}}}
	for format, write := range map[string]reportWriter{"table": tableWriter(false), "verbose": tableWriter(true), "json": writeJSON, "junit": writeJUnit} {
		var out bytes.Buffer
		if err := write(&out, report, nil); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(out.String(), "It may have run twice."); n != 1 {
			t.Errorf("%s says it %d times:\n%s", format, n, out.String())
		}
	}
}

func TestReport_WhatATerminalWouldObeyIsNotPrinted(t *testing.T) {
	for text, want := range map[string]string{
		"plain \u00e4 \u4e16 \t": "plain \u00e4 \u4e16 \t",
		"\x1b]0;x\x07":           `\x1b]0;x\x07`,
		"\xff\u009b\u202e":       `\xff\xc2\x9b\xe2\x80\xae`,
		"\ufffd":                 "\ufffd",
	} {
		if got := readable(text); got != want {
			t.Errorf("%q is %q", text, got)
		}
	}
}

func TestProgress_ATerminalShowsWhichRowIsChecked(t *testing.T) {
	var out bytes.Buffer
	showProgress(&out, true)(conform.Row{ID: "burst"}, 3, 21)
	if got := out.String(); got != "\r\x1b[K3 of 21: burst" {
		t.Errorf("%q", got)
	}
	if showProgress(&out, false) != nil {
		t.Error("progress is shown although there is no terminal")
	}
}
