package messages

import (
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"math"

	"github.com/onlyonce-go/onlyonce/outbox"
	"github.com/onlyonce-go/onlyonce/stores/internal/engine"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
)

func places(s engine.Runner, statement string, args []driver.NamedValue) (list []place, err error) {
	err = s.Query(statement, args, func(v []driver.Value) error {
		r := record.Reader{Values: v}
		list = append(list, place{r.Int("seq"), r.Text("ordering_key")})
		return r.Err
	})
	return list, err
}

func seqs(s engine.Runner, statement string, args []driver.NamedValue) (list []int64, err error) {
	err = s.Query(statement, args, func(v []driver.Value) error {
		r := record.Reader{Values: v}
		list = append(list, r.Int("seq"))
		return r.Err
	})
	return list, err
}

func entries(s engine.Runner, statement string, args []driver.NamedValue) (list []outbox.Entry, err error) {
	err = s.Query(statement, args, func(v []driver.Value) error {
		list = append(list, entry(v))
		return nil
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

// entry makes a row an entry. A row that can't be decoded becomes a corrupt entry, because
// an error would hold up all other messages.
func entry(values []driver.Value) (e outbox.Entry) {
	r := record.Reader{Values: values}
	e.Seq = r.Int("seq")
	e.ID, e.Topic, e.Key, e.Tenant = r.Text("id"), r.Text("topic"), r.Text("ordering_key"), r.Text("tenant")
	headers := r.Text("headers")
	e.Payload, e.CreatedAt = r.Bytes("payload"), record.Instant(r.Int("created_at"))
	e.Attempts, e.Error = int(min(max(r.Int("attempts"), 0), maxAttempts)), r.Text("error")
	err := r.Err
	if err == nil {
		if err = json.Unmarshal([]byte(headers), &e.Headers); err != nil {
			e.Headers, err = nil, fmt.Errorf("headers: %w", err)
		}
	}
	if err != nil {
		e.Corrupt, e.Error = true, "the stored message can't be decoded: "+err.Error()
	}
	return e
}

// maxAttempts is the highest count of attempts that can still grow by one.
const maxAttempts = math.MaxInt32 - 1

// numbers makes a list of numbers one argument.
func numbers(list []int64) string {
	text, _ := json.Marshal(append([]int64{}, list...)) // nil would be null; numbers have no error
	return string(text)
}

// hexadecimal makes a list of texts one argument.
func hexadecimal(list []string) string {
	digits := make([]string, len(list))
	for i, text := range list {
		digits[i] = fmt.Sprintf("%X", text)
	}
	text, _ := json.Marshal(digits) // texts have no error
	return string(text)
}
