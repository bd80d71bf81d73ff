package dynamofake

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
)

// An entry of a journal is a request that has changed something.
type entry struct {
	Operation string
	Body      json.RawMessage
}

// New returns a server that does not listen yet: its caller serves the requests. With a
// path, it replays the journal in that file, and adds a request to it before the
// response of that request is sent. So every write that a server has confirmed is there in the next one
// with the same journal, even if its process was killed; a machine that fails may lose some.
func New(journal string) (*Server, error) {
	s := &Server{MostBytes: 4 << 20, tables: make(map[string]*table), rng: rand.New(rand.NewPCG(1, 2))}
	if journal == "" {
		return s, nil
	}
	if err := s.replay(journal); err != nil {
		return nil, err
	}
	return s, s.rewrite(journal)
}

// replay executes the requests of a journal. The last one may be truncated, and was not confirmed then.
func (s *Server) replay(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	defer f.Close()
	for in := json.NewDecoder(f); ; {
		var e entry
		switch err := in.Decode(&e); {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return nil
		case err != nil:
			return err
		}
		if _, failed := operations[e.Operation](s, e.Body); failed != nil {
			return fmt.Errorf("replay %s: %w", e.Operation, failed)
		}
	}
}

// rewrite begins a new journal with the current items.
func (s *Server) rewrite(path string) (err error) {
	if s.journal, err = os.Create(path + ".new"); err != nil {
		return err
	}
	for _, t := range s.tables {
		for _, e := range t.setup {
			s.note(e.Operation, e.Body)
		}
		if t.ttl != "" {
			s.note("UpdateTimeToLive", map[string]any{"TableName": t.name, "TimeToLiveSpecification": map[string]any{"AttributeName": t.ttl, "Enabled": true}})
		}
		for _, key := range slices.Sorted(maps.Keys(t.items)) {
			s.note("PutItem", map[string]any{"TableName": t.name, "Item": t.items[key]})
		}
	}
	return os.Rename(path+".new", path)
}

// changing are the operations that a journal has.
var changing = map[string]bool{
	"CreateTable": true, "UpdateTable": true, "DeleteTable": true, "UpdateTimeToLive": true, "PutItem": true, "UpdateItem": true, "DeleteItem": true, "TransactWriteItems": true,
}

// note adds a request that has changed something to the journal.
func (s *Server) note(operation string, body any) {
	if s.journal == nil || !changing[operation] {
		return
	}
	raw, err := json.Marshal(body)
	if err == nil {
		err = json.NewEncoder(s.journal).Encode(entry{operation, raw})
	}
	if err != nil {
		panic(fmt.Sprintf("dynamofake: write the journal: %v", err)) // nothing may be confirmed
	}
}
