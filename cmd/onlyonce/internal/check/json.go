package check

import (
	"io"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/plain"
	"github.com/onlyonce-go/onlyonce/conform"
)

// A Document is a report as --format json prints it. Later versions may add members,
// but do not change existing ones.
type Document struct {
	Version      int       `json:"version"`
	Draft        string    `json:"draft"`
	Target       string    `json:"target"`
	Began        time.Time `json:"began"`
	Took         float64   `json:"took_seconds"`
	Requests     int       `json:"requests"`
	Passed       int       `json:"passed"`
	Failed       int       `json:"failed"`
	Critical     int       `json:"critical"` // how many of the failed rows are not advisory
	NotSupported int       `json:"not_supported"`
	Error        *string   `json:"error"` // why not all rows were checked
	Rows         []Row     `json:"rows"`
}

// A Row is the result of the check of one promise.
type Row struct {
	ID        string     `json:"id"`
	Title     string     `json:"title"`
	Verdict   string     `json:"verdict"` // pass, fail or not_supported
	Detail    string     `json:"detail"`
	Caveat    string     `json:"caveat"` // properties that a passed row could not observe; empty: none
	Section   string     `json:"section"`
	Advice    string     `json:"advice"`
	Advisory  bool       `json:"advisory"`
	Exchanges []exchange `json:"exchanges"`
}

type exchange struct {
	Note     string  `json:"note"`
	Request  string  `json:"request"`
	Response *string `json:"response"` // null: there was none
}

func writeJSON(out io.Writer, r conform.Report, err error) error {
	doc := Document{
		Version: 1, Draft: conform.Draft, Target: r.Target, Began: r.Began.UTC(), Took: r.Took.Seconds(), Requests: r.Requests,
		Passed: r.Count(conform.Pass), Failed: r.Count(conform.Fail), Critical: r.Critical(), NotSupported: r.Count(conform.NotSupported),
		Rows: []Row{},
	}
	if err != nil {
		text := readable(err.Error())
		doc.Error = &text
	}
	for _, row := range r.Rows {
		j := Row{
			ID: row.ID, Title: row.Title, Verdict: strings.ReplaceAll(string(row.Verdict), " ", "_"), Detail: readable(row.Detail), Caveat: readable(row.Caveat),
			Section: row.Section, Advice: row.Advice, Advisory: row.Advisory, Exchanges: []exchange{},
		}
		for _, e := range row.Exchanges {
			x := exchange{Note: e.Note, Request: message(e.Request)}
			if len(e.Response) > 0 {
				text := message(e.Response)
				x.Response = &text
			}
			j.Exchanges = append(j.Exchanges, x)
		}
		doc.Rows = append(doc.Rows, j)
	}
	enc := plain.NewJSONEncoder(out)
	enc.SetIndent("", "  ")
	return enc.Encode(doc)
}

// message returns a request or a response as text with its line breaks.
func message(raw []byte) string {
	list := strings.Split(strings.ReplaceAll(string(raw), "\r\n", "\n"), "\n")
	for i, line := range list {
		list[i] = readable(line)
	}
	return strings.Join(list, "\n")
}
