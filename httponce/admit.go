package httponce

import (
	"errors"
	"io"
	"net/http"

	"github.com/onlyonce-go/onlyonce/httponce/internal/resources"
	"github.com/onlyonce-go/onlyonce/internal/contentcoding"
)

// admit counts the call and takes the first memory for its body. It returns why
// it can't, or nil.
func (c *call) admit() *Problem {
	tenant := c.request.ID.Tenant
	if p := c.tooLong(); p != nil {
		return p
	}
	if c.cfg.Reject != nil {
		if p := c.cfg.Reject(c.r, tenant); p != nil {
			return p
		}
	}
	return problemOfRejection(c.quota.Admit(c.r.Context(), &c.uses, tenant, bodyLength(c.r)))
}

// admitUncounted is admit for a request without a key: only its memory is
// counted.
func (c *call) admitUncounted() *Problem {
	if p := c.tooLong(); p != nil {
		return p
	}
	return problemOfRejection(c.quota.AdmitUncounted(c.r.Context(), &c.uses, bodyLength(c.r)))
}

func (c *call) tooLong() *Problem {
	if bodyLength(c.r) <= c.cfg.MaxBody {
		return nil
	}
	p := bodyTooLarge
	p.Err = resources.ErrTooLarge
	return &p
}

// bodyLength returns the announced length of a request's body, or -1.
func bodyLength(r *http.Request) int64 {
	if !hasBody(r) {
		return 0
	}
	return r.ContentLength
}

// readBody reads the body of an admitted call. It reports whether it could; if
// not, it has rejected the request.
func (c *call) readBody() bool {
	head := len(c.text)
	err := c.receive()
	if c.body = c.text[head:]; err == nil {
		return true
	}
	var outer *http.MaxBytesError
	var full *resources.Rejection
	p := bodyUnreadable
	switch {
	case errors.As(err, &full):
		p = *problemOfRejection(full)
	case err == resources.ErrSilent:
		p = overloaded
	case errors.Is(err, resources.ErrTooLarge), errors.As(err, &outer):
		p = bodyTooLarge
	}
	p.Err = err
	if p.Code != bodyUnreadable.Code {
		c.dropText()
		c.release()
		c.rejectUnread(p)
		return false
	}
	if c.r.ProtoMajor == 1 {
		c.w.Header().Set("Connection", "close") // it is unknown where the next request begins
	}
	c.reject(p)
	return false
}

// checkNotRead panics if a handler around the middleware has read the body: then requests with
// different bodies would be the same, and a key in the body would not be found. A handler that
// decompresses a body may leave nothing of it.
func (c *call) checkNotRead() {
	announced := c.r.ContentLength > 0 || wasParsed(c.r)
	if len(c.body) == 0 && announced && !contentcoding.Has(c.r.Header["Content-Encoding"]) {
		panic("httponce: a handler around the middleware has read the request's body, so that it can't be compared with that of a repeat: " +
			"put a handler that calls ParseForm or FormValue inside, or give the request a new Body; see docs/frameworks.md")
	}
}

// wasParsed reports whether a handler around the middleware has parsed the form in the body.
func wasParsed(r *http.Request) bool { return len(r.PostForm) > 0 || r.MultipartForm != nil }

// receive appends the body to the text.
func (c *call) receive() (err error) {
	from := len(c.text)
	if hasBody(c.r) {
		c.text, err = c.uses.Body.ReadAll(c.r.Context(), c.w, c.r.Body, c.text, c.r.ContentLength, c.cfg.MaxBody)
	}
	if err == nil && announcesMore(c.r, len(c.text)-from) && !wasParsed(c.r) {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// announcesMore reports whether a request announces a longer body than the one that
// was read. By HTTP/2, net/http does not check that for an empty body, and by HTTP/3,
// quic-go checks it for none.
func announcesMore(r *http.Request, length int) bool {
	if length > 0 {
		return r.ProtoMajor > 2 && int64(length) < r.ContentLength
	}
	lengths := r.Header["Content-Length"]
	return r.ProtoMajor > 1 && len(lengths) > 0 && (len(lengths) > 1 || lengths[0] != "0")
}
