package pgxstore

import (
	_ "embed"
	"maps"
	"regexp"

	"github.com/onlyonce-go/onlyonce/stores/internal/postgres"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
)

//go:embed statements.sql
var file string

// sqlText is every statement by its name: those of the stores on PostgreSQL, and the
// store's own.
var sqlText = merge(postgres.Text, record.Blocks(record.Expiry("onlyonce_now()").Replace(file)))

// The statements that end a transaction, and fail if they affect no row.
const (
	recordNewOrFail = "record new or fail"
	recordOrFail    = "record or fail"
	settleOrFail    = "settle or fail"
	releaseOrFail   = "release or fail"
)

var braces = regexp.MustCompile(`\{([a-z ]+)\}`)

// merge returns the statements of both, and completes those of the second.
func merge(shared, own map[string]string) map[string]string {
	all := maps.Clone(shared)
	for name, text := range own {
		if _, twice := all[name]; twice {
			panic("pgxstore: the statement " + name + " is there twice")
		}
		all[name] = braces.ReplaceAllStringFunc(text, func(brace string) string {
			return shared[braces.FindStringSubmatch(brace)[1]]
		})
	}
	return all
}
