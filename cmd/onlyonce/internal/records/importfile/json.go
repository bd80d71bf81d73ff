package importfile

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/onlyonce-go/onlyonce"
)

// longestLine is how many bytes a line of JSON may have.
const longestLine = 64 << 20

// JSONLines reads a JSON object from each line. Empty lines are skipped.
func JSONLines(r io.Reader) iter.Seq[Line] {
	return func(yield func(Line) bool) {
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
			var l Line
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
			yield(Line{number: number + 1, err: err})
		}
	}
}

func (l *Line) parseJSON(text []byte) error {
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
		if _, err := onlyonce.FingerprintJSON(text); err != nil {
			return fmt.Errorf("the line is not strict JSON: %w", err)
		}
		return nil
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("the JSON object is not complete: write it on one line")
	case errors.As(err, &wrongType) && wrongType.Field == "":
		return fmt.Errorf("the line is a JSON %s: write an object", wrongType.Value)
	case errors.As(err, &wrongType):
		name, _, _ := strings.Cut(wrongType.Field, ".")
		for _, f := range fields {
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
