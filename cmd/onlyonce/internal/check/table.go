package check

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/onlyonce-go/onlyonce/conform"
)

// A reportWriter writes a report; err is the reason why it is incomplete, if it is.
type reportWriter func(out io.Writer, r conform.Report, err error) error

// tableWriter returns a writer of the requests and responses of failed rows, or of all
// rows if verbose is set, followed by a line for each row, with the details of rows
// that did not pass and the caveats of those that did.
func tableWriter(verbose bool) reportWriter {
	return func(out io.Writer, r conform.Report, _ error) error {
		if len(r.Rows) == 0 {
			return nil
		}
		var b bytes.Buffer
		for _, row := range r.Rows {
			if row.Verdict == conform.Fail || verbose {
				exchanges(&b, row)
			}
		}
		fmt.Fprintf(&b, "%s\n%d requests in %v; section numbers are those of\n%s\n\n", readable(r.Target), r.Requests, r.Took.Round(10*time.Millisecond), conform.Draft)
		for _, row := range r.Rows {
			line(&b, row, verbose)
		}
		fmt.Fprintf(&b, "\n%d pass, %s, %d not supported\n", r.Count(conform.Pass), failures(r), r.Count(conform.NotSupported))
		_, err := out.Write(b.Bytes())
		return err
	}
}

// failures says how many rows have failed, and how many of them are critical.
func failures(r conform.Report) string {
	n, critical := r.Count(conform.Fail), r.Critical()
	if n == 0 {
		return "0 fail"
	}
	return fmt.Sprintf("%d fail (%d critical)", n, critical)
}

func line(b *bytes.Buffer, row conform.Row, verbose bool) {
	const margin = 28
	fmt.Fprintf(b, "%-13s  %-11s  %s\n", verdictOf(row), row.ID, row.Title)
	if row.Verdict != conform.Pass || verbose {
		indent(b, margin, detailOf(row))
	} else if row.Caveat != "" {
		indent(b, margin, readable(row.Caveat))
	}
	if row.Verdict == conform.Fail {
		indent(b, margin, "What to do: "+row.Advice)
	}
	if row.Section != "" && (row.Verdict == conform.Fail || verbose) {
		indent(b, margin, "Section "+row.Section+" of the draft.")
	}
}

// detailOf returns the observations of a row, and its limits.
func detailOf(row conform.Row) string {
	return strings.TrimSuffix(readable(row.Detail)+" "+readable(row.Caveat), " ")
}

// verdictOf returns the verdict of a row. A failure that is not advisory stands out.
func verdictOf(row conform.Row) string {
	if row.Verdict == conform.Fail && !row.Advisory {
		return "FAIL"
	}
	return string(row.Verdict)
}

// indent writes text in lines of a terminal's width.
func indent(b *bytes.Buffer, by int, text string) {
	const width = 100
	margin := strings.Repeat(" ", by)
	b.WriteString(margin)
	column := by
	for i, word := range strings.Fields(text) {
		switch {
		case i > 0 && column+1+len(word) > width:
			b.WriteString("\n" + margin)
			column = by
		case i > 0:
			b.WriteString(" ")
			column++
		}
		b.WriteString(word)
		column += len(word)
	}
	b.WriteString("\n")
}

// exchanges writes a row's requests and responses line by line.
func exchanges(b *bytes.Buffer, row conform.Row) {
	for i, e := range row.Exchanges {
		fmt.Fprintf(b, "%s, %d of %d: %s\n", row.ID, i+1, len(row.Exchanges), e.Note)
		lines(b, "  > ", e.Request)
		if len(e.Response) == 0 {
			b.WriteString("  < (no response)\n")
		}
		lines(b, "  < ", e.Response)
		b.WriteString("\n")
	}
}

func lines(b *bytes.Buffer, prefix string, message []byte) {
	text := strings.TrimRight(strings.ReplaceAll(string(message), "\r\n", "\n"), "\n")
	if text == "" {
		return
	}
	for line := range strings.SplitSeq(text, "\n") {
		b.WriteString(strings.TrimRight(prefix+readable(line), " ") + "\n")
	}
}

// readable returns text with the characters that a terminal or a document could
// interpret escaped as \xNN.
func readable(text string) string {
	var b strings.Builder
	for len(text) > 0 {
		r, n := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && n == 1, r != '\t' && !strconv.IsPrint(r):
			for i := range n {
				fmt.Fprintf(&b, `\x%02x`, text[i])
			}
		default:
			b.WriteString(text[:n])
		}
		text = text[n:]
	}
	return b.String()
}
