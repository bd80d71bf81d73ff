package mysql

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"regexp"

	"github.com/onlyonce-go/onlyonce/stores/internal/record"
	"github.com/onlyonce-go/onlyonce/stores/internal/server"
)

// An identity tells a store from those on other servers and in other databases. It is the name,
// which Migrate makes up, of a column of onlyonce_fence. Statements name it, and a server that lacks
// a column of that name executes none of them. A replica has the identity of its primary, and a
// copy that of its original.
type identity string

// column matches the column's name in the text of a statement that is for no store in particular.
var column = regexp.MustCompile(`\bonlyonce_store\b`)

const identityPrefix = "onlyonce_store_"

var errIdentity = errors.New("onlyonce_fence does not have the one column that Migrate has made up a name for: restore the column " + identityPrefix + "…, and drop copies of it")

// identityOf returns the identity of the store in a database that has been migrated.
func identityOf(l server.Runner) (is identity, err error) {
	err = l.Query("identity", func(v []driver.Value) error {
		r := record.Reader{Values: v}
		name, columns := r.Text("name"), r.Int("columns")
		if r.Err == nil && columns != 1 {
			return fmt.Errorf("%w (there are %d)", errIdentity, columns)
		}
		is = identity(name)
		return r.Err
	})
	return is, err
}

// in returns a statement as it is sent to the store.
func (i identity) in(statement string) string {
	return column.ReplaceAllLiteralString(statement, string(i))
}
