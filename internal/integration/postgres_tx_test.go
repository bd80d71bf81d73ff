package integration

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
)

// The other schema has the store's tables, too: what is recorded there is not found
// when the command comes again.
func TestPostgreSQL_AFunctionThatSetsAnotherSearchPathCommitsNothing(t *testing.T) {
	here, there := newPostgresSchema(t), newPostgresSchema(t)
	s, _ := here.open(t)
	elsewhere, own := there.open(t)
	there.tx(t, elsewhere, own)
	x := openPgxstore(t, here.with(t))
	const insert = "INSERT INTO own VALUES ('row')"
	leave := "SET LOCAL search_path = " + there.name
	bySQL := func(ctx context.Context, tx *sql.Tx) (onlyonce.Settlement, error) {
		_, err := tx.ExecContext(ctx, leave+"; "+insert)
		return done("made"), err
	}
	byPgx := func(ctx context.Context, tx pgx.Tx) (onlyonce.Settlement, error) {
		_, err := tx.Exec(ctx, leave+"; "+insert)
		return done("made"), err
	}
	for name, run := range map[string]func(c onlyonce.Claim, h onlyonce.Hold) error{
		"sqlstore, RunTx": func(c onlyonce.Claim, _ onlyonce.Hold) error {
			_, err := s.RunTx(t.Context(), c, func(ctx context.Context, tx *sql.Tx, _ onlyonce.Record) (onlyonce.Settlement, error) {
				return bySQL(ctx, tx)
			})
			return err
		},
		"sqlstore, SettleTx": func(_ onlyonce.Claim, h onlyonce.Hold) error { return s.SettleTx(t.Context(), h, bySQL) },
		"pgxstore, RunTx": func(c onlyonce.Claim, _ onlyonce.Hold) error {
			_, err := x.RunTx(t.Context(), c, func(ctx context.Context, tx pgx.Tx, _ onlyonce.Record) (onlyonce.Settlement, error) {
				return byPgx(ctx, tx)
			})
			return err
		},
		"pgxstore, SettleTx": func(_ onlyonce.Claim, h onlyonce.Hold) error { return x.SettleTx(t.Context(), h, byPgx) },
	} {
		t.Run(name, func(t *testing.T) {
			c := serverClaim(name)
			var h onlyonce.Hold
			if strings.HasSuffix(name, "SettleTx") {
				r, err := s.Claim(t.Context(), c)
				if err != nil {
					t.Fatal(err)
				}
				h = onlyonce.Hold{ID: c.ID, Owner: c.Owner, Fence: r.Fence}
			}
			if err := run(c, h); err == nil || !strings.Contains(err.Error(), "search_path") {
				t.Errorf("got error %v", err)
			}
			if r, err := elsewhere.Lookup(t.Context(), c.ID); !errors.Is(err, onlyonce.ErrNotFound) {
				t.Errorf("the other schema has %+v, error %v", r, err)
			}
			var rows int
			if err := own.QueryRow("SELECT count(*) FROM own").Scan(&rows); rows != 0 || err != nil {
				t.Errorf("%d rows were committed, error %v", rows, err)
			}
			if r, err := s.Lookup(t.Context(), c.ID); err == nil && r.State == onlyonce.StateCompleted {
				t.Errorf("the command is %+v", r)
			}
		})
	}
}

