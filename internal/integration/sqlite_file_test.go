package integration

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/onlyonce-go/onlyonce"
)

func TestSQLite_RejectsToGoOnInAFileThatIsGone(t *testing.T) {
	for name, remove := range map[string]func(file string) error{
		"deleted": os.Remove,
		"moved":   func(file string) error { return os.Rename(file, file+".old") },
		"replaced": func(file string) error {
			return errors.Join(os.Rename(file, file+".old"), os.WriteFile(file, nil, 0o600))
		},
		"log deleted": func(file string) error { return os.Remove(file + "-wal") },
		"log moved":   func(file string) error { return os.Rename(file+"-wal", file+"-wal.old") },
		"log replaced": func(file string) error {
			return errors.Join(os.Remove(file+"-wal"), os.WriteFile(file+"-wal", nil, 0o600))
		},
		"index of the log deleted": func(file string) error { return os.Remove(file + "-shm") },
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "records.db")
			s, _ := openSQLite(t, file)
			guard := onlyonce.NewTx(s, onlyonce.Config{})
			pay := func(context.Context) (int, error) { return 1, nil }
			request := func(key string) onlyonce.Request {
				return onlyonce.Request{ID: onlyonce.ID{Key: key}, SkipFingerprint: true}
			}
			if _, err := onlyonce.Do(t.Context(), guard.Guard, request("before"), pay); err != nil {
				t.Fatal(err)
			}
			if err := remove(file); err != nil {
				t.Fatal(err)
			}
			if _, err := onlyonce.Do(t.Context(), guard.Guard, request("after"), pay); !errors.Is(err, onlyonce.ErrUnavailable) {
				t.Errorf("Do: %v", err)
			}
			ran := false
			_, err := onlyonce.DoTx(t.Context(), guard, request("after"), func(context.Context, *sql.Tx) (int, error) { ran = true; return 1, nil })
			if !errors.Is(err, onlyonce.ErrUnavailable) || ran {
				t.Errorf("DoTx: ran %v, %v", ran, err)
			}
			if _, err := s.Lookup(t.Context(), request("before").ID); !errors.Is(err, onlyonce.ErrUnavailable) {
				t.Errorf("Lookup: %v", err)
			}
		})
	}
}

func TestSQLite_AFunctionThatCommitsByItselfLeavesTheOutcomeUnknown(t *testing.T) {
	for name, end := range map[string]func(*sql.Tx) error{
		"Commit": (*sql.Tx).Commit,
		"COMMIT": func(tx *sql.Tx) error { _, err := tx.Exec("COMMIT"); return err },
		"BEGIN":  func(tx *sql.Tx) error { _, err := tx.Exec("COMMIT; BEGIN IMMEDIATE"); return err },
		"SAVEPOINT": func(tx *sql.Tx) error {
			_, err := tx.Exec("COMMIT; BEGIN IMMEDIATE; SAVEPOINT onlyonce")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := newSQLite(t)
			guard := onlyonce.NewTx(s, onlyonce.Config{})
			_, err := onlyonce.DoTx(t.Context(), guard, onlyonce.Request{ID: onlyonce.ID{Key: "k"}, SkipFingerprint: true}, func(_ context.Context, tx *sql.Tx) (int, error) {
				return 1, end(tx)
			})
			if !errors.Is(err, onlyonce.ErrUnknown) || errors.Is(err, onlyonce.ErrUnavailable) {
				t.Errorf("error %v", err)
			}
		})
	}
}
