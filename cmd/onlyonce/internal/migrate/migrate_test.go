package migrate

import "testing"

func TestMigrate_SaysWhatItDid(t *testing.T) {
	for from, want := range map[int64]string{
		0: "sqlite:/a.db: created, at version 4",
		1: "sqlite:/a.db: migrated from version 1 to 4",
		4: "sqlite:/a.db: up to date, at version 4",
	} {
		if got := migrated("sqlite:/a.db", from, 4); got != want {
			t.Errorf("from %d: %q, want %q", from, got, want)
		}
	}
}
