package records

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cmdtest"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/records/importfile"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/internal/storeurl"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

// newImport returns an import of text with the defaults of the flags, and what it prints.
func newImport(store onlyonce.Store, format, text string) (im *importing, out, problems *bytes.Buffer) {
	out, problems = new(bytes.Buffer), new(bytes.Buffer)
	return &importing{
		Settings: importfile.Settings{Keep: onlyonce.DefaultKeep}, format: format,
		file: strings.NewReader(text), store: store, out: out, problems: problems,
	}, out, problems
}

// doImport checks and imports a text, and returns what was printed.
func doImport(t *testing.T, store onlyonce.Store, format, text string) (printed string, err error) {
	t.Helper()
	im, out, problems := newImport(store, format, text)
	im.SkipFingerprint = true
	if err := im.check(); err != nil {
		t.Fatalf("%v\n%s", err, problems)
	}
	err = im.run(t.Context())
	return out.String() + problems.String(), err
}

// summary is what an import prints about its lines.
func summary(imported, present, expired int) string {
	return fmt.Sprintf("imported: %d\nalready in the store: %d\nexpired: %d\n", imported, present, expired)
}

// A service is a handler of httponce whose command must not run.
func service(t *testing.T, store onlyonce.Store) func(key, body string) *http.Response {
	guard := onlyonce.New(store, onlyonce.Config{HoldUnknown: true, Observer: onlyonce.DiscardEvents})
	mux := http.NewServeMux()
	mux.Handle("POST /orders", httponce.Wrap(guard, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("the command ran again")
	}), httponce.Config{
		Tenant:      func(*http.Request) string { return "acme" },
		Fingerprint: func(_ *http.Request, body []byte) []byte { return bytes.Clone(body) },
	}))
	return func(key, body string) *http.Response {
		r := httptest.NewRequest("POST", "/orders", strings.NewReader(body))
		r.Header.Set("Idempotency-Key", key)
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		return w.Result()
	}
}

const twoOrdersCSV = "tenant,operation,key,fingerprint,status_code,header,body,ref,expires_at\n" +
	`acme,POST /orders,a,6f6e65,201,"{""content-type"":[""application/json""],""Location"":[""/orders/1""]}","{""id"":1}",order-1,` + "\n" +
	"acme,POST /orders,b,,402,,\"two\nlines\",,\n"

const twoOrdersJSON = `{"tenant":"acme","operation":"POST /orders","key":"a","fingerprint":"6f6e65","status_code":201,` +
	`"header":{"content-type":["application/json"],"Location":["/orders/1"]},"body":"{\"id\":1}","ref":"order-1"}` + "\n\n" +
	`{"tenant":"acme","operation":"POST /orders","key":"b","fingerprint":"","status_code":402,"body_base64":"dHdvCmxpbmVz","expires_at":null}`

func TestRecordsImport_ARetryGetsTheOldResponseAndRunsNothing(t *testing.T) {
	for format, text := range map[string]string{formatCSV: twoOrdersCSV, formatJSONL: "\ufeff" + twoOrdersJSON} {
		t.Run(format, func(t *testing.T) {
			store, _ := openSQLite(t)
			printed, err := doImport(t, store, format, text)
			if want := summary(2, 0, 0); err != nil || printed != want {
				t.Fatalf("it printed %q, %v", printed, err)
			}
			send := service(t, store)
			want := func(key, body string, status int, replayed, response string) *http.Response {
				t.Helper()
				resp := send(key, body)
				var got bytes.Buffer
				if _, err := got.ReadFrom(resp.Body); err != nil {
					t.Fatal(err)
				}
				if resp.StatusCode != status || resp.Header.Get("Idempotency-Replayed") != replayed || !strings.Contains(got.String(), response) {
					t.Errorf("key %s, body %s: %d, %v, %q", key, body, resp.StatusCode, resp.Header, &got)
				}
				return resp
			}
			resp := want("a", "one", 201, "true", `{"id":1}`)
			if h := resp.Header; h.Get("Content-Type") != "application/json" || h.Get("Location") != "/orders/1" {
				t.Errorf("the header is %v", h)
			}
			want("a", "other", 422, "", httponce.CodeKeyReused)
			want("b", "any request, because the record has no fingerprint", 402, "true", "two\nlines")
			r, err := store.Lookup(t.Context(), onlyonce.ID{Tenant: "acme", Operation: "POST /orders", Key: "a"})
			if err != nil || r.Result.Ref != "order-1" || r.KeepLeft <= 23*time.Hour || r.KeepLeft > 24*time.Hour+time.Second { // the store counts in milliseconds
				t.Errorf("the record is %+v, %v", r, err)
			}
		})
	}
}

