package integration

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/console"
)

var recordsFlag = flag.Int("records", 100_000, "records that BenchmarkConsole lists")

// fillPostgres adds n completed records of 300 tenants and 40 operations, of which one in 10,000
// has an unknown outcome. They were created one second after another; the last has the highest number.
// They expire after $2 microseconds.
const fillPostgres = `INSERT INTO onlyonce_records (id, tenant, operation, idem_key, state, owner, attempt, created_at, fence, lease_until, settled_at, expires_at, status_code, result_ref, response_header, response_body)
SELECT sha256(int8send(length(tenant)) || tenant::bytea || int8send(length(operation)) || operation::bytea || int8send(length(key)) || key::bytea), tenant, operation, key,
       CASE WHEN n % 10000 = 0 THEN 'unknown' ELSE 'completed' END, '\x30', 1, n * 1000000::bigint, n, 0, n * 1000000::bigint, onlyonce_now() + $2::bigint, 201,
       'ref ' || n, '{"Content-Type":["application/json"]}', ('{"id":' || n || ',"note":"' || repeat('x', 200) || '"}')::bytea
FROM generate_series(1, $1::bigint) n, LATERAL (SELECT 'tenant ' || (n % 300) AS tenant, 'operation ' || (n % 40) AS operation, 'key ' || n AS key) command`

// BenchmarkConsole opens each page of the console, and reads each list of onlyonce records ls, with
// many records in PostgreSQL, and reports the median.
func BenchmarkConsole(b *testing.B) {
	s, db := newPostgresSchema(b).open(b)
	if _, err := db.Exec(fillPostgres, *recordsFlag, (24 * time.Hour).Microseconds()); err != nil {
		b.Fatal(err)
	}
	if _, err := db.Exec("VACUUM ANALYZE onlyonce_records"); err != nil {
		b.Fatal(err)
	}
	v := newConsoleVisitor(b, s)
	middle := *recordsFlag / 2
	id := onlyonce.ID{Tenant: fmt.Sprint("tenant ", middle%300), Operation: fmt.Sprint("operation ", middle%40), Key: fmt.Sprint("key ", middle)}
	for name, page := range map[string]func(){
		"overview":                  func() { v.get("") },
		"records":                   func() { v.get("records") },
		"records of a tenant":       func() { v.get("records?tenant=tenant+7") },
		"records of an operation":   func() { v.get("records?operation=operation+7") },
		"records of both":           func() { v.get("records?tenant=tenant+7&operation=operation+7") },
		"record with a ref":         func() { v.get(fmt.Sprint("records?ref=ref+", middle)) },
		"records older than 1 hour": func() { v.get("records?older=1h") },
		"unresolved records":        func() { v.get("records?state=unresolved") },
		"failed records":            func() { v.get("records?state=failed") },
		"unresolved of a tenant":    func() { v.get("records?state=unresolved&tenant=tenant+100") },
		"key of a tenant's command": func() {
			v.search(url.Values{"tenant": {id.Tenant}, "operation": {id.Operation}, "key": {id.Key}})
		},
		"key of any command":         func() { v.search(url.Values{"key": {id.Key}}) },
		"beginning of a record's ID": func() { v.search(url.Values{"key": {id.HexHash()[:16]}}) },
		"one record":                 func() { v.get("records/" + id.HexHash()) },
		"decisions":                  func() { v.get("decisions") },
	} {
		b.Run("page/"+name, func(b *testing.B) { median(b, page) })
	}
	for name, f := range map[string]onlyonce.Filter{
		"all": {}, "tenant": {Tenant: "tenant 7"}, "operation": {Operation: "operation 7"}, "ref": {Ref: fmt.Sprint("ref ", middle)}, "unresolved": {Unresolved: true},
	} {
		f.Limit = 100
		b.Run("list/"+name, func(b *testing.B) {
			median(b, func() {
				for _, err := range s.List(b.Context(), f) {
					if err != nil {
						b.Fatal(err)
					}
				}
			})
		})
	}
}

// median reports the median time of f.
func median(b *testing.B, f func()) {
	f() // prepares statements
	var all []time.Duration
	for b.Loop() {
		begun := time.Now()
		f()
		all = append(all, time.Since(begun))
	}
	slices.Sort(all)
	b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, "ms/median")
}

// A consoleVisitor is a browser that is logged in to a console.
type consoleVisitor struct {
	b      *testing.B
	client *http.Client
	url    string
}

func newConsoleVisitor(b *testing.B, s onlyonce.Store) *consoleVisitor {
	b.Helper()
	const token = "the token of a benchmark, not of a person"
	h, err := console.New(console.Config{Store: s, Meter: console.NewMeter(), Tokens: []console.Token{{Name: "ada", Role: console.Writer, Hash: sha256.Sum256([]byte(token))}}})
	if err != nil {
		b.Fatal(err)
	}
	srv := httptest.NewServer(h)
	b.Cleanup(srv.Close)
	jar, err := cookiejar.New(nil)
	if err != nil {
		b.Fatal(err)
	}
	v := &consoleVisitor{b, &http.Client{Jar: jar}, srv.URL + console.DefaultPath}
	v.post("login", url.Values{"token": {token}})
	return v
}

var formToken = regexp.MustCompile(`name="form_token" value="([^"]*)"`)

// search looks for records with the form of the records' page.
func (v *consoleVisitor) search(fields url.Values) { v.post("records", fields) }

// post fills in the first form of a page.
func (v *consoleVisitor) post(page string, fields url.Values) {
	found := formToken.FindStringSubmatch(v.get(page))
	if found == nil {
		v.b.Fatalf("%s has no form", page)
	}
	fields.Set("form_token", found[1])
	v.read(http.MethodPost, page, fields.Encode())
}

func (v *consoleVisitor) get(page string) string { return v.read(http.MethodGet, page, "") }

func (v *consoleVisitor) read(method, page, body string) string {
	r, err := http.NewRequest(method, v.url+page, strings.NewReader(body))
	if err != nil {
		v.b.Fatal(err)
	}
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	w, err := v.client.Do(r)
	if err != nil {
		v.b.Fatal(err)
	}
	defer w.Body.Close()
	text, err := io.ReadAll(w.Body)
	if err != nil || w.StatusCode != http.StatusOK {
		v.b.Fatalf("%s: %d, %v\n%s", page, w.StatusCode, err, text)
	}
	return string(text)
}
