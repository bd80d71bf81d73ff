package main

import "testing"

func TestMigrateSaysWhatItDid(t *testing.T) {
	for from, want := range map[int]string{
		0: "sqlite:/a.db: created, at version 4",
		1: "sqlite:/a.db: migrated from version 1 to 4",
		4: "sqlite:/a.db is up to date, at version 4",
	} {
		if got := migrated(storeURL{engine: "sqlite", path: "/a.db"}, from, 4); got != want {
			t.Errorf("from %d: %q, want %q", from, got, want)
		}
	}
}