func TestRecordsImport_AnUnknownOutcomeIsHeldForAPerson(t *testing.T) {
	store := memstore.New(memstore.Config{})
	line := `{"tenant":"acme","operation":"POST /orders","key":"k","state":"unknown","error":"the old row was locked","created_at":"2020-01-01T00:00:00Z"}`
	if printed, err := doImport(t, store, formatJSONL, line); err != nil {
		t.Fatal(printed, err)
	}
	if resp := service(t, store)("k", "one"); resp.StatusCode != 409 {
		t.Errorf("a retry got %d", resp.StatusCode)
	}
	r, err := store.Lookup(t.Context(), onlyonce.ID{Tenant: "acme", Operation: "POST /orders", Key: "k"})
	if err != nil || r.State != onlyonce.StateUnknown || r.Error != "the old row was locked" || r.KeepLeft != 0 {
		t.Errorf("the record is %+v, %v", r, err)
	}
}

func TestRecordsImport_ACallOfDoGetsTheOldValue(t *testing.T) {
	store := memstore.New(memstore.Config{})
	line := `{"tenant":"acme","operation":"charge","key":"k","status_code":0,"body":"{\"receipt\":\"r-1\"}"}`
	if printed, err := doImport(t, store, formatJSONL, line); err != nil {
		t.Fatal(printed, err)
	}
	answer, err := onlyonce.Do(t.Context(), onlyonce.New(store, onlyonce.Config{}), onlyonce.Request{
		ID: onlyonce.ID{Tenant: "acme", Operation: "charge", Key: "k"}, Fingerprint: onlyonce.Fingerprint([]byte("1.00")),
	}, func(context.Context) (map[string]string, error) {
		t.Error("the command ran again")
		return nil, nil
	})
	if err != nil || !answer.Replayed || answer.Value["receipt"] != "r-1" {
		t.Errorf("the answer is %+v, %v", answer, err)
	}
}

func TestRecordsImport_ASecondImportChangesNothing(t *testing.T) {
	store, _ := openSQLite(t)
	for i, want := range []string{summary(2, 0, 0), summary(0, 2, 0)} {
		if printed, err := doImport(t, store, formatJSONL, twoOrdersJSON); err != nil || printed != want {
			t.Errorf("import %d printed %q, %v", i+1, printed, err)
		}
	}
}

// A brokenStore fails instead of settling, without an effect, while it has an error.
type brokenStore struct {
	onlyonce.Store
	settle error
}

func (s *brokenStore) Settle(ctx context.Context, h onlyonce.Hold, end onlyonce.Settlement) error {
	if s.settle != nil && end.State != "" {
		return s.settle
	}
	return s.Store.Settle(ctx, h, end)
}

func TestRecordsImport_AnImportThatDiedBetweenItsCallsIsCompletedByTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Config{})
		order, _, _ := strings.Cut(twoOrdersJSON, "\n") // of two, the one that is imported later might not have been claimed
		dying := &brokenStore{store, errors.New("the process died")}
		_, err := doImport(t, dying, formatJSONL, order)
		if err == nil || !strings.HasPrefix(err.Error(), "the import is not complete: run it again: line ") {
			t.Fatalf("the first import: %v", err)
		}
		time.Sleep(23 * time.Hour)
		resp := service(t, store)("a", "one")
		if problem, err := io.ReadAll(resp.Body); err != nil || !strings.Contains(string(problem), httponce.CodeInProgress) {
			t.Errorf("meanwhile, a retry got %d, %s, %v", resp.StatusCode, problem, err)
		}
		time.Sleep(2 * time.Hour) // the lease has lapsed, and no retry has run meanwhile
		if printed, err := doImport(t, store, formatJSONL, order); err != nil || printed != summary(1, 0, 0) {
			t.Errorf("the next import printed %q, %v", printed, err)
		}
		if resp := service(t, store)("a", "one"); resp.StatusCode != 201 {
			t.Errorf("then, a retry got %d", resp.StatusCode)
		}
	})
}

