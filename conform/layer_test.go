package conform_test

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
)

// A layer gives a service idempotency keys, and has at most one bug.
type layer struct {
	bug  string
	next http.Handler

	mu       sync.Mutex
	records  map[string]*record
	reserved map[string]bool
	users    map[string]string // of keys
}

func newLayer(bug string, next http.Handler) *layer {
	return &layer{bug: bug, next: next, records: map[string]*record{}, reserved: map[string]bool{}, users: map[string]string{}}
}

type record struct {
	print      string
	duplicates int
	stuck      bool
	forgotten  bool
	response   *httptest.ResponseRecorder // nil: it runs
}

func (l *layer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	lines, given := r.Header["Idempotency-Key"]
	if l.odd(w, r, lines) {
		return
	}
	if r.Method != http.MethodPost && (l.bug != "GET is replayed" || !given) || !given && l.bug != "a missing key counts as a key" {
		l.next.ServeHTTP(w, r)
		return
	}
	key, ok := l.key(lines)
	if !ok {
		l.reject(w, http.StatusBadRequest, "this is no key")
		return
	}
	id := key
	if l.bug != "tenants share keys" {
		id = r.Header.Get("X-Tenant") + "|" + id
	}
	if !l.mayUse(r.Header.Get("X-Tenant"), key) {
		l.reject(w, http.StatusUnprocessableEntity, "another has used it")
		return
	}
	if l.bug == "a command is claimed before its body is read" && !l.reserve(id) {
		l.reject(w, http.StatusConflict, "it runs")
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		l.reject(w, http.StatusBadRequest, "the body breaks off")
		return
	}
	l.unreserve(id)
	r.Body = io.NopCloser(bytes.NewReader(body))
	print := string(body)
	switch l.bug {
	case "operations share responses":
	case "operations share keys", "a different request gets 417":
		print += r.URL.Path
	default:
		id += "|" + r.URL.Path
	}
	l.serve(w, r, id, print)
}

// odd handles an unusual request if the bug is about it, and reports whether it did.
func (l *layer) odd(w http.ResponseWriter, r *http.Request, lines []string) bool {
	post := r.Method == http.MethodPost
	line := strings.Join(lines, "\n")
	long := len(line) > 255
	run := func() { l.next.ServeHTTP(w, r) }
	secretly := func() {
		l.next.ServeHTTP(httptest.NewRecorder(), r)
		l.reject(w, http.StatusBadRequest, "this is no key")
	}
	crash := func() { l.reject(w, http.StatusInternalServerError, "nobody thought of that") }
	do := map[string]func(){}
	switch {
	case post && lines == nil:
		do["a request without a key is rejected, but runs"], do["a request without a key gets 500"] = secretly, crash
		do["an empty key counts as none, which is rejected"] = func() { l.reject(w, http.StatusBadRequest, "a key is missing") }
	case post && (line == "" || line == `""`):
		do["an empty key gets 500"], do["an empty key counts as none"] = crash, run
		do["an empty key counts as none, which is rejected"] = run
	case post && len(lines) > 1:
		do["two keys count as none"] = run
	case post && long:
		do["a long key is rejected, but its request runs"], do["a long key gets 500"], do["a long key is ignored"] = secretly, crash, run
	case post && line[0] == '"' && line[len(line)-1] == '"':
		do["a quoted key gets 500"] = crash
		do["only bare keys"] = func() { l.reject(w, http.StatusBadRequest, "this is no key") }
	case post && wellFormed.FindString(line) != line:
		do["a malformed key is ignored"] = run
	case !post && lines != nil:
		do["GET with a key gets 500"] = crash
		do["GET with a key is rejected"] = func() { l.reject(w, http.StatusBadRequest, "a GET needs no key") }
	case post && r.URL.Path != "/orders":
		do["another operation with the key gets 500"] = crash
	}
	if do[l.bug] != nil {
		do[l.bug]()
	}
	return do[l.bug] != nil
}

