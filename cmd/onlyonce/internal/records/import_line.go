package records

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/csv"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cli"
	"github.com/onlyonce-go/onlyonce/internal/defaults"
	"github.com/onlyonce-go/onlyonce/internal/httpfield"
	"github.com/onlyonce-go/onlyonce/internal/secretname"
)

// longestLine is how many bytes a line of JSON may have.
const longestLine = 64 << 20

// longestKeep is the longest time for which an import keeps a record that expires. A later
// instant is a mistake more often than not.
const longestKeep = 10 * 365 * 24 * time.Hour

// longestFingerprint is that of SHA-512, in bytes.
const longestFingerprint = 64

// An importLine is a line of a file to import. Its names are those that export writes.
type importLine struct {
	Tenant      *string             `json:"tenant"`
	Operation   *string             `json:"operation"`
	Key         string              `json:"key"`
	Fingerprint string              `json:"fingerprint"` // hexadecimal
	State       onlyonce.State      `json:"state"`
	StatusCode  *int                `json:"status_code"`
	Header      map[string][]string `json:"header"`
	Body        *string             `json:"body"`
	BodyEncoded *string             `json:"body_base64"`
	ExpiresAt   *importTime         `json:"expires_at"`
	CreatedAt   *importTime         `json:"created_at"`
	KeepLeft    keepLeft            `json:"keep_left_seconds"`
	ResultLeft  keepLeft            `json:"result_keep_left_seconds"`
	Ref         string              `json:"ref"`
	Summary     string              `json:"summary"`
	Error       string              `json:"error"`
	Steps       []string            `json:"steps"`
	Corrupt     bool                `json:"corrupt"`
	exportedOnly

	number int
	err    error // of a line that can't be read
}

// exportedOnly are the fields that export writes and import ignores: they describe the
// record in the store that it came from.
type exportedOnly struct {
	ID          json.RawMessage `json:"id"`
	Attempt     json.RawMessage `json:"attempt"`
	Fence       json.RawMessage `json:"fence"`
	SettledAt   json.RawMessage `json:"settled_at"`
	LeaseLeft   json.RawMessage `json:"lease_left_seconds"`
	Traceparent json.RawMessage `json:"traceparent"`
	Final       json.RawMessage `json:"final"`
	BodySize    json.RawMessage `json:"body_size"`
	Owner       json.RawMessage `json:"owner"`
	StepResults json.RawMessage `json:"step_results_base64"`
}

// importFields are the names of a line's fields, for messages, with the types that they
// must have.
var importFields = []struct{ name, kind string }{
	{"tenant", "a string"},
	{"operation", "a string"},
	{"key", "a string"},
	{"fingerprint", "a string of hexadecimal digits"},
	{"state", "completed or unknown"},
	{"status_code", "a number"},
	{"header", `an object of lists of strings, such as {"Content-Type": ["application/json"]}`},
	{"body", "a string"},
	{"body_base64", "a string"},
	{"expires_at", "a string such as 2026-01-02T15:04:05Z"},
	{"created_at", "a string such as 2026-01-02T15:04:05Z"},
	{"keep_left_seconds", "a number, or null for a record that stays until someone resolves it"},
	{"result_keep_left_seconds", "a number, if the response is deleted before the record"},
	{"ref", "a string"},
	{"summary", "a string"},
	{"error", "a string"},
}

func errUnknownField(what, name string) error {
	names := make([]string, len(importFields))
	for i, f := range importFields {
		names[i] = f.name
	}
	return fmt.Errorf("the %s %q is not known: write %v", what, name, cli.Choice(names))
}

// An importTime is an instant in RFC 3339.
type importTime struct{ time.Time }

// UnmarshalText parses the time. It hides the method of time.Time, whose error does not
// say what to write.
func (t *importTime) UnmarshalText(text []byte) (err error) {
	if t.Time, err = time.Parse(time.RFC3339, string(text)); err != nil {
		return fmt.Errorf("%q is not a time: write one such as 2026-01-02T15:04:05Z", text)
	}
	return nil
}

// UnmarshalJSON hides the method of time.Time.
func (t *importTime) UnmarshalJSON(text []byte) error {
	var s string
	if err := json.Unmarshal(text, &s); err != nil {
		return fmt.Errorf("%s is not a time: write a string such as \"2026-01-02T15:04:05Z\"", text)
	}
	return t.UnmarshalText([]byte(s))
}

// keepLeft is how long an exported record was still kept.
type keepLeft struct {
	given bool
	keep  time.Duration // or onlyonce.KeepForever
}

