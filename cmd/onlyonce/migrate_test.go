package main

import "testing"

func TestMigrateSaysWhatItDid(t *testing.T) {
	for from, want := range map[int]string{
		0: "sqlite:/a.db: created, at version 3",
		1: "sqlite:/a.db: migrated from version 1 to 3",
		3: "sqlite:/a.db is up to date, at version 3",
	} {
		if got := migrated(storeURL{engine: "sqlite", path: "/a.db"}, from, 3); got != want {
			t.Errorf("from %d: %q, want %q", from, got, want)
		}
	}
}
