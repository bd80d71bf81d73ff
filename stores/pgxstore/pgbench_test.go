package pgxstore_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
)

// A pgbenchRun is how pgbench runs the plain statements: each of its clients sends one for each
// of so many callers in a pipeline, as prepared statements with binary values of the same size
// as the store's.
type pgbenchRun struct {
	clients, callers int  // callers of all clients together
	oneCommit        bool // claims and settlements in one transaction; otherwise claims are committed, and the client waits for that, before settlements are sent
}

// script returns the pgbench script of one client. A command's ID is a hash of a random number.
func (r pgbenchRun) script() string {
	var b strings.Builder
	each := r.callers / r.clients
	all := func(format string) {
		for i := range each {
			fmt.Fprintf(&b, format, i)
		}
	}
	all("\\set k%d random(1, 9223372036854775807)\n")
	b.WriteString("\\startpipeline\nBEGIN;\n")
	all(oneLine(`INSERT INTO naive_records (id, tenant, operation, idem_key, fingerprint, state, owner, attempt, fence, lease_until, created_at)
		VALUES (sha256(int8send(:k%[1]d)), :tenant, :operation, :k%[1]d::text, :fingerprint, 'processing', :owner, 1, 1, clock_timestamp() + interval '30 s', clock_timestamp())
		ON CONFLICT (id) DO NOTHING;`))
	if !r.oneCommit {
		b.WriteString("COMMIT;\n\\endpipeline\n\\startpipeline\nBEGIN;\n")
	}
	all(oneLine(`UPDATE naive_records SET state = 'completed', status_code = :status, response_header = :header, response_body = :body,
		settled_at = clock_timestamp(), expires_at = clock_timestamp() + interval '24 h'
		WHERE id = sha256(int8send(:k%[1]d)) AND owner = :owner AND state = 'processing';`))
	b.WriteString("COMMIT;\n\\endpipeline\n")
	return b.String()
}

func oneLine(statement string) string { return strings.Join(strings.Fields(statement), " ") + "\n" }

var tps = regexp.MustCompile(`(?m)^tps = ([0-9.]+) \(without initial connection time\)$`)

// bench runs pgbench for two seconds, however large b.N is, on the server and the schema of the
// pool. In the first of its transactions, a client prepares the statements. bench skips the
// benchmark if pgbench is not installed.
func (r pgbenchRun) bench(b *testing.B, pool *pgxpool.Pool) {
	program, err := exec.LookPath("pgbench")
	if err != nil {
		b.Skip("pgbench is not installed")
	}
	script := filepath.Join(b.TempDir(), "script.sql")
	if err := os.WriteFile(script, []byte(r.script()), 0o600); err != nil {
		b.Fatal(err)
	}
	cfg := pool.Config().ConnConfig
	cmd := exec.CommandContext(b.Context(), program, "--no-vacuum", "--protocol=prepared", "--file="+script,
		"--client="+strconv.Itoa(r.clients), "--jobs="+strconv.Itoa(r.clients), "--time=2",
		"-Dtenant=tenant", "-Doperation=POST /v1/orders", "-Dfingerprint=\\x"+strings.Repeat("ab", len(fingerprint)), "-Downer=\\x"+strings.Repeat("cd", 16),
		"-Dstatus="+strconv.Itoa(answer.Status), `-Dheader={"Content-Type":["application/json"]}`, "-Dbody=\\x"+strings.Repeat("00", len(answer.Body)))
	cmd.Env = append(os.Environ(), "PGHOST="+cfg.Host, fmt.Sprintf("PGPORT=%d", cfg.Port), "PGUSER="+cfg.User, "PGPASSWORD="+cfg.Password, "PGDATABASE="+cfg.Database,
		"PGOPTIONS=-c search_path="+cfg.RuntimeParams["search_path"])
	out, err := cmd.CombinedOutput()
	found := tps.FindSubmatch(out)
	if err != nil || found == nil {
		b.Fatalf("pgbench: %v\n%s", err, out)
	}
	rate, err := strconv.ParseFloat(string(found[1]), 64)
	if err != nil {
		b.Fatal(err)
	}
	rate *= float64(r.callers) / float64(r.clients) // each transaction is of one client
	b.ReportMetric(1e9/rate, "ns/op")
	b.ReportMetric(rate, "op/s")
}
