package migrate

import (
	"testing"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/storeurl"
)

func TestMigrate_SaysWhatItDid(t *testing.T) {
	u, err := storeurl.Parse("sqlite:/a.db")
	if err != nil {
		t.Fatal(err)
	}
	for from, want := range map[int]string{
		0: "sqlite:/a.db: created, at version 4",
		1: "sqlite:/a.db: migrated from version 1 to 4",
		4: "sqlite:/a.db is up to date, at version 4",
	} {
		if got := migrated(u, from, 4); got != want {
			t.Errorf("from %d: %q, want %q", from, got, want)
		}
	}
}
