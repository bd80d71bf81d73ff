package proxy

import (
	"bytes"
	"net/http"
	"strings"

	"github.com/onlyonce-go/onlyonce/proxy/internal/syntax"
)

// A requestScanner follows the bytes of an HTTP/1 connection, and finds what may be read in
// two ways: RFC 9112. Between two heads it keeps no memory.
type requestScanner struct {
	state   state
	part    []byte // of a line of which the rest is still to come
	left    int64  // of the body, or of the chunk
	head    head
	later   bool // there was a request before
	upgrade bool // one asked for another protocol, since it was last looked at
	secure  bool // a connection that began with TLS does not change to HTTP/2
	trailer int  // bytes
}

type state uint8

const (
	atStart state = iota // of a request
	inHead
	inPreface // of HTTP/2
	inBody
	atChunk
	inChunk
	afterChunk
	inTrailer
	opaque // HTTP/2, or another protocol: not ours to follow
)

// head is what the lines of a request's head have said so far.
type head struct {
	old, host, chunked bool
	length             int64
}

const (
	longestLine = 64 << 10         // net/http's own limit is reached before
	preface     = "PRI * HTTP/2.0" // the first line of HTTP/2
)

// feed follows p, and returns how much of it is good.
func (s *requestScanner) feed(p []byte) (good int) {
	for good < len(p) {
		rest := p[good:]
		switch s.state {
		case opaque:
			return len(p)
		case inBody, inChunk:
			n := min(s.left, int64(len(rest)))
			good += int(n)
			if s.left -= n; s.left == 0 {
				s.state = ended(s.state)
			}
			continue
		}
		i := bytes.IndexByte(rest, '\n')
		if i < 0 {
			if len(s.part)+len(rest) > longestLine {
				return good
			}
			s.part = append(s.part, rest...)
			return len(p)
		}
		line := rest[:i+1]
		if len(s.part) > 0 {
			line = append(s.part, line...)
			s.part = nil
		}
		if len(line) < 2 || line[len(line)-2] != '\r' || !s.line(line[:len(line)-2]) {
			return good
		}
		good += i + 1
	}
	return good
}

// ended is what follows a body, or a chunk.
func ended(s state) state {
	if s == inChunk {
		return afterChunk
	}
	return atStart
}

// line follows a line, and reports whether it is good.
func (s *requestScanner) line(line []byte) bool {
	switch s.state {
	case atStart:
		return s.request(line)
	case inHead:
		if len(line) > 0 {
			return s.field(line)
		}
		s.begin()
		return true
	case inPreface:
		return s.restOfPreface(line)
	case atChunk:
		n, ok := syntax.ChunkSize(line)
		if s.left, s.state = n, inChunk; n == 0 {
			s.state, s.trailer = inTrailer, 0
		}
		return ok && len(line) <= syntax.MaxChunkLine
	case afterChunk:
		s.state = atChunk
		return len(line) == 0
	case inTrailer:
		if len(line) == 0 {
			s.state = atStart
			return true
		}
		s.trailer += len(line)
		name, ok := nameOf(line)
		return ok && s.trailer <= syntax.MaxTrailer && !isForbiddenInTrailer(http.CanonicalHeaderKey(string(name)))
	}
	return false
}

// request follows a request line.
func (s *requestScanner) request(line []byte) bool {
	if !s.later && !s.secure && string(line) == preface {
		s.state, s.left = inPreface, 0
		return true
	}
	method, rest, _ := bytes.Cut(line, space)
	target, version, _ := bytes.Cut(rest, space)
	for _, b := range target {
		if b <= ' ' || b == 0x7f || b == '#' {
			return false
		}
	}
	if !isMethod(string(method)) || len(target) == 0 || target[0] != '/' && (string(target) != "*" || string(method) != "OPTIONS") {
		return false
	}
	s.head = head{old: string(version) == "HTTP/1.0", length: -1}
	s.state, s.later = inHead, true
	return s.head.old || string(version) == "HTTP/1.1"
}

var space = []byte(" ")

// restOfPreface follows the lines after the first of HTTP/2's preface.
func (s *requestScanner) restOfPreface(line []byte) bool {
	want := [...]string{"", "SM", ""}
	if string(line) != want[s.left] {
		return false
	}
	if s.left++; int(s.left) == len(want) {
		s.state = opaque
	}
	return true
}

// field follows a line of a request's header.
func (s *requestScanner) field(line []byte) bool {
	name, ok := nameOf(line)
	if !ok {
		return false
	}
	h := &s.head
	switch {
	case equalFold(name, "content-length"):
		if h.length >= 0 || h.chunked {
			return false
		}
		h.length = syntax.ParseLength(valueOf(line, name))
		return h.length >= 0
	case equalFold(name, "transfer-encoding"):
		if h.length >= 0 || h.chunked || h.old {
			return false
		}
		h.chunked = true
		return strings.EqualFold(valueOf(line, name), "chunked")
	case equalFold(name, "host"):
		if h.host {
			return false
		}
		h.host = true
		return isHost(valueOf(line, name))
	case equalFold(name, "upgrade"):
		s.upgrade = true
	}
	return true
}

// begin begins what follows a head.
func (s *requestScanner) begin() {
	switch {
	case s.head.chunked:
		s.state = atChunk
	case s.head.length > 0:
		s.state, s.left = inBody, s.head.length
	default:
		s.state = atStart
	}
}

// nameOf returns the name in a header line that is well-formed.
func nameOf(line []byte) (name []byte, ok bool) {
	i := bytes.IndexByte(line, ':')
	if i <= 0 {
		return nil, false
	}
	for _, b := range line[:i] {
		if !syntax.IsTokenByte(b) {
			return nil, false
		}
	}
	for _, b := range line[i+1:] {
		if b < ' ' && b != '\t' || b == 0x7f {
			return nil, false
		}
	}
	return line[:i], true
}

// valueOf returns a value without the spaces round it. Tabs may be there, too, but
// not all take them for nothing, and nobody writes them.
func valueOf(line, name []byte) string { return strings.Trim(string(line[len(name)+1:]), " ") }

// equalFold reports whether name equals lower, which is in lower case, in any case.
func equalFold(name []byte, lower string) bool {
	if len(name) != len(lower) {
		return false
	}
	for i, b := range name {
		if 'A' <= b && b <= 'Z' {
			b += 'a' - 'A'
		}
		if b != lower[i] {
			return false
		}
	}
	return true
}

// isMethod reports whether s is a method as all are: some servers take post for
// POST.
func isMethod(s string) bool {
	for i := range len(s) {
		if b := s[i]; (b < 'A' || b > 'Z') && b != '-' && b != '_' {
			return false
		}
	}
	return s != ""
}
