package inbound

import (
	"bytes"
	"net/http"
	"strings"

	"github.com/onlyonce-go/onlyonce/internal/httpfield"
	"github.com/onlyonce-go/onlyonce/proxy/internal/syntax"
)

// A Scanner follows the bytes of an HTTP/1 connection and finds requests that can
// be read in more than one way: RFC 9112. Between two heads it holds no memory.
type Scanner struct {
	state   state
	part    []byte // the beginning of a line that is not complete
	left    int64  // bytes of the body or chunk to come
	head    head
	later   bool // there was a request before
	upgrade bool // a request asked for another protocol; reset by the reader
	Secure  bool // the connection began with TLS and does not change to HTTP/2
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
	opaque // HTTP/2 or another protocol, which is not scanned
)

// A head holds the fields of a request's head that have been read so far.
type head struct {
	old, host, chunked bool
	length             int64
	fields             int
}

const (
	longestLine = 64 << 10         // net/http reaches its own limit before
	mostFields  = 1000             // of a head: net/http takes much more memory for a short field than its bytes
	preface     = "PRI * HTTP/2.0" // the first line of HTTP/2
)

// IsBetween reports whether the connection is between two requests.
func (s *Scanner) IsBetween() bool { return s.state == atStart && len(s.part) == 0 }

// IsOpaque reports whether the connection has another protocol than HTTP/1, which
// is not scanned.
func (s *Scanner) IsOpaque() bool { return s.state == opaque }

// Feed follows p and returns how many of its bytes are good.
func (s *Scanner) Feed(p []byte) (good int) {
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

// ended returns the state after a body or a chunk.
func ended(s state) state {
	if s == inChunk {
		return afterChunk
	}
	return atStart
}

// line follows a line and reports whether it is good.
func (s *Scanner) line(line []byte) bool {
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
		return ok && s.trailer <= syntax.MaxTrailer && !syntax.IsForbiddenInTrailer(http.CanonicalHeaderKey(string(name)))
	}
	return false
}

// request follows a request line.
func (s *Scanner) request(line []byte) bool {
	if !s.later && !s.Secure && string(line) == preface {
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
	if !syntax.IsMethod(string(method)) || len(target) == 0 || target[0] != '/' && (string(target) != "*" || string(method) != "OPTIONS") {
		return false
	}
	s.head = head{old: string(version) == "HTTP/1.0", length: -1}
	s.state, s.later = inHead, true
	return s.head.old || string(version) == "HTTP/1.1"
}

var space = []byte(" ")

// restOfPreface follows the lines after the first of HTTP/2's preface.
func (s *Scanner) restOfPreface(line []byte) bool {
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
func (s *Scanner) field(line []byte) bool {
	h := &s.head
	h.fields++
	name, ok := nameOf(line)
	if !ok || h.fields > mostFields {
		return false
	}
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
		return syntax.IsHost(valueOf(line, name))
	case equalFold(name, "upgrade"):
		s.upgrade = true
	}
	return true
}

// begin begins the part that follows a head.
func (s *Scanner) begin() {
	switch {
	case s.head.chunked:
		s.state = atChunk
	case s.head.length > 0:
		s.state, s.left = inBody, s.head.length
	default:
		s.state = atStart
	}
}

// nameOf returns the name in a header line; ok is false if the line is malformed.
func nameOf(line []byte) (name []byte, ok bool) {
	i := bytes.IndexByte(line, ':')
	if i <= 0 {
		return nil, false
	}
	for _, b := range line[:i] {
		if !httpfield.IsTokenByte(b) {
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

// valueOf returns a value without the spaces around it. Tabs are allowed there,
// too, but some readers do not skip them, and no client sends them.
func valueOf(line, name []byte) string { return strings.Trim(string(line[len(name)+1:]), " ") }

// equalFold reports whether name equals lower, which is in lower case, ignoring
// case.
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