// UnmarshalJSON parses a number of seconds, or null.
func (k *keepLeft) UnmarshalJSON(text []byte) error {
	k.given = true
	if string(text) == "null" {
		k.keep = onlyonce.KeepForever
		return nil
	}
	seconds, err := strconv.ParseFloat(string(text), 64)
	if err != nil || !(seconds > 0 && seconds <= longestKeep.Seconds()) {
		return fmt.Errorf("keep_left_seconds is %s: write a number of more than 0, or null for a record that stays until someone resolves it", text)
	}
	k.keep = max(time.Duration(seconds*float64(time.Second)), 1)
	return nil
}

// jsonLines reads a JSON object from each line. Empty lines are skipped.
func jsonLines(r io.Reader) iter.Seq[importLine] {
	return func(yield func(importLine) bool) {
		text := bufio.NewScanner(r)
		text.Buffer(nil, longestLine)
		number := 0
		for text.Scan() {
			number++
			line := text.Bytes()
			if number == 1 {
				line = bytes.TrimPrefix(line, []byte(byteOrderMark))
			}
			if line = bytes.TrimSpace(line); len(line) == 0 {
				continue
			}
			var l importLine
			err := l.parseJSON(line)
			l.number, l.err = number, err
			if !yield(l) {
				return
			}
		}
		if err := text.Err(); err != nil {
			if errors.Is(err, bufio.ErrTooLong) {
				err = fmt.Errorf("the line has more than %d bytes", longestLine)
			}
			yield(importLine{number: number + 1, err: err})
		}
	}
}

const byteOrderMark = "\ufeff"

func (l *importLine) parseJSON(text []byte) error {
	if !utf8.Valid(text) {
		return errNotUTF8
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	err := d.Decode(l)
	if _, more := d.Token(); err == nil && more != io.EOF {
		err = errors.New("something follows the JSON object: write one object per line")
	}
	var wrongType *json.UnmarshalTypeError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("the JSON object is not complete: write it on one line")
	case errors.As(err, &wrongType) && wrongType.Field == "":
		return fmt.Errorf("the line is a JSON %s: write an object", wrongType.Value)
	case errors.As(err, &wrongType):
		name, _, _ := strings.Cut(wrongType.Field, ".")
		for _, f := range importFields {
			if f.name == name {
				return fmt.Errorf("the field %s is or contains a JSON %s: write %s", name, wrongType.Value, f.kind)
			}
		}
	}
	what := strings.TrimPrefix(err.Error(), "json: ")
	if name, ok := strings.CutPrefix(what, "unknown field "); ok {
		if name, quoted := strconv.Unquote(name); quoted == nil {
			return errUnknownField("field", name)
		}
	}
	return errors.New(what)
}

var errNotUTF8 = errors.New("the line is not UTF-8: convert the file, and write bodies that are not text as body_base64")

// csvLines reads the rows of a CSV file whose first row has the names of the columns.
func csvLines(r io.Reader) iter.Seq[importLine] {
	return func(yield func(importLine) bool) {
		in := bufio.NewReader(r)
		if mark, err := in.Peek(len(byteOrderMark)); err == nil && string(mark) == byteOrderMark {
			_, _ = in.Discard(len(byteOrderMark))
		}
		rows := csv.NewReader(in)
		columns, err := rows.Read()
		if err == io.EOF {
			yield(importLine{number: 1, err: errors.New("the file is empty: its first line must have the names of the columns")})
			return
		}
		if err == nil {
			err = checkColumns(columns)
		}
		if err != nil {
			yield(importLine{number: 1, err: csvError(err)})
			return
		}
		number := 1 // of the last line that was read
		for {
			cells, err := rows.Read()
			if err == io.EOF {
				return
			}
			var l importLine
			var malformed *csv.ParseError
			switch {
			case errors.As(err, &malformed):
				number, l.err = malformed.StartLine, csvError(err)
			case err != nil:
				number, l.err = number+1, err
			default:
				number, _ = rows.FieldPos(0)
				l.err = l.parseRow(columns, cells)
			}
			l.number = number
			if !yield(l) || err != nil && !errors.Is(err, csv.ErrFieldCount) {
				return // where the next row begins is not known
			}
		}
	}
}

// csvError leaves out the position in the error of a CSV reader, which the line has.
func csvError(err error) error {
	var malformed *csv.ParseError
	if !errors.As(err, &malformed) {
		return err
	}
	if malformed.Err == csv.ErrFieldCount {
		return errors.New("the row does not have as many cells as the first line has columns")
	}
	return fmt.Errorf("column %d: %w", malformed.Column, malformed.Err)
}

