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

// ownText is every statement that only this store sends, by its name.
var ownText = complete(postgres.Text, record.Blocks(record.Expiry("onlyonce_now()").Replace(file)))

// sqlText is every statement by its name: those of the stores on PostgreSQL, and the
// store's own.
var sqlText = merge(postgres.Text, ownText)

// The statements that end a transaction, and fail if they affect no row.
const (
	recordNewOrFail = "record new or fail"
	recordOrFail    = "record or fail"
	settleOrFail    = "settle or fail"
	releaseOrFail   = "release or fail"
)

var braces = regexp.MustCompile(`\{([a-z ]+)\}`)

// complete puts shared statements where their names stand in braces.
func complete(shared, own map[string]string) map[string]string {
	for name, text := range own {
		own[name] = braces.ReplaceAllStringFunc(text, func(brace string) string {
			return shared[braces.FindStringSubmatch(brace)[1]]
		})
	}
	return own
}

// merge returns the statements of both.
func merge(shared, own map[string]string) map[string]string {
	all := maps.Clone(shared)
	for name, text := range own {
		if _, twice := all[name]; twice {
			panic("pgxstore: the statement " + name + " is there twice")
		}
		all[name] = text
	}
	return all
}