func TestRecordsImport_ARecordInTheStoreIsNeverChanged(t *testing.T) {
	settled := func(s onlyonce.Settlement) func(*testing.T, onlyonce.Store, onlyonce.Hold) {
		return func(t *testing.T, store onlyonce.Store, h onlyonce.Hold) {
			s.Keep = time.Hour
			if err := store.Settle(t.Context(), h, s); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, c := range map[string]struct {
		end  func(*testing.T, onlyonce.Store, onlyonce.Hold)
		says string
	}{
		"running":           {func(*testing.T, onlyonce.Store, onlyonce.Hold) {}, "already, processing:"},
		"failed":            {settled(onlyonce.Settlement{State: onlyonce.StateFailed}), "already, failed:"},
		"of a kept failure": {settled(onlyonce.Settlement{State: onlyonce.StateFailed, Final: true}), "already, failed (final):"},
		"unknown":           {settled(onlyonce.Settlement{State: onlyonce.StateUnknown}), "already, unknown:"},
		"of another response": {
			settled(onlyonce.Settlement{State: onlyonce.StateCompleted, Result: onlyonce.Result{Status: 201, Body: []byte("other")}}),
			"already, with another response:",
		},
		"of the same response": {
			settled(onlyonce.Settlement{State: onlyonce.StateCompleted, Result: onlyonce.Result{Status: 201, Body: []byte("one")}}), "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			store, _ := openSQLite(t)
			h := claim(t, store, time.Hour)
			c.end(t, store, h)
			before, err := store.Lookup(t.Context(), h.ID)
			if err != nil {
				t.Fatal(err)
			}
			line := `{"tenant":"alice","operation":"POST /items","key":"k","status_code":201,"body":"one"}`
			printed, err := doImport(t, store, formatJSONL, line)
			if c.says == "" {
				if err != nil || printed != summary(0, 1, 0) {
					t.Errorf("it printed %q, %v", printed, err)
				}
			} else if err == nil || err.Error() != "not imported: 1, of which the store has 1 with another outcome" ||
				!strings.Contains(printed, "line 1: the store has this key "+c.says) || !strings.Contains(printed, summary(0, 0, 0)) {
				t.Errorf("it printed %q, %v", printed, err)
			}
			after, err := store.Lookup(t.Context(), h.ID)
			if err != nil {
				t.Fatal(err)
			}
			before.LeaseLeft, before.KeepLeft, after.LeaseLeft, after.KeepLeft = 0, 0, 0, 0
			if !reflect.DeepEqual(before, after) {
				t.Errorf("the record was %+v, and is %+v", before, after)
			}
		})
	}
}

func TestRecordsImport_AKeyExpiresWhenItWouldHaveExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		at := func(d time.Duration) string { return `"` + now.Add(d).Format(time.RFC3339Nano) + `"` }
		store := memstore.New(memstore.Config{})
		var text strings.Builder
		lines := []struct {
			key, field string
			keep       time.Duration // -1: it has expired
		}{
			{"expires", `"expires_at":` + at(time.Hour), time.Hour},
			{"created", `"created_at":` + at(-20*time.Hour), 4 * time.Hour},
			{"both", `"expires_at":` + at(time.Hour) + `,"created_at":` + at(-20*time.Hour), time.Hour},
			{"neither", `"ref":""`, 24 * time.Hour},
			{"exported", `"keep_left_seconds":90.5,"created_at":` + at(-50*time.Hour), 90*time.Second + 500*time.Millisecond},
			{"exported for good", `"keep_left_seconds":null,"created_at":` + at(-50*time.Hour), 0},
			{"expired", `"expires_at":` + at(0), -1},
			{"too old", `"created_at":` + at(-24*time.Hour), -1},
		}
		for _, l := range lines {
			fmt.Fprintf(&text, `{"tenant":"","operation":"","key":%q,"status_code":200,%s}`+"\n", l.key, l.field)
		}
		if printed, err := doImport(t, store, formatJSONL, text.String()); err != nil || printed != summary(6, 0, 2) {
			t.Errorf("it printed %q, %v", printed, err)
		}
		for _, l := range lines {
			r, err := store.Lookup(t.Context(), onlyonce.ID{Key: l.key})
			if gone := errors.Is(err, onlyonce.ErrNotFound); gone != (l.keep < 0) || !gone && (err != nil || r.KeepLeft != l.keep) {
				t.Errorf("%s: %v left, %v", l.key, r.KeepLeft, err)
			}
		}
	})
}