// cellParsers set a field to the text of a cell that is not empty.
var cellParsers = map[string]func(*importLine, string) error{
	"key":         func(l *importLine, cell string) error { l.Key = cell; return nil },
	"fingerprint": func(l *importLine, cell string) error { l.Fingerprint = cell; return nil },
	"state":       func(l *importLine, cell string) error { l.State = onlyonce.State(cell); return nil },
	"status_code": func(l *importLine, cell string) error {
		status, err := strconv.Atoi(cell)
		if err != nil {
			return fmt.Errorf("%q is not a number", cell)
		}
		l.StatusCode = &status
		return nil
	},
	"header": func(l *importLine, cell string) error {
		d := json.NewDecoder(strings.NewReader(cell))
		err := d.Decode(&l.Header)
		if _, more := d.Token(); err != nil || more != io.EOF {
			return fmt.Errorf(`%q is not valid: write a JSON object of lists of strings, such as {"Content-Type": ["application/json"]}`, cell)
		}
		return nil
	},
	"body_base64": func(l *importLine, cell string) error { l.BodyEncoded = &cell; return nil },
	"expires_at": func(l *importLine, cell string) error {
		l.ExpiresAt = new(importTime)
		return l.ExpiresAt.UnmarshalText([]byte(cell))
	},
	"created_at": func(l *importLine, cell string) error {
		l.CreatedAt = new(importTime)
		return l.CreatedAt.UnmarshalText([]byte(cell))
	},
	"keep_left_seconds":        func(l *importLine, cell string) error { return l.KeepLeft.UnmarshalJSON([]byte(cell)) },
	"result_keep_left_seconds": func(l *importLine, cell string) error { return l.ResultLeft.UnmarshalJSON([]byte(cell)) },
	"ref":                      func(l *importLine, cell string) error { l.Ref = cell; return nil },
	"summary":                  func(l *importLine, cell string) error { l.Summary = cell; return nil },
	"error":                    func(l *importLine, cell string) error { l.Error = cell; return nil },
}

// emptyCells set a field whose empty cell has a meaning.
var emptyCells = map[string]func(*importLine, string){
	"tenant":    func(l *importLine, cell string) { l.Tenant = &cell },
	"operation": func(l *importLine, cell string) { l.Operation = &cell },
	"body": func(l *importLine, cell string) {
		if cell != "" || l.BodyEncoded == nil {
			l.Body = &cell
		}
	},
}

// checkColumns rejects names of columns that are not known, or that are there twice.
func checkColumns(columns []string) error {
	for i, name := range columns {
		if _, ok := cellParsers[name]; !ok && emptyCells[name] == nil {
			return errUnknownField("column", name)
		}
		if slices.Contains(columns[:i], name) {
			return fmt.Errorf("there are two columns %s: leave one out", name)
		}
	}
	return nil
}

