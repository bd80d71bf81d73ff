package sqlite

import (
	"errors"
	"testing"
	"testing/synctest"
)

func TestRetryWhileLocked_OnlyALockOfSQLiteIsWaitedFor(t *testing.T) {
	for text, waits := range map[string]bool{
		"database is locked (5) (SQLITE_BUSY)":                                          true,
		"sqlite3: database is locked":                                                   true,
		"database table is locked: onlyonce_schema":                                     true,
		"database schema is locked: main (6) (SQLITE_LOCKED)":                           true,
		"Error 3118 (HY000): Access denied for user 'onlyonce'@'%'. Account is locked.": false,
		"Error 4151 (HY000): Access denied, this account is locked":                     false,
		"unable to open database file: out of memory (14)":                              false,
	} {
		synctest.Test(t, func(t *testing.T) {
			calls := 0
			err := RetryWhileLocked(t.Context(), func() error {
				calls++
				if calls > 1 {
					return nil
				}
				return errors.New(text)
			})
			if waited := calls == 2 && err == nil; waited != waits {
				t.Errorf("%q: %d calls, error %v", text, calls, err)
			}
		})
	}
}