func TestRecordsImport_AResponseThatTheStoreRejectsIsReportedAndItsKeyIsReleased(t *testing.T) {
	for name, url := range map[string]func(*testing.T) string{
		"SQLite":     func(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "a.db") },
		"PostgreSQL": cmdtest.NewPostgresURL,
		"MariaDB":    cmdtest.NewMySQLURL,
	} {
		t.Run(name, func(t *testing.T) {
			u, err := storeurl.Parse(url(t))
			if err != nil {
				t.Fatal(err)
			}
			store, err := u.OpenMigrated(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			small := &brokenStore{store, fmt.Errorf("4 MiB: %w", onlyonce.ErrTooLarge)}
			line := `{"tenant":"acme","operation":"POST /orders","key":"k","status_code":201}`
			printed, err := doImport(t, small, formatJSONL, line)
			if err == nil || err.Error() != "not imported: 1, of which the store has 0 with another outcome" || !strings.Contains(printed, "line 1: the response is larger than the store accepts") {
				t.Errorf("it printed %q, %v", printed, err)
			}
			if r, err := store.Lookup(t.Context(), onlyonce.ID{Tenant: "acme", Operation: "POST /orders", Key: "k"}); !errors.Is(err, onlyonce.ErrNotFound) {
				t.Errorf("it left %+v, %v", r, err)
			}
			if printed, err := doImport(t, store, formatJSONL, line); err != nil || printed != summary(1, 0, 0) {
				t.Errorf("the next import printed %q, %v", printed, err)
			}
			if resp := service(t, store)("k", "one"); resp.StatusCode != 201 {
				t.Errorf("a retry got %d", resp.StatusCode)
			}
		})
	}
}

func TestRecordsImport_ADryRunWritesNothing(t *testing.T) {
	store := memstore.New(memstore.Config{})
	if _, err := doImport(t, store, formatJSONL, strings.Split(twoOrdersJSON, "\n")[0]); err != nil {
		t.Fatal(err)
	}
	im, out, problems := newImport(store, formatJSONL, twoOrdersJSON)
	im.SkipFingerprint, im.dryRun = true, true
	if err := im.check(); err != nil {
		t.Fatal(err)
	}
	if err := im.run(t.Context()); err != nil || out.String() != "would be "+summary(1, 1, 0) || problems.Len() > 0 {
		t.Errorf("it printed %q and %q, %v", out, problems, err)
	}
	if r, err := store.Lookup(t.Context(), onlyonce.ID{Tenant: "acme", Operation: "POST /orders", Key: "b"}); !errors.Is(err, onlyonce.ErrNotFound) {
		t.Errorf("it wrote %+v, %v", r, err)
	}
}

func TestRecordsImport_AnInterruptedImportSaysSo(t *testing.T) {
	im, _, _ := newImport(memstore.New(memstore.Config{}), formatJSONL, twoOrdersJSON)
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	im.SkipFingerprint = true
	if err := im.run(ctx); err == nil || err.Error() != "the import was interrupted: run it again to complete it" {
		t.Errorf("it says %v", err)
	}
}

// row is a line of JSON with the fields that every line needs, in which some are replaced.
func row(replace ...string) string {
	line := `{"tenant":"acme","operation":"POST /orders","key":"k","fingerprint":"00","status_code":201}`
	return strings.NewReplacer(replace...).Replace(line)
}

// The services of a store that is moved may replay such a header.
func TestRecordsImport_AHeaderThatLooksLikeACredentialIsImportedIfItIsAllowed(t *testing.T) {
	store := memstore.New(memstore.Config{})
	im, _, problems := newImport(store, formatJSONL, row("201", `201,"header":{"X-Page-Token":["p"],"Idempotency-Key":["k"],"Surrogate-Key":["s"]}`))
	im.AllowHeaders = []string{"x-page-token"}
	if err := im.check(); err != nil {
		t.Fatal(err, problems)
	}
	if err := im.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	r, err := store.Lookup(t.Context(), onlyonce.ID{Tenant: "acme", Operation: "POST /orders", Key: "k"})
	if err != nil || len(r.Result.Header) != 3 || r.Result.Header["X-Page-Token"][0] != "p" {
		t.Errorf("it wrote %+v, %v", r, err)
	}
}

