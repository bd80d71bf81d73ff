package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cli"
	"github.com/onlyonce-go/onlyonce/internal/storeurl"
	"github.com/spf13/cobra"
)

func isHTTP(raw string) bool {
	scheme, _, _ := strings.Cut(raw, ":")
	return strings.EqualFold(scheme, "http") || strings.EqualFold(scheme, "https")
}

// A httpTarget is an HTTP API under load.
type httpTarget struct {
	cfg    *httpConfig
	url    *url.URL
	body   string
	header http.Header
	client *http.Client
	keep   time.Duration

	marksReplays atomic.Bool // whether the API has marked a response as a replay
	mu           sync.Mutex
	twice        []string // keys with two responses, neither of them marked as a replay
}

// openHTTP returns the target at a URL, after asking for permission to write to it.
func openHTTP(cmd *cobra.Command, c *config, raw string) (target, error) {
	u, err := storeurl.ParseServer(cli.JoinURL(raw, c.http.path), "http://HOST:PORT/PATH", "http", "https")
	if err != nil {
		return nil, cli.Usagef("the URL can't be used: %w", err)
	}
	body, err := cli.TextOrFile(c.http.body)
	if err != nil {
		return nil, err
	}
	given, err := cli.ParseHeader(c.http.headers)
	if err != nil {
		return nil, err
	}
	header := http.Header{"Content-Type": {"application/json"}}
	maps.Copy(header, given)
	client, err := newClient(c)
	if err != nil {
		return nil, err
	}
	h := &httpTarget{cfg: &c.http, url: u, body: string(body), header: header, keep: c.keep, client: client}
	return h, c.may.Ask(cmd, u.String(), fmt.Sprintf("%s requests for %v", c.http.method, c.duration))
}

// newClient returns an HTTP client that keeps one connection per caller.
func newClient(c *config) (_ *http.Client, err error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost = 0, c.callers
	transport.DisableCompression = true
	if c.http.caCert != "" {
		if transport.TLSClientConfig, err = cli.TrustOnly(c.http.caCert); err != nil {
			return nil, err
		}
	}
	return &http.Client{
		Transport: transport, Timeout: c.http.timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

func (h *httpTarget) String() string       { return h.url.Redacted() }
func (h *httpTarget) keeps() time.Duration { return h.keep }
func (h *httpTarget) close() error         { h.client.CloseIdleConnections(); return nil }

const (
	// maxResponse is the longest body that is read. Bodies are compared by hash.
	maxResponse = 16 << 20
	// keptResponse is how much of a body is kept to determine its outcome.
	keptResponse = 64 << 10
)

var errLongResponse = fmt.Errorf("a response is longer than %d MiB", maxResponse>>20)

// readResponse returns the beginning of a response's body, and a hash of the whole
// response.
func readResponse(w *http.Response, seed maphash.Seed) (head []byte, hash uint64, err error) {
	var all maphash.Hash
	all.SetSeed(seed)
	fmt.Fprint(&all, w.StatusCode, " ")
	if head, err = io.ReadAll(io.TeeReader(io.LimitReader(w.Body, keptResponse), &all)); err != nil {
		return nil, 0, err
	}
	rest, err := io.Copy(&all, io.LimitReader(w.Body, maxResponse+1-int64(len(head))))
	if err == nil && int64(len(head))+rest > maxResponse {
		err = errLongResponse
	}
	return head, all.Sum64(), err
}

func (h *httpTarget) send(ctx context.Context, k *trackedKey) (outcome, error) {
	fill := func(text string) string { return strings.ReplaceAll(text, "{key}", k.name) }
	r, err := http.NewRequestWithContext(ctx, h.cfg.method, h.url.String(), strings.NewReader(fill(h.body)))
	if err != nil {
		return outcomeErrored, err
	}
	for name, values := range h.header {
		for _, v := range values {
			r.Header.Add(name, fill(v))
		}
	}
	if host := r.Header.Get("Host"); host != "" {
		r.Host = host
	}
	r.Header.Set(h.cfg.keyHeader, k.name)
	w, err := h.client.Do(r)
	if err != nil {
		return outcomeErrored, withoutURL(err)
	}
	defer w.Body.Close()
	head, hash, err := readResponse(w, k.of.seed)
	if err != nil {
		return outcomeErrored, withoutURL(err)
	}
	return h.outcomeOf(k, w, head, hash)
}

// withoutURL removes from an error the method and URL, which bench prints anyway.
func withoutURL(err error) error {
	var at *url.Error
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}

// outcomeOf returns the outcome that a response means; head is the beginning of its
// body.
func (h *httpTarget) outcomeOf(k *trackedKey, w *http.Response, head []byte, hash uint64) (outcome, error) {
	marked := w.Header.Get("Idempotency-Replayed") == "true"
	switch status := w.StatusCode; {
	case status == http.StatusConflict && !marked && saysInProgress(w.Header, head):
		return outcomeInFlight, nil
	case status == http.StatusConflict, status == http.StatusUnprocessableEntity:
		return outcomeMismatch, responseError(w, head)
	case status >= 400:
		return outcomeFailed, responseError(w, head)
	}
	if marked {
		h.marksReplays.Store(true)
	}
	return h.succeeded(k, hash, marked), nil
}

// saysInProgress reports whether a 409 means that the first request is still
// running, by the same rule as httponce.Transport.
func saysInProgress(h http.Header, body []byte) bool {
	var problem struct {
		Code string `json:"code"`
	}
	return h.Get("Retry-After") != "" || json.Unmarshal(body, &problem) == nil && problem.Code == "request_in_progress"
}

// responseError returns an error that quotes the beginning of a response.
func responseError(w *http.Response, body []byte) error {
	const most = 200
	text := string(bytes.ToValidUTF8(body[:min(len(body), most)], []byte("?")))
	return fmt.Errorf("%s: %q", w.Status, text)
}

// succeeded records a response of a successful command by its hash. The first
// response that is seen may be marked as a replay, if the response of the run
// itself was lost or arrives later.
func (h *httpTarget) succeeded(k *trackedKey, hash uint64, marked bool) outcome {
	k.mu.Lock()
	defer k.mu.Unlock()
	first := k.done.IsZero()
	if first {
		k.response, k.done = hash, time.Now()
	}
	protected := time.Since(k.done) < k.of.keep
	if k.response != hash && protected {
		k.of.violate("%s got a different response than the first time", k.name)
	}
	if marked {
		return outcomeReplayed
	}
	if k.runs++; k.runs == 2 && protected {
		h.mu.Lock()
		h.twice = append(h.twice, k.name)
		h.mu.Unlock()
	}
	if first {
		return outcomeExecuted
	}
	return outcomeReplayed
}

// finish reports the responses that should have been marked as replays. Only at the
// end is it known whether the API marks any.
func (h *httpTarget) finish(keys *keySet) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.marksReplays.Load() {
		return
	}
	for _, name := range h.twice {
		keys.violate("%s got two responses, and neither is marked as a replay", name)
	}
}

// clean removes nothing, because only the API knows what the requests created.
func (h *httpTarget) clean(_ context.Context, log io.Writer, _ time.Time, _ bool) error {
	_, err := fmt.Fprintf(log, "everything that the requests created in %v is left there\n", h)
	return err
}