// mayUse lets a tenant use a key.
func (l *layer) mayUse(tenant, key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	user, used := l.users[key]
	switch {
	case l.bug == "another tenant takes a key over" && used && user != tenant:
		for id := range l.records {
			if strings.HasPrefix(id, user+"|"+key+"|") {
				delete(l.records, id)
			}
		}
	case l.bug == "tenants learn of used keys" && used && user != tenant:
		return false
	}
	l.users[key] = tenant
	return true
}

// reserve claims an id for a request whose body is not read yet.
func (l *layer) reserve(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	taken := l.reserved[id]
	l.reserved[id] = true
	return !taken
}

func (l *layer) unreserve(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.reserved, id)
}

// serve runs the request, or replays its record.
func (l *layer) serve(w http.ResponseWriter, r *http.Request, id, print string) {
	l.mu.Lock()
	rec := l.records[id]
	if rec == nil {
		rec = &record{print: print}
		l.records[id] = rec
		l.mu.Unlock()
		l.run(w, r, id, rec)
		return
	}
	defer l.mu.Unlock()
	rec.duplicates++
	crowd := rec.duplicates > 2
	switch {
	case rec.print != print && r.Method == http.MethodPost && l.bug != "bodies are not compared":
		l.mismatch(w, r, id, rec)
	case l.bug == "a repeat is rejected":
		l.reject(w, http.StatusConflict, "it ran")
	case rec.response != nil && l.bug == "a long key stays in flight" && len(id) > 255:
		l.reject(w, http.StatusConflict, "it runs")
	case rec.response != nil && rec.response.Code >= 400 && l.bug == "an error is forgotten for a success":
		w.WriteHeader(http.StatusOK)
	case rec.response != nil:
		l.replay(w, rec.response)
	case l.bug == "concurrent requests run" && crowd:
		l.mu.Unlock()
		l.next.ServeHTTP(w, r)
		l.mu.Lock()
	case l.bug == "concurrent requests run, although they are rejected" && crowd:
		l.mu.Unlock()
		l.next.ServeHTTP(httptest.NewRecorder(), r)
		l.mu.Lock()
		l.reject(w, http.StatusConflict, "it runs")
	case l.bug == "concurrent requests leave the key in flight" && crowd:
		rec.stuck = true
		l.reject(w, http.StatusConflict, "it runs")
	case l.bug == "concurrent requests make it forget the key" && crowd:
		rec.forgotten = true
		l.reject(w, http.StatusConflict, "it runs")
	case l.bug == "a repeat of a request in flight gets 500":
		l.reject(w, http.StatusInternalServerError, "duplicate entry")
	default:
		l.reject(w, http.StatusConflict, "it runs")
	}
}

func (l *layer) run(w http.ResponseWriter, r *http.Request, id string, rec *record) {
	response := httptest.NewRecorder()
	l.next.ServeHTTP(response, r)
	if l.bug == "no cookies" {
		response.Header().Del("Set-Cookie")
	}
	l.mu.Lock()
	switch {
	case l.bug == "the key of a client that hangs up is forgotten" && r.Context().Err() != nil, rec.forgotten:
		delete(l.records, id)
	case l.bug == "the key of a client that hangs up stays in flight" && r.Context().Err() != nil, rec.stuck:
	case l.bug == "an error is never settled" && response.Code >= 400:
	case l.bug == "an error takes effect each time" && response.Code >= 400:
		delete(l.records, id)
		l.next.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader("{}")))
	case l.bug == "an error gets no response" && response.Code >= 400:
		delete(l.records, id)
		defer panic(http.ErrAbortHandler)
	default:
		rec.response = response
	}
	l.mu.Unlock()
	if l.bug == "a first response is marked as a replay" {
		w.Header().Set("Idempotency-Replayed", "true")
	}
	copyResponse(w, response, response.Code, response.Body.String())
}