func TestRecordsImport_EveryMistakeIsReportedWithItsLineAndNothingIsWritten(t *testing.T) {
	for says, c := range map[string]struct{ format, text string }{
		"line 2: tenant is missing":                                                         {formatJSONL, row() + "\n" + row(`"tenant":"acme",`, "")},
		"line 1: operation is missing":                                                      {formatJSONL, row(`"operation":"POST /orders",`, "")},
		"line 1: key is missing":                                                            {formatJSONL, row(`"k"`, `""`)},
		"line 1: a tenant, operation or key has 1025 bytes":                                 {formatJSONL, row(`"k"`, `"`+strings.Repeat("k", 1025)+`"`)},
		"line 3: line 1 has the same tenant, operation and key":                             {formatJSONL, row() + "\n\n" + row("201", "200")},
		"line 1: fingerprint is missing":                                                    {formatJSONL, row(`"00"`, `""`)},
		"line 1: fingerprint is not valid: write 2 to 128":                                  {formatJSONL, row(`"00"`, `"xyz"`)},
		"line 1: status_code is missing":                                                    {formatJSONL, row(`,"status_code":201`, "")},
		"line 1: status_code is 99: write 200 to 599":                                       {formatJSONL, row("201", "99")},
		"line 1: the status_code 0 is that of a call of Do":                                 {formatJSONL, row("201", "0")},
		"line 1: the field status_code is or contains a JSON string":                        {formatJSONL, row("201", `"201"`)},
		"line 1: the field body is or contains a JSON object":                               {formatJSONL, row("201", `201,"body":{}`)},
		`line 1: the field "finger_print" is not known: write tenant`:                       {formatJSONL, row("fingerprint", "finger_print")},
		"line 1: the line is a JSON array: write an object":                                 {formatJSONL, "[]"},
		"line 1: something follows the JSON object":                                         {formatJSONL, row() + row()},
		"line 2: the JSON object is not complete":                                           {formatJSONL, row() + "\n{\n"},
		"line 1: the line is not UTF-8":                                                     {formatJSONL, row("acme", "\xff")},
		"line 1: there are both body and body_base64":                                       {formatJSONL, row("201", `201,"body":"a","body_base64":"YQ=="`)},
		"line 1: body_base64 is not valid":                                                  {formatJSONL, row("201", `201,"body_base64":"YQ"`)},
		"line 1: the response is encrypted: export the records again with --enc":            {formatJSONL, row("201", `201,"body_base64":"b29lAQABYed47UKy64UlJA=="`)},
		"line 1: the response is encrypted":                                                 {formatJSONL, row("201", `0,"state":"unknown","body_base64":"b29lAQABYed47UKy64UlJA=="`)},
		"line 1: the line is not strict JSON: onlyonce: ":                                   {formatJSONL, row("201", `201,"key":"k2"`)},
		"line 1: the line is not strict JSON":                                               {formatJSONL, row("201", `201,"body":"\ud800"`)},
		`line 1: header has the name "A B"`:                                                 {formatJSONL, row("201", `201,"header":{"A B":["c"]}`)},
		"line 1: header has A twice":                                                        {formatJSONL, row("201", `201,"header":{"a":["c"],"A":["d"]}`)},
		"line 1: header has Set-Cookie, which is not replayed":                              {formatJSONL, row("201", `201,"header":{"set-cookie":["c"]}`)},
		"line 1: header has X-Auth-Token, whose name looks like that of a credential":       {formatJSONL, row("201", `201,"header":{"x-auth-token":["c"]}`)},
		"line 2: header has Authorization, whose name looks like that of a credential":      {formatCSV, "tenant,operation,key,fingerprint,status_code,header\na,b,c,00,201,\"{\"\"Authorization\"\":[\"\"c\"\"]}\"\n"},
		"line 1: header has a control character in the value of A":                          {formatJSONL, row("201", `201,"header":{"A":["c\r\nB: d"]}`)},
		"line 1: header has the Content-Length 7, and the body has 1 bytes":                 {formatJSONL, row("201", `201,"body":"a","header":{"Content-Length":["7"]}`)},
		`line 1: the state "done" can't be imported`:                                        {formatJSONL, row("201", `201,"state":"done"`)},
		"line 1: the command failed, and a retry runs it again":                             {formatJSONL, row("201", `201,"state":"failed"`)},
		"line 1: the command failed for good, and a retry without a record runs it":         {formatJSONL, row("201", `0,"state":"failed","final":true`)},
		"line 1: a command whose outcome is unknown has no response":                        {formatJSONL, row("201", `201,"state":"unknown"`)},
		"line 1: only the ID is left of the command":                                        {formatJSONL, row(`"00","status_code":201`, `"","status_code":0,"state":"remembered"`)},
		"line 1: a command whose outcome is unknown has no response: leave out result_keep": {formatJSONL, row("201", `0,"state":"unknown","result_keep_left_seconds":5`)},
		"line 1: the command has finished steps":                                            {formatJSONL, row("201", `0,"state":"unknown","steps":["a"]`)},
		"line 1: the command has finished steps, which can't be imported, and a retry":      {formatJSONL, row("201", `0,"state":"failed","steps":["a"]`)},
		"line 1: the record could not be read when it was exported":                         {formatJSONL, row("201", `0,"state":"unknown","corrupt":true`)},
		`line 1: "yesterday" is not a time: write one such as`:                              {formatJSONL, row("201", `201,"expires_at":"yesterday"`)},
		"line 1: 1767225600 is not a time: write a string":                                  {formatJSONL, row("201", `201,"expires_at":1767225600`)},
		"line 1: the key would be kept until 9999-01-01":                                    {formatJSONL, row("201", `201,"expires_at":"9999-01-01T00:00:00Z"`)},
		"line 1: keep_left_seconds is 0: write a number":                                    {formatJSONL, row("201", `201,"keep_left_seconds":0`)},
		"line 1: there are both expires_at and keep_left_seconds":                           {formatJSONL, row("201", `201,"keep_left_seconds":null,"expires_at":"2030-01-01T00:00:00Z"`)},
		"line 1: summary has 1025 bytes":                                                    {formatJSONL, row("201", `201,"summary":"`+strings.Repeat("s", 1025)+`"`)},
		"line 1: error has 2049 bytes":                                                      {formatJSONL, row("201", `201,"error":"`+strings.Repeat("s", 2049)+`"`)},
		"line 1: the file is empty":                                                         {formatCSV, ""},
		`line 1: the column "Tenant" is not known: write tenant`:                            {formatCSV, "Tenant,key\n"},
		"line 1: there are two columns key":                                                 {formatCSV, "key,tenant,key\n"},
		"line 2: tenant is missing: write the tenant":                                       {formatCSV, "operation,key\nPOST /orders,k\n"},
		"line 4: the row does not have as many cells":                                       {formatCSV, "tenant,operation,key,body,status_code,fingerprint\na,b,k,\"two\nlines\",201,00\na,b,c\n"},
		"line 2: column 4: bare \" in non-quoted-field":                                     {formatCSV, "tenant,operation\na,b\"c\n"},
		"line 2: status_code: \"two\" is not a number":                                      {formatCSV, "tenant,operation,key,status_code\na,b,c,two\n"},
		"line 2: header: \"{\\\"A\\\":[\\\"b\\\"],\\\"A\\\":[]}\" is not valid":             {formatCSV, "tenant,operation,key,header\na,b,c,\"{\"\"A\"\":[\"\"b\"\"],\"\"A\"\":[]}\"\n"},
		"line 2: header: \"Content-Type: a\" is not valid":                                  {formatCSV, "tenant,operation,key,header\na,b,c,Content-Type: a\n"},
		"line 2: expires_at: \"2026-01-02 10:00:00\" is not a time":                         {formatCSV, "tenant,operation,key,expires_at\na,b,c,2026-01-02 10:00:00\n"},
		"line 2: fingerprint is missing: write the one that the program com":                {formatCSV, "tenant,operation,key,status_code\na,b,c,201\n"},
	} {
		im, out, problems := newImport(nil, c.format, c.text) // without a store, a write would panic
		err := im.check()
		if err == nil || !strings.HasPrefix(err.Error(), "nothing was imported: lines with a mistake: ") || !strings.HasPrefix(problems.String(), says) || out.Len() > 0 {
			t.Errorf("want %q, got %q, %v", says, problems, err)
		}
	}
}

func TestRecordsImport_OnlyTheFirstMistakesAreListed(t *testing.T) {
	im, _, problems := newImport(nil, formatJSONL, strings.Repeat("{}\n", 25))
	if err := im.check(); err == nil || err.Error() != "nothing was imported: lines with a mistake: 25 of 25" {
		t.Errorf("it says %v", err)
	}
	if got := strings.Count(problems.String(), "\n"); got != reported+1 || !strings.HasSuffix(problems.String(), "… and 5 more\n") {
		t.Errorf("%d lines: %s", got, problems)
	}
}
