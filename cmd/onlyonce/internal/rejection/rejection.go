// Package rejection writes a proxy's rejections the way the API behind it writes
// its own errors.
package rejection

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/onlyonce-go/onlyonce/httponce"
)

// A Writer writes a problem as the response: it is an httponce.Config.Problem.
type Writer = func(http.ResponseWriter, *http.Request, httponce.Problem)

// Stripe writes problems as the Stripe API does: {"error":{"type":…}}.
func Stripe(w http.ResponseWriter, _ *http.Request, p httponce.Problem) {
	type fields struct {
		Type    string `json:"type"`
		Code    string `json:"code"`
		Message string `json:"message"`
		DocURL  string `json:"doc_url,omitempty"`
	}
	e := fields{Type: stripeType(p), Code: p.Code, Message: p.Title}
	if p.Detail != "" {
		e.Message += ". " + p.Detail
	}
	if p.Type != "about:blank" {
		e.DocURL = p.Type
	}
	doc, err := json.Marshal(struct {
		Error fields `json:"error"`
	}{e})
	if err != nil {
		p.ServeHTTP(w, nil)
		return
	}
	respond(w, p, "application/json", append(doc, '\n'))
}

var aboutTheRequest = []string{
	httponce.CodeTenantMissing, httponce.CodeTooManyRequests, httponce.CodeBodyTooLarge, httponce.CodeBodyEncoded, httponce.CodeBodyUnreadable,
}

// stripeType returns the error type by which Stripe's libraries classify a problem.
func stripeType(p httponce.Problem) string {
	switch {
	case slices.Contains(aboutTheRequest, p.Code):
		return "invalid_request_error"
	case p.Status >= http.StatusInternalServerError:
		return "api_error"
	}
	return "idempotency_error"
}

// respond writes the text of a problem as the response.
func respond(w http.ResponseWriter, p httponce.Problem, contentType string, text []byte) {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.Itoa(len(text)))
	if s := seconds(p.RetryAfter); s > 0 {
		h.Set("Retry-After", strconv.FormatInt(s, 10))
	}
	w.WriteHeader(p.Status)
	_, _ = w.Write(text) // nobody is there to be told
}

// seconds rounds up, because a client that retries too early is rejected again.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }
