package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// results are the results of a run.
type results struct {
	Date    string    `json:"date"`
	Go      string    `json:"go"`
	Node    string    `json:"node"`
	Checked []checked `json:"checked"` // in the order of implementations
}

// A checked is an implementation that was checked.
type checked struct {
	ID      string   `json:"id"`
	Version string   `json:"version,omitempty"`
	Error   string   `json:"error,omitempty"` // why not all rows were checked
	Rows    []result `json:"rows"`
}

// A result is what the check of an implementation says about one of its rows.
type result struct {
	ID       string   `json:"id"`
	Title    string   `json:"title"`
	Verdict  verdict  `json:"verdict"`
	Advisory bool     `json:"advisory,omitempty"`
	Detail   string   `json:"detail"`
	Bytes    []string `json:"bytes,omitempty"` // for a row that failed: the requests and responses, shortened
}

type verdict string

// The verdicts of onlyonce check --format json.
const (
	pass         verdict = "pass"
	fail         verdict = "fail"
	notSupported verdict = "not_supported"
)

func (r results) encode() ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", " ")
	err := enc.Encode(r)
	return b.Bytes(), err
}

// A document is the part of the report of onlyonce check --format json that the page needs.
type document struct {
	Error *string `json:"error"`
	Rows  []struct {
		ID, Title string
		Verdict   verdict
		Detail    string
		Advisory  bool
		Exchanges []exchange
	} `json:"rows"`
}

// An exchange is a request and its response.
type exchange struct {
	Note, Request string
	Response      *string // nil: there was none
}

func (d document) checked(id, version string) checked {
	c := checked{ID: id, Version: version}
	if d.Error != nil {
		c.Error = *d.Error
	}
	for _, row := range d.Rows {
		r := result{ID: row.ID, Title: row.Title, Verdict: row.Verdict, Advisory: row.Advisory, Detail: row.Detail}
		if row.Verdict == fail {
			for _, x := range row.Exchanges {
				r.Bytes = append(r.Bytes, x.lines()...)
			}
		}
		c.Rows = append(c.Rows, r)
	}
	return c
}

// lines returns the exchange in lines, in the way of curl: > is before what was sent, and < before
// what was received.
func (x exchange) lines() []string {
	lines := append([]string{"# " + x.Note}, message("> ", x.Request)...)
	if x.Response == nil {
		return append(lines, "< (no response)")
	}
	return append(lines, message("< ", *x.Response)...)
}

// unremarkable are the headers, in lower case, that say nothing about idempotency and are the same
// in all requests, or different in all responses.
var unremarkable = map[string]bool{
	"accept": true, "connection": true, "content-length": true, "date": true, "host": true, "keep-alive": true,
	"transfer-encoding": true, "user-agent": true, "vary": true, "x-account": true, "x-powered-by": true,
}

// The number of bytes of a line, and the number of lines of a body, that the page shows.
const (
	maxLine  = 150
	maxLines = 3
)

// message returns the lines of a request or a response that are shown.
func message(prefix, text string) []string {
	head, body, _ := strings.Cut(text, "\n\n")
	var lines []string
	for i, line := range strings.Split(head, "\n") {
		switch name, _, _ := strings.Cut(line, ":"); {
		case i == 0:
			line = strings.TrimPrefix(strings.TrimSuffix(line, " HTTP/1.1"), "HTTP/1.1 ")
		case unremarkable[strings.ToLower(name)]:
			continue
		case prefix == "> " && strings.EqualFold(name, "Content-Type"):
			continue
		}
		lines = append(lines, prefix+shorten(line))
	}
	if body = strings.TrimSpace(body); body == "" {
		return lines
	}
	rest := strings.Split(body, "\n")
	for _, line := range rest[:min(len(rest), maxLines)] {
		lines = append(lines, prefix+shorten(line))
	}
	if more := len(rest) - maxLines; more > 0 {
		lines = append(lines, fmt.Sprintf("%s… (%d more lines)", prefix, more))
	}
	return lines
}

// shorten returns the beginning of a line that is too long.
func shorten(line string) string {
	if len(line) <= maxLine {
		return line
	}
	end := maxLine
	for !utf8.RuneStart(line[end]) {
		end--
	}
	return fmt.Sprintf("%s… (%d more bytes)", line[:end], len(line)-end)
}