func TestPostgreSQL_AFunctionThatTheDatabaseUndoesRunsAgain(t *testing.T) {
	onServers(t, func(t *testing.T, s *sqlstore.Store, db *sql.DB) {
		for _, text := range []string{
			"CREATE TABLE counter (id INT PRIMARY KEY, n INT NOT NULL)",
			"INSERT INTO counter (id, n) VALUES (1, 0), (2, 0)",
		} {
			if _, err := db.Exec(text); err != nil {
				t.Fatal(err)
			}
		}
		// Each has one row, and then wants the other's.
		ctx, cancel := context.WithTimeout(t.Context(), answerLimit)
		defer cancel()
		has := [2]chan struct{}{make(chan struct{}), make(chan struct{})}
		var runs atomic.Int64
		crowd(2, func(i int) {
			both := sync.OnceFunc(func() {
				close(has[i])
				select {
				case <-has[1-i]:
				case <-ctx.Done():
				}
			})
			r, err := s.RunTx(ctx, serverClaim(fmt.Sprint(i)), func(ctx context.Context, tx *sql.Tx, _ onlyonce.Record) (onlyonce.Settlement, error) {
				runs.Add(1)
				for _, id := range []int{1 + i, 2 - i} {
					if _, err := tx.ExecContext(ctx, fmt.Sprintf("UPDATE counter SET n = n + 1 WHERE id = %d", id)); err != nil {
						return onlyonce.Settlement{State: onlyonce.StateFailed, Error: err.Error(), Keep: time.Hour}, err
					}
					both()
				}
				return done("made"), nil
			})
			if err != nil || r.State != onlyonce.StateCompleted {
				t.Errorf("run got %+v and error %v", r, err)
			}
		})
		var sum int64
		if err := db.QueryRow("SELECT sum(n) FROM counter").Scan(&sum); err != nil {
			t.Fatal(err)
		}
		if sum != 4 || runs.Load() < 3 {
			t.Errorf("the counters say %d for two commands, which ran %d times", sum, runs.Load())
		}
	})
}

func TestPostgreSQL_AFunctionThatHidesTheDatabasesErrorCompletesNothing(t *testing.T) {
	onServers(t, func(t *testing.T, s *sqlstore.Store, db *sql.DB) {
		if _, err := db.Exec("CREATE TABLE own (n INT)"); err != nil {
			t.Fatal(err)
		}
		for name, end := range map[string]string{
			"rolls back": "ROLLBACK", "commits": "COMMIT", "commits and makes a savepoint like the store's": "COMMIT; SAVEPOINT onlyonce",
		} {
			r, err := s.RunTx(t.Context(), serverClaim(name), func(ctx context.Context, tx *sql.Tx, _ onlyonce.Record) (onlyonce.Settlement, error) {
				for _, text := range strings.Split("INSERT INTO own (n) VALUES (1); "+end+"; INSERT INTO own (n) VALUES (2)", "; ") {
					if _, err := tx.ExecContext(ctx, text); err != nil {
						return onlyonce.Settlement{}, err
					}
				}
				return done("half"), nil
			})
			if err == nil {
				t.Errorf("a function that %s by itself got %+v", name, r)
			}
			if r, err := s.Lookup(t.Context(), serverClaim(name).ID); err == nil && r.State == onlyonce.StateCompleted {
				t.Errorf("a function that %s by itself left %+v", name, r)
			}
		}
	})
}

func TestPostgreSQL_ATransactionOfTheCallersAtAnyLevelMustBeginAgain(t *testing.T) {
	schema := newPostgresSchema(t)
	s, db := schema.open(t)
	for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
		key := level.String()
		tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec("SELECT 1 FROM onlyonce_records"); err != nil {
			t.Fatal(err)
		}
		first := serverClaim(key)
		if _, err := s.Claim(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		r, err := s.WithTx(tx).Claim(t.Context(), serverClaim(key))
		switch {
		case level == sql.LevelReadCommitted:
			if err != nil || r.Owner != first.Owner {
				t.Errorf("at %v the claim got %+v and error %v", level, r, err)
			}
		case !errors.Is(err, onlyonce.ErrUnavailable) || !strings.Contains(err.Error(), "run it again"):
			t.Errorf("at %v the claim got %+v and error %v", level, r, err)
		default:
			if _, err := s.WithTx(tx).Lookup(t.Context(), first.ID); err == nil || !strings.Contains(err.Error(), "roll it back") {
				t.Errorf("at %v, after an error, lookup got error %v", level, err)
			}
		}
		if err := tx.Rollback(); err != nil {
			t.Error(err)
		}
	}
}