func (l *layer) mismatch(w http.ResponseWriter, r *http.Request, id string, rec *record) {
	switch l.bug {
	case "another body runs":
		l.next.ServeHTTP(w, r)
		return
	case "another body gets 500":
		l.reject(w, http.StatusInternalServerError, "a hash differs")
		return
	case "another body forgets the first":
		if rec.response != nil {
			delete(l.records, id)
		}
	}
	status := http.StatusUnprocessableEntity
	if l.bug == "a different request gets 417" {
		status = http.StatusExpectationFailed
	}
	l.reject(w, status, "another body")
}

func (l *layer) replay(w http.ResponseWriter, response *httptest.ResponseRecorder) {
	status, body := response.Code, response.Body.String()
	if l.bug != "replays are not marked" {
		w.Header().Set("Idempotency-Replayed", "true")
	}
	switch {
	case l.bug == "a replay has the status 200" && status == http.StatusCreated:
		status = http.StatusOK
	case l.bug == "a replay is written anew":
		body = strings.ReplaceAll(body, ":", ": ")
	case l.bug == "a replay has no Location":
		response = without(response, "Location")
	}
	if l.bug != "a cookie is replayed" {
		response = without(response, "Set-Cookie")
	}
	copyResponse(w, response, status, body)
}

func without(response *httptest.ResponseRecorder, name string) *httptest.ResponseRecorder {
	other := httptest.NewRecorder()
	maps.Copy(other.Header(), response.Header())
	other.Header().Del(name)
	return other
}

func copyResponse(w http.ResponseWriter, response *httptest.ResponseRecorder, status int, body string) {
	for name, values := range response.Header() {
		w.Header()[name] = values
	}
	w.WriteHeader(status)
	io.WriteString(w, body)
}

var wellFormed = regexp.MustCompile(`^[A-Za-z0-9-]{1,255}`)

// key reads the header's lines.
func (l *layer) key(lines []string) (string, bool) {
	if len(lines) == 0 {
		return "none", true // without a bug, one without a key does not come here
	}
	line := lines[0]
	if len(lines) > 1 {
		switch l.bug {
		case "the first of two keys counts":
		case "the last of two keys counts":
			line = lines[1]
		case "two keys are joined":
			line = strings.Join(lines, "-")
		default:
			return "", false
		}
	}
	if line == "" && l.bug == "an empty key counts as a key" {
		return "", true
	}
	form := line
	if len(line) > 2 && line[0] == '"' && line[len(line)-1] == '"' {
		form = line[1 : len(line)-1]
	}
	key := wellFormed.FindString(form)
	long, odd := len(form) > 255, key != form
	switch {
	case l.bug == "only UUIDs are keys" && len(form) != 36:
		return "", false
	case l.bug == "only small letters are keys" && strings.ToLower(form) != form:
		return "", false
	case !odd && key != "":
	case l.bug == "any text is a key" && form != "" && form != `""`, l.bug == "a long key stays in flight" && long:
		key = form
	case l.bug == "a long key is truncated" && long, l.bug == "a malformed key is truncated" && key != "" && !long:
	default:
		return "", false
	}
	switch l.bug {
	case "quotes make another key":
		key = line
	case "case is folded":
		key = strings.ToLower(key)
	case "an accepted key is truncated":
		key = key[:min(len(key), 36)]
	}
	return key, true
}

func (l *layer) reject(w http.ResponseWriter, status int, title string) {
	docs := "/docs"
	switch l.bug {
	case "a dead link":
		docs = "/nowhere"
	case "a link to no page":
		docs = "mailto:us@example.com"
	case "a link to a page that breaks":
		docs = "/broken"
	case "a link to elsewhere":
		docs = "https://docs.example/keys"
	}
	told := status
	if l.bug == "a problem has another status" {
		told = http.StatusTeapot
	}
	w.Header().Set("Link", "<"+docs+`>; rel="describedby"; type="text/html"`)
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"type": "about:blank", "title": title, "status": told})
}
