package httponce

import (
	"io"
	"net/http"
	"time"
)

const (
	// readOnBytes and readOnTime bound how much is read of a body after its
	// request was refused, and for how long.
	readOnBytes = 16 << 20
	readOnTime  = 5 * time.Second
	// readAnyway is how much net/http reads of a body that nobody has read,
	// before it answers.
	readAnyway = 256 << 10
)

// refuseUnread refuses a request whose body has not been read to its end. A client
// that sends a long one looks for the answer only when it has sent all of it, and
// would lose it if the connection were closed meanwhile: so what still comes is
// read for a while, as RFC 9112, section 9.6, advises.
func (l *middleware) refuseUnread(w http.ResponseWriter, r *http.Request, key string, p Problem) {
	p.Key = key
	isLong := r.ProtoMajor == 1 && hasBody(r) && (r.ContentLength < 0 || r.ContentLength > readAnyway || p.Status == http.StatusRequestEntityTooLarge)
	if !isLong {
		l.refuse(w, r, p)
		return
	}
	w.Header().Set("Connection", "close")
	l.refuse(w, r, p)
	c := http.NewResponseController(w)
	if len(r.Header["Expect"]) > 0 || c.Flush() != nil || c.SetReadDeadline(time.Now().Add(readOnTime)) != nil {
		return // a client that expects to be asked for the body does not send it
	}
	_, _ = io.CopyN(io.Discard, r.Body, readOnBytes)
}
