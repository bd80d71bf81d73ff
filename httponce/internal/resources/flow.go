package resources

import (
	"context"
	"io"
	"net/http"
	"time"
)

const (
	// firstRoom is how much memory is taken for a body before any of it has
	// arrived.
	firstRoom = 8 << 10
	// pieceOfResponse is how much of a response is written at a time, so that a
	// slow client can be told from one that reads nothing.
	pieceOfResponse = 16 << 10
)

// firstGrant returns how much memory is taken for a body before it is read, and
// the class as which it is judged: its length, if it is announced. A length of
// -1 is unknown.
func firstGrant(length int64) (n, class int64) {
	if length >= 0 {
		return min(length, firstRoom), length
	}
	return firstRoom, firstRoom
}

// nextRoom returns how much memory a body gets after it has filled room. The steps are
// large, so that little garbage is made.
func nextRoom(room int64) int64 {
	switch {
	case room < smallFlow:
		return smallFlow
	case room < 1<<20:
		return 1 << 20
	}
	return 2 * room
}

// ReadAll appends a body of at most limit bytes to buf. length is its announced
// length, or -1. Admit has taken the memory for the first part. More is taken before
// it is used, in steps that depend on how much has arrived, so that an announced length
// alone takes none. The error is ErrTooLarge, ErrSilent, a *Rejection, or that of the
// body.
func (f *Flow) ReadAll(ctx context.Context, w http.ResponseWriter, body io.Reader, buf []byte, length, limit int64) ([]byte, error) {
	if length > limit {
		return buf, ErrTooLarge
	}
	silent := time.Now().Add(longestSilence)
	room, class := firstGrant(length)
	from, whole := len(buf), limit
	if length >= 0 {
		whole = length
	}
	for {
		have := int64(len(buf) - from)
		if have > whole {
			whole = limit // an outer handler replaced the body by a longer one
		}
		if have >= room && room < whole {
			grown := min(nextRoom(room), whole)
			if rejected := f.Wait(ctx, grown-room, max(class, grown)); rejected != nil {
				return buf, rejected
			}
			room = grown
		}
		end := from + int(room)
		if room == whole {
			end++ // detects a body that is longer than announced
		}
		if cap(buf) < end {
			buf = append(make([]byte, 0, end), buf...)
		}
		n, err := f.read(w, body, buf[len(buf):end], silent)
		buf, silent = buf[:len(buf)+n], time.Time{}
		have = int64(len(buf) - from)
		switch {
		case have > limit:
			return buf, ErrTooLarge
		case err == io.EOF:
			return buf, nil
		case err != nil:
			return buf, err
		case have != length: // otherwise, only the end is missing
			f.arrived(n, f.held)
		}
	}
}

// read reads once. The body is silent from until on; if until is zero, from the time that
// was set before. The error is ErrSilent if the body was ended meanwhile.
func (f *Flow) read(w http.ResponseWriter, body io.Reader, p []byte, until time.Time) (n int, err error) {
	f.beginTurn(w, until)
	defer func() {
		if f.endTurn() {
			err = ErrSilent
		}
	}()
	return body.Read(p)
}

// Deliver writes p to the client, piece by piece.
func Deliver[P []byte | string](f *Flow, w http.ResponseWriter, p P) (n int, err error) {
	for n < len(p) && err == nil {
		piece := p[n:min(n+pieceOfResponse, len(p))]
		var written int
		if written, err = deliverPiece(f, w, piece); err == nil && written < len(piece) {
			err = io.ErrShortWrite
		}
		n += written
	}
	return n, err
}

func deliverPiece[P []byte | string](f *Flow, w http.ResponseWriter, p P) (int, error) {
	if f.held == 0 { // nothing is gained by ending it
		return write(w, p)
	}
	f.beginTurn(w, time.Now().Add(f.limits.Unread))
	defer f.endTurn()
	return write(w, p)
}

func write[P []byte | string](w io.Writer, p P) (int, error) {
	switch p := any(p).(type) {
	case string:
		return io.WriteString(w, p)
	case []byte:
		return w.Write(p)
	}
	return 0, nil
}
