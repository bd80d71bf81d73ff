package pgxstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/transact"
	"github.com/onlyonce-go/onlyonce/stores/pgxstore"
)

// The codes are those of a canceled statement, a full disk and a lack of memory.
func TestError_AStatementThatTheServerGivesUpLeavesNothingAndIsUnavailable(t *testing.T) {
	for code, explained := range map[string]bool{"57014": true, "53100": false, "53200": false} {
		t.Run(code, func(t *testing.T) {
			pool := newPool(t)
			s := open(t, pool)
			own(t, pool)
			hold := mustClaim(t, s, claimOf("claimed"))
			if _, err := pool.Exec(t.Context(), `
CREATE FUNCTION give_up() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'given up' USING ERRCODE = '`+code+`'; END $$;
CREATE TRIGGER give_up BEFORE INSERT OR UPDATE ON onlyonce_records FOR EACH ROW EXECUTE FUNCTION give_up()`); err != nil {
				t.Fatal(err)
			}
			settleTx := func(ctx context.Context, tx pgx.Tx) (onlyonce.Settlement, error) {
				return inserts("settled")(ctx, tx, onlyonce.Record{})
			}
			for name, call := range map[string]func() error{
				"claim":    func() error { _, err := s.Claim(t.Context(), claimOf("new")); return err },
				"settle":   func() error { return s.Settle(t.Context(), holdOf(hold), completed) },
				"RunTx":    func() error { _, err := s.RunTx(t.Context(), claimOf("run"), inserts("run")); return err },
				"SettleTx": func() error { return s.SettleTx(t.Context(), holdOf(hold), settleTx) },
			} {
				err := call()
				if err == nil || errors.Is(err, onlyonce.ErrUnknown) || explained && !errors.Is(err, onlyonce.ErrUnavailable) {
					t.Errorf("%s: %v", name, err)
				}
			}
			if n := rows(t, pool); n != 0 {
				t.Errorf("there are %d rows", n)
			}
		})
	}
}

func TestError_WhatBecameOfATransactionIsKnownIfItsLastStatementWasGivenUp(t *testing.T) {
	severe := func(severity, code string) error {
		return fmt.Errorf("wrapped: %w", &pgconn.PgError{SeverityUnlocalized: severity, Code: code})
	}
	for _, c := range []struct {
		err   error
		wrote bool
		want  transact.Outcome
	}{
		{nil, true, transact.Committed},
		{severe("ERROR", "57014"), false, transact.RolledBack},
		{severe("ERROR", "55P03"), false, transact.RolledBack},
		{severe("ERROR", "53100"), false, transact.RolledBack},
		{severe("ERROR", "53200"), false, transact.RolledBack},
		{severe("ERROR", "57014"), true, transact.InDoubt}, // it may be the COMMIT's
		{severe("ERROR", "53100"), true, transact.InDoubt},
		{severe("FATAL", "57P01"), false, transact.InDoubt}, // the server may have executed both before it ended
		{severe("FATAL", "53300"), false, transact.InDoubt},
		{severe("ERROR", "08006"), false, transact.InDoubt}, // of a pooler, in the server's place
		{severe("ERROR", "58000"), false, transact.InDoubt},
		{errors.New("the connection broke"), false, transact.InDoubt},
		{severe("ERROR", "23505"), false, transact.RolledBack},
		{severe("ERROR", "40001"), true, transact.RolledBack},
		{severe("ERROR", "22012"), false, transact.Overtaken},
	} {
		if got := pgxstore.OutcomeOf(c.wrote, c.err); got != c.want {
			t.Errorf("%v, written: %v: got %v, want %v", c.err, c.wrote, got, c.want)
		}
	}
}

func TestError_AClaimThatMayHaveBeenWrittenDoesNotSayThatNothingWas(t *testing.T) {
	const giveUp = `RAISE EXCEPTION 'given up' USING ERRCODE = '57014'`
	for name, triggers := range map[string]string{
		"its fence was not raised": `
CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.1); RETURN NEW; END $$;
CREATE TRIGGER slow BEFORE INSERT ON onlyonce_records FOR EACH ROW EXECUTE FUNCTION slow();
CREATE FUNCTION give_up() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN ` + giveUp + `; END $$;
CREATE TRIGGER give_up BEFORE UPDATE ON onlyonce_records FOR EACH STATEMENT EXECUTE FUNCTION give_up()`,
		"it was sent twice": `
CREATE SEQUENCE sent;
CREATE FUNCTION cut() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	IF nextval('sent') > 1 THEN ` + giveUp + `; END IF;
	PERFORM pg_terminate_backend(pg_backend_pid()), pg_sleep(1);
	RETURN NEW;
END $$;
CREATE TRIGGER cut BEFORE INSERT ON onlyonce_records FOR EACH ROW EXECUTE FUNCTION cut()`,
	} {
		t.Run(name, func(t *testing.T) {
			pool := newPool(t)
			s := open(t, pool)
			if _, err := pool.Exec(t.Context(), triggers); err != nil {
				t.Fatal(err)
			}
			_, err := s.Claim(t.Context(), claimOf("new"))
			if err == nil || !strings.Contains(err.Error(), "given up") || errors.Is(err, onlyonce.ErrUnavailable) {
				t.Errorf("claim: %v", err)
			}
		})
	}
}

// Behind a pooler, reads are at the pool's isolation level, and may conflict at SERIALIZABLE.
func TestError_AReadThatConflictsIsRepeated(t *testing.T) {
	schema := newSchema(t)
	pool := openPool(t, "search_path="+schema)
	c := claimOf("there")
	mustClaim(t, open(t, pool), c)
	role := schema + "_reader"
	for _, sql := range []string{
		"CREATE ROLE " + role,
		"GRANT USAGE ON SCHEMA " + schema + " TO " + role,
		"GRANT SELECT ON ALL TABLES IN SCHEMA " + schema + " TO " + role,
		`CREATE SEQUENCE reads;
CREATE FUNCTION conflict() RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
	IF nextval('` + schema + `.reads') <= 3 THEN RAISE EXCEPTION 'conflict' USING ERRCODE = '40001'; END IF;
	RETURN true;
END $$;
ALTER TABLE onlyonce_records ENABLE ROW LEVEL SECURITY;
CREATE POLICY conflicts ON onlyonce_records USING (conflict())`,
	} {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if _, err := pool.Exec(context.Background(), "DROP OWNED BY "+role+"; DROP ROLE "+role); err != nil {
			t.Error(err)
		}
	})
	s, err := pgxstore.Open(t.Context(), openPool(t, "search_path="+schema, "role="+role), pgxstore.Config{PurgeEvery: pgxstore.NeverPurge})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if r, err := s.Lookup(t.Context(), c.ID); err != nil || r.Owner != c.Owner {
		t.Errorf("lookup: %+v, %v", r, err)
	}
}