func (l *importLine) parseRow(columns, cells []string) error {
	for i, name := range columns {
		cell := cells[i]
		if !utf8.ValidString(cell) {
			return errNotUTF8
		}
		if set := emptyCells[name]; set != nil {
			set(l, cell)
			continue
		}
		if cell == "" {
			continue
		}
		if err := cellParsers[name](l, cell); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// An importEntry is a checked line.
type importEntry struct {
	line        int
	id          onlyonce.ID
	owner       string
	fingerprint []byte // nil: requests are not compared
	summary     string
	settlement  onlyonce.Settlement
	expires     time.Time     // zero: keep counts
	keep        time.Duration // from the moment at which the record is written, or onlyonce.KeepForever
}

// entry checks the line. Its error says what to write instead.
func (l *importLine) entry(set importSettings) (importEntry, error) {
	e := importEntry{line: l.number, summary: l.Summary}
	if l.err != nil {
		return e, l.err
	}
	if l.State == onlyonce.StateRemembered {
		return e, errors.New("only the ID is left of the command, which ended, and can't be imported: leave the line out; a repeat then runs the command again")
	}
	for _, check := range []func(*importLine, importSettings) error{
		e.setID, e.setFingerprint, e.setOutcome, e.setResponse, e.setKeep,
	} {
		if err := check(l, set); err != nil {
			return e, err
		}
	}
	e.owner = e.newOwner()
	return e, nil
}

func (e *importEntry) setID(l *importLine, _ importSettings) error {
	switch {
	case l.Tenant == nil:
		return errors.New("tenant is missing: write the tenant that the program finds for the request, or an empty one on purpose")
	case l.Operation == nil:
		return errors.New(`operation is missing: write the operation that the program finds for the request, such as "POST /orders"`)
	case l.Key == "":
		return errors.New("key is missing: write the idempotency key")
	case len(l.Summary) > onlyonce.LongestSummary:
		return fmt.Errorf("summary has %d bytes: write at most %d", len(l.Summary), onlyonce.LongestSummary)
	}
	e.id = onlyonce.ID{Tenant: *l.Tenant, Operation: *l.Operation, Key: l.Key}
	for _, part := range []string{e.id.Tenant, e.id.Operation, e.id.Key} {
		if len(part) > defaults.LongestIDPart {
			return fmt.Errorf("a tenant, operation or key has %d bytes: no program accepts more than %d", len(part), defaults.LongestIDPart)
		}
	}
	return nil
}

func (e *importEntry) setFingerprint(l *importLine, set importSettings) (err error) {
	if l.Fingerprint == "" {
		if !set.skipFingerprint {
			return errors.New("fingerprint is missing: write the one that the program computes for the request, or pass --skip-fingerprint to accept any request under the key")
		}
		return nil
	}
	e.fingerprint, err = hex.DecodeString(l.Fingerprint)
	if err != nil || len(e.fingerprint) > longestFingerprint {
		return fmt.Errorf("fingerprint is not valid: write 2 to %d hexadecimal digits", 2*longestFingerprint)
	}
	return nil
}

func (e *importEntry) setOutcome(l *importLine, _ importSettings) error {
	e.settlement = onlyonce.Settlement{State: onlyonce.StateCompleted, Error: l.Error}
	switch {
	case l.Corrupt:
		return errors.New("the record could not be read when it was exported: leave the line out, and resolve the record in the store that it came from")
	case len(l.Error) > defaults.LongestErrorText:
		return fmt.Errorf("error has %d bytes: write at most %d", len(l.Error), defaults.LongestErrorText)
	case l.State == "" || l.State == onlyonce.StateCompleted:
		return nil
	case l.State == onlyonce.StateFailed:
		return errors.New("the command failed, and a retry runs it again without a record, too: leave the line out, or write the state completed if its response must be replayed")
	case l.State != onlyonce.StateUnknown:
		return fmt.Errorf("the state %q can't be imported: write completed, or unknown if nobody knows whether the command took effect", l.State)
	case len(l.Steps) > 0:
		return errors.New("the command has finished steps, which can't be imported: leave the line out, and resolve the record in the store that it came from")
	}
	e.settlement.State = onlyonce.StateUnknown
	if e.settlement.Error == "" {
		e.settlement.Error = "the command ran before it was imported, and its outcome is not known"
	}
	return nil
}

func (e *importEntry) setResponse(l *importLine, set importSettings) (err error) {
	r := onlyonce.Result{Ref: l.Ref}
	switch {
	case l.Body != nil && l.BodyEncoded != nil:
		return errors.New("there are both body and body_base64: leave one out")
	case l.Body != nil && *l.Body != "":
		r.Body = []byte(*l.Body)
	case l.BodyEncoded != nil:
		if r.Body, err = base64.StdEncoding.DecodeString(*l.BodyEncoded); err != nil {
			return errors.New("body_base64 is not valid: write base64 with the standard alphabet and with padding")
		}
	}
	if l.StatusCode != nil {
		r.Status = *l.StatusCode
	}
	if r.Header, err = responseHeader(l.Header, len(r.Body), set.allowHeaders); err != nil {
		return err
	}
	switch unknown := e.settlement.State == onlyonce.StateUnknown; {
	case unknown && (r.Status != 0 || len(r.Header) > 0 || len(r.Body) > 0):
		return errors.New("a command whose outcome is unknown has no response: leave out status_code, header and body")
	case unknown:
	case l.StatusCode == nil:
		return errors.New("status_code is missing: write the HTTP status of the response, or 0 for a call of Do")
	case r.Status != 0 && (r.Status < 200 || r.Status > 599):
		return fmt.Errorf("status_code is %d: write 200 to 599, or 0 for a call of Do", r.Status)
	case r.Status == 0 && !json.Valid(r.Body):
		return errors.New("the status_code 0 is that of a call of Do, whose body is the JSON of its value, such as null: write it, or the HTTP status of the response")
	}
	e.settlement.Result = r
	return nil
}

// isNeverReplayed reports whether a header belongs to one response, so that a stored response does
// not have it.
func isNeverReplayed(name string) bool {
	switch name {
	case "Trailer", "Date", "Set-Cookie":
		return true
	}
	return httpfield.OfConnection(name) || httpfield.OfResponse(name)
}

// looksSecret reports whether a header, by its canonical name, looks like that of a credential, so
// that programs do not store it by default.
func looksSecret(name string) bool {
	return name != "Idempotency-Key" && name != "Surrogate-Key" && secretname.OfCredential(name)
}

// responseHeader returns a header with canonical names.
func responseHeader(given map[string][]string, bodySize int, allowed []string) (map[string][]string, error) {
	isAllowed := func(name string) bool {
		return slices.ContainsFunc(allowed, func(a string) bool { return strings.EqualFold(a, name) })
	}
	if len(given) == 0 {
		return nil, nil
	}
	h := make(http.Header, len(given))
	for _, name := range slices.Sorted(maps.Keys(given)) {
		canonical := http.CanonicalHeaderKey(name)
		switch {
		case !httpfield.IsToken(name):
			return nil, fmt.Errorf("header has the name %q, which no HTTP header can have", name)
		case h[canonical] != nil:
			return nil, fmt.Errorf("header has %s twice: write one list with all values", canonical)
		case isNeverReplayed(canonical):
			return nil, fmt.Errorf("header has %s, which is not replayed: leave it out", canonical)
		case looksSecret(canonical) && !isAllowed(canonical):
			return nil, fmt.Errorf("header has %s, whose name looks like that of a credential, which programs do not store by default: leave it out, or pass --allow-header %s if it is to be replayed", canonical, canonical)
		}
		for _, value := range given[name] {
			if !httpfield.IsText(value) {
				return nil, fmt.Errorf("header has a control character in the value of %s", canonical)
			}
			if canonical == "Content-Length" && value != strconv.Itoa(bodySize) {
				return nil, fmt.Errorf("header has the Content-Length %s, and the body has %d bytes: leave the header out, or complete the body", value, bodySize)
			}
		}
		h[canonical] = given[name]
	}
	return h, nil
}

func (e *importEntry) setKeep(l *importLine, set importSettings) error {
	switch {
	case l.ExpiresAt != nil && l.KeepLeft.given:
		return errors.New("there are both expires_at and keep_left_seconds: leave one out")
	case l.ExpiresAt != nil:
		e.expires = l.ExpiresAt.Time
	case l.KeepLeft.given:
		e.keep = l.KeepLeft.keep
	case set.keep == 0 || e.settlement.State == onlyonce.StateUnknown:
		e.keep = onlyonce.KeepForever
	case l.CreatedAt != nil:
		e.expires = l.CreatedAt.Add(set.keep)
	default:
		e.keep = set.keep
	}
	if l.ResultLeft.given && l.ResultLeft.keep > 0 {
		if e.settlement.State == onlyonce.StateUnknown {
			return errors.New("a command whose outcome is unknown has no response: leave out result_keep_left_seconds")
		}
		e.settlement.Result.Keep = l.ResultLeft.keep
	}
	if e.expires.After(time.Now().Add(longestKeep)) {
		return fmt.Errorf("the key would be kept until %s: write a time within ten years", e.expires.Format(time.DateOnly))
	}
	return nil
}

// keepAt returns how long a record that is written now is kept, or 0 if it has expired.
func (e *importEntry) keepAt(now time.Time) time.Duration {
	if e.expires.IsZero() {
		return e.keep
	}
	return max(e.expires.Sub(now), 0)
}

// newOwner returns the owner of the claims for this line. It is not random, but the same in
// every import of the line: the store then recognizes a claim that an earlier, interrupted
// import made for it, and grants it again. A line with another content has another owner.
func (e *importEntry) newOwner() string {
	r := e.settlement.Result
	parts := [][]byte{
		[]byte("onlyonce records import"), []byte(e.id.Tenant), []byte(e.id.Operation), []byte(e.id.Key), e.fingerprint, []byte(e.summary),
		[]byte(e.settlement.State), []byte(e.settlement.Error), []byte(strconv.Itoa(r.Status)), []byte(r.Ref), r.Body,
	}
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		parts = append(parts, []byte(name), []byte(strconv.Itoa(len(r.Header[name]))))
		for _, value := range r.Header[name] {
			parts = append(parts, []byte(value))
		}
	}
	return string(onlyonce.Fingerprint(parts...)[:16])
}

// isHeldFor reports whether r is a record that an import of this line has claimed and not
// completed.
func (e *importEntry) isHeldFor(r onlyonce.Record) bool {
	return r.Owner == e.owner && r.State == onlyonce.StateProcessing
}
