package integration

import (
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
)

func TestMySQL_AStoreWithoutAnIdentityOrWithTwoIsNotOpened(t *testing.T) {
	t.Parallel()
	db := newMySQLDatabase(t).pool(t)
	openMigrated(t, db)
	var column string
	if err := db.QueryRow("SELECT column_name FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = 'onlyonce_fence' AND column_name LIKE 'onlyonce_store%'").Scan(&column); err != nil {
		t.Fatal(err)
	}
	for _, damage := range []struct{ do, undo string }{
		{"ADD COLUMN onlyonce_store_other TINYINT", "DROP COLUMN onlyonce_store_other"},
		{"RENAME COLUMN " + column + " TO lost", "RENAME COLUMN lost TO " + column},
	} {
		execute(t, db, "ALTER TABLE onlyonce_fence "+damage.do)
		_, err := sqlstore.Open(t.Context(), db, sqlstore.Config{})
		if err == nil || !strings.Contains(err.Error(), "restore the column onlyonce_store_") {
			t.Errorf("after %s, open returned %v", damage.do, err)
		}
		if _, err := sqlstore.OpenReader(t.Context(), db); err == nil || !strings.Contains(err.Error(), "restore the column onlyonce_store_") {
			t.Errorf("after %s, open of a reader returned %v", damage.do, err)
		}
		execute(t, db, "ALTER TABLE onlyonce_fence "+damage.undo)
	}
	if err := sqlstore.Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	openOn(t, db)
}
