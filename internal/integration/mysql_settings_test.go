package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
)

// The session's time zone goes over to summer time while a statement runs: SYSDATE is
// an hour ahead of NOW.
func TestMySQL_TheClockDoesNotJumpWithTheTimeZone(t *testing.T) {
	d := newMySQLDatabase(t)
	d.open(t)
	for _, jump := range []time.Duration{time.Hour, -time.Hour, 30 * time.Minute} {
		t.Run(jump.String(), func(t *testing.T) {
			db := d.pool(t, fmt.Sprintf("timestamp=%d", time.Now().Add(-jump).Unix()))
			s, err := sqlstore.Open(t.Context(), db, sqlstore.Config{AcceptRisks: []string{"sysdate-is-now"}}) // its clock is set back
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Close() })
			c := serverClaim(jump.String())
			r, err := s.Claim(t.Context(), c)
			if err == nil {
				err = s.Settle(t.Context(), onlyonce.Hold{ID: c.ID, Owner: c.Owner, Fence: r.Fence}, done("made"))
			}
			if err != nil {
				t.Fatal(err)
			}
			if r, err = s.Lookup(t.Context(), c.ID); err != nil {
				t.Fatal(err)
			}
			if took := r.SettledAt.Sub(r.CreatedAt).Abs(); took > 15*time.Minute {
				t.Errorf("the record was settled %v from its claim", took)
			}
			if r.KeepLeft > time.Hour || r.KeepLeft < 45*time.Minute {
				t.Errorf("it is kept for %v, want an hour", r.KeepLeft)
			}
		})
	}
}

// These settings change the meaning of the store's statements.
func TestMySQL_SessionsThatChangeStatementsAreRejected(t *testing.T) {
	d := newMySQLDatabase(t)
	_, db := d.open(t)
	var mariadb bool
	if err := db.QueryRow("SELECT VERSION() LIKE '%MariaDB%'").Scan(&mariadb); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		setting, finding string
		mariadb          bool // only it knows the setting by this name
	}{
		{setting: "sql_mode=%27%27", finding: "sql-mode"},
		{setting: "autocommit=0", finding: "autocommit"},
		{setting: "sql_safe_updates=1", finding: "sql-safe-updates"},
		{setting: "sql_select_limit=1", finding: "sql-select-limit"},
		{setting: "sql_select_limit=1000000", finding: "sql-select-limit"},
		{setting: "completion_type=CHAIN", finding: "completion-type"},
		{setting: "collation_connection=utf16_general_ci", finding: "character-set"},
		{setting: "character_set_connection=ucs2", finding: "character-set"},
		{setting: "character_set_connection=utf32", finding: "character-set"},
		{"tx_read_only=1", "replica", true},                        // as MySQL's transaction_read_only
		{"tx_isolation=%27READ-UNCOMMITTED%27", "isolation", true}, // as MySQL's transaction_isolation
		{"sql_mode=%27ORACLE,STRICT_TRANS_TABLES%27", "sql-mode", true},
		{"sql_mode=%27STRICT_TRANS_TABLES,SIMULTANEOUS_ASSIGNMENT%27", "sql-mode", true},
		{"sql_mode=%27STRICT_TRANS_TABLES,EMPTY_STRING_IS_NULL%27", "sql-mode", true},
	} {
		t.Run(c.setting, func(t *testing.T) {
			if c.mariadb && !mariadb {
				t.Skip("needs MariaDB: MySQL does not have this mode")
			}
			db := d.pool(t, c.setting)
			if _, err := sqlstore.Open(t.Context(), db, sqlstore.Config{}); err == nil || !strings.Contains(err.Error(), c.finding+": ") {
				t.Errorf("open got error %v", err)
			}
			if _, err := sqlstore.Open(t.Context(), db, sqlstore.Config{AcceptRisks: []string{c.finding}}); err == nil {
				t.Error("the risk was accepted")
			}
		})
	}
}

func TestMySQL_AnOldReplayOfMySQLCostsNoFlush(t *testing.T) {
	d := newMySQLDatabase(t)
	other, db := d.open(t)
	var binlog bool
	if err := db.QueryRow("SELECT @@log_bin").Scan(&binlog); err != nil {
		t.Fatal(err)
	}
	c := serverClaim("k")
	r, err := other.Claim(t.Context(), c)
	if err == nil {
		err = other.Settle(t.Context(), onlyonce.Hold{ID: c.ID, Owner: c.Owner, Fence: r.Fence}, done("made"))
	}
	if err != nil {
		t.Fatal(err)
	}
	replay := func(s *sqlstore.Store, h *hook) (flushed bool) {
		h.once("onlyonce_flush", func() {})
		if r, err := s.Claim(t.Context(), serverClaim("k")); err != nil || r.State != onlyonce.StateCompleted {
			t.Errorf("the claim got %+v and error %v", r, err)
		}
		return h.met()
	}
	pool, h := hookedMySQL(t, d)
	young := openOn(t, pool)
	if replay(young, h) == binlog {
		t.Errorf("the replay of a new record was flushed for: %v, with the binary log on: %v", !binlog, binlog)
	}
	if replay(young, h) {
		t.Error("the second replay was flushed for")
	}
	if _, err := db.Exec("UPDATE onlyonce_records SET settled_at = settled_at - 61000000"); err != nil {
		t.Fatal(err)
	}
	pool, h = hookedMySQL(t, d)
	if replay(openOn(t, pool), h) {
		t.Error("the replay of an old record was flushed for")
	}
}
