package pgxstore

import (
	_ "embed"

	"github.com/onlyonce-go/onlyonce/stores/internal/postgres"
)

//go:embed statements.sql
var file string

// sqlText is every statement by its name: those of the stores on PostgreSQL, and the
// store's own.
var sqlText = postgres.Statements(file)

// The statements that end a transaction, and fail if they affect no row.
const (
	recordNewOrFail = "record new or fail"
	recordOrFail    = "record or fail"
	settleOrFail    = "settle or fail"
	releaseOrFail   = "release or fail"
)
