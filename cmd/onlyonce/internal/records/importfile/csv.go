package importfile

import (
	"bufio"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/onlyonce-go/onlyonce"
)

// CSVLines reads the rows of a CSV file whose first row has the names of the columns.
func CSVLines(r io.Reader) iter.Seq[Line] {
	return func(yield func(Line) bool) {
		in := bufio.NewReader(r)
		if mark, err := in.Peek(len(byteOrderMark)); err == nil && string(mark) == byteOrderMark {
			_, _ = in.Discard(len(byteOrderMark))
		}
		rows := csv.NewReader(&exactCells{in: in})
		columns, err := rows.Read()
		if err == io.EOF {
			yield(Line{number: 1, err: errors.New("the file is empty: its first line must have the names of the columns")})
			return
		}
		if err == nil {
			err = checkColumns(columns)
		}
		if err != nil {
			yield(Line{number: 1, err: csvError(err)})
			return
		}
		number := 1 // of the last line that was read
		for {
			cells, err := rows.Read()
			if err == io.EOF {
				return
			}
			var l Line
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

// An exactCells is a CSV file in which each CR LF inside quotes has another CR before it. A
// csv.Reader removes a CR before each line feed, and cells keep the bytes of a response.
type exactCells struct {
	in     *bufio.Reader
	quoted bool // inside quotes
	again  bool // a CR is written once more
}

func (e *exactCells) Read(p []byte) (n int, err error) {
	for ; n < len(p); n++ {
		if e.again {
			p[n], e.again = '\r', false
			continue
		}
		if p[n], err = e.in.ReadByte(); err != nil {
			return n, err
		}
		switch p[n] {
		case '"':
			e.quoted = !e.quoted
		case '\r':
			next, _ := e.in.Peek(1) // the next ReadByte returns the error
			e.again = e.quoted && string(next) == "\n"
		}
	}
	return n, nil
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
var cellParsers = map[string]func(*Line, string) error{
	"key":         func(l *Line, cell string) error { l.Key = cell; return nil },
	"fingerprint": func(l *Line, cell string) error { l.Fingerprint = cell; return nil },
	"state":       func(l *Line, cell string) error { l.State = onlyonce.State(cell); return nil },
	"status_code": func(l *Line, cell string) error {
		status, err := strconv.Atoi(cell)
		if err != nil {
			return fmt.Errorf("%q is not a number", cell)
		}
		l.StatusCode = &status
		return nil
	},
	"header": func(l *Line, cell string) error {
		if _, err := onlyonce.FingerprintJSON([]byte(cell)); err != nil || json.Unmarshal([]byte(cell), &l.Header) != nil {
			return fmt.Errorf(`%q is not valid: write a JSON object of lists of strings, such as {"Content-Type": ["application/json"]}`, cell)
		}
		return nil
	},
	"body_base64": func(l *Line, cell string) error { l.BodyEncoded = &cell; return nil },
	"expires_at": func(l *Line, cell string) error {
		l.ExpiresAt = new(instant)
		return l.ExpiresAt.UnmarshalText([]byte(cell))
	},
	"created_at": func(l *Line, cell string) error {
		l.CreatedAt = new(instant)
		return l.CreatedAt.UnmarshalText([]byte(cell))
	},
	"keep_left_seconds":        func(l *Line, cell string) error { return l.KeepLeft.UnmarshalJSON([]byte(cell)) },
	"result_keep_left_seconds": func(l *Line, cell string) error { return l.ResultLeft.UnmarshalJSON([]byte(cell)) },
	"ref":                      func(l *Line, cell string) error { l.Ref = cell; return nil },
	"summary":                  func(l *Line, cell string) error { l.Summary = cell; return nil },
	"error":                    func(l *Line, cell string) error { l.Error = cell; return nil },
}

// emptyCells set a field whose empty cell has a meaning.
var emptyCells = map[string]func(*Line, string){
	"tenant":    func(l *Line, cell string) { l.Tenant = &cell },
	"operation": func(l *Line, cell string) { l.Operation = &cell },
	"body": func(l *Line, cell string) {
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

func (l *Line) parseRow(columns, cells []string) error {
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
