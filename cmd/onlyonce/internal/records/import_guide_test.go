package records

import (
	"bytes"
	"crypto/sha256"
	"database/sql"
	"encoding/csv"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cmdtest"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/internal/storeurl"
)

// selected returns the rows that a query selects, as CSV with a heading.
func selected(t *testing.T, db *sql.DB, query string) string {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	out := csv.NewWriter(&text)
	_ = out.Write(columns) // Error returns the error
	for rows.Next() {
		cells, into := make([]sql.NullString, len(columns)), make([]any, len(columns))
		for i := range cells {
			into[i] = &cells[i]
		}
		if err := rows.Scan(into...); err != nil {
			t.Fatal(err)
		}
		row := make([]string, len(cells))
		for i, cell := range cells {
			row[i] = cell.String // NULL is an empty cell, as psql writes it
		}
		_ = out.Write(row)
	}
	out.Flush()
	if err := rows.Err(); err != nil || out.Error() != nil {
		t.Fatal(err, out.Error())
	}
	return text.String()
}

func TestRecordsImport_TheStatementOfTheGuideMovesATableOfKeys(t *testing.T) {
	guide, err := os.ReadFile("../../../../docs/migrating.md")
	if err != nil {
		t.Fatal(err)
	}
	_, statement, found := strings.Cut(string(guide), "```sql\n")
	statement, _, ended := strings.Cut(statement, "```")
	if !found || !ended {
		t.Fatal("docs/migrating.md has no statement")
	}
	u, err := storeurl.Parse(cmdtest.NewPostgresURL(t))
	if err != nil {
		t.Fatal(err)
	}
	store, err := u.OpenMigrated(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	hash := func(body string) string {
		sum := sha256.Sum256([]byte(body))
		return hex.EncodeToString(sum[:])
	}
	for _, step := range [][]any{
		{`CREATE TABLE idempotency_keys (account text NOT NULL, idempotency_key text NOT NULL, request_hash text NOT NULL,
			created_at timestamptz NOT NULL, locked_at timestamptz, response_code integer, response_body text, PRIMARY KEY (account, idempotency_key))`},
		{`INSERT INTO idempotency_keys VALUES ('acme', 'paid', $1, now() - interval '1 hour', NULL, 201, E'receipt "1",\nthank you')`, hash("amount=1")},
		{`INSERT INTO idempotency_keys VALUES ('acme', 'locked', $1, now() - interval '1 hour', now(), NULL, NULL)`, hash("amount=2")},
		{`INSERT INTO idempotency_keys VALUES ('acme', 'old', $1, now() - interval '25 hours', NULL, 201, 'receipt 0')`, hash("amount=3")},
	} {
		if _, err := store.DB.ExecContext(t.Context(), step[0].(string), step[1:]...); err != nil {
			t.Fatal(err)
		}
	}
	im, out, problems := newImport(store, formatCSV, selected(t, store.DB, statement))
	if err := im.check(); err != nil {
		t.Fatalf("%v\n%s", err, problems)
	}
	if err := im.run(t.Context()); err != nil || out.String() != summary(2, 0, 1) {
		t.Fatalf("it printed %s, %s, %v", out, problems, err)
	}

	ran := 0
	mux := http.NewServeMux()
	guard := onlyonce.New(store, onlyonce.Config{HoldUnknown: true, Observer: onlyonce.DiscardEvents})
	mux.Handle("POST /payments", httponce.Wrap(guard, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { ran++ }), httponce.Config{
		Tenant: func(*http.Request) string { return "acme" },
		Fingerprint: func(_ *http.Request, body []byte) []byte {
			sum := sha256.Sum256(body)
			return sum[:]
		},
	}))
	for _, c := range []struct {
		key, body string
		status    int
		want      string
		runs      int
	}{
		{"paid", "amount=1", 201, "receipt \"1\",\nthank you", 0},
		{"paid", "amount=7", 422, httponce.CodeKeyReused, 0},
		{"locked", "amount=2", 409, httponce.CodeOutcomeUnknown, 0},
		{"old", "amount=3", 200, "", 1},
	} {
		r := httptest.NewRequest("POST", "/payments", strings.NewReader(c.body))
		r.Header.Set("Idempotency-Key", c.key)
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		var body bytes.Buffer
		_, _ = io.Copy(&body, w.Body)
		if w.Code != c.status || !strings.Contains(body.String(), c.want) || ran != c.runs {
			t.Errorf("%s, %s: %d, %s, %d runs", c.key, c.body, w.Code, &body, ran)
		}
	}
	r, err := store.Lookup(t.Context(), onlyonce.ID{Tenant: "acme", Operation: "POST /payments", Key: "paid"})
	if err != nil || r.KeepLeft > 23*time.Hour || r.Result.Header["Content-Type"][0] != "text/plain; charset=utf-8" {
		t.Errorf("the record is %+v, %v", r, err)
	}
}
