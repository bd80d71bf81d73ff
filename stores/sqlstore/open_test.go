package sqlstore_test

import (
	"testing"

	"github.com/onlyonce-go/onlyonce/stores/internal/hazard"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
)

func TestOpen_ANilDatabasePanicsAndSaysWhatToPass(t *testing.T) {
	hazard.CheckPanics(t, "sqlstore: there is no database: pass what sql.Open returned",
		func() { _, _ = sqlstore.Open(t.Context(), nil, sqlstore.Config{}) },
		func() { _ = sqlstore.Migrate(t.Context(), nil) })
}
