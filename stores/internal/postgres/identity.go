package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/onlyonce-go/onlyonce/stores/internal/engine"
)

// An Identity tells a store from those on other servers, in other databases and in other
// schemas. It is the name, which Migrate makes up, of a function that returns the store's
// clock. Statements call it, and a server that lacks a function of that name executes none of
// them. A standby has the identity of its primary, and a copy that of its original.
type Identity string

const (
	clock          = "onlyonce_now" // in the text of a statement that is for no store in particular
	identityPrefix = clock + "_"
)

var errIdentity = errors.New("the schema does not have the one function that Migrate has made up a name for: restore the function " + identityPrefix + "…, and delete copies of it")

// identityOf returns the identity of the store in a database that has been migrated.
func identityOf(ctx context.Context, on engine.RowQuerier) (Identity, error) {
	var name string
	var clocks int
	err := on.QueryRowContext(ctx, Text["identity"]).Scan(&name, &clocks)
	switch {
	case err != nil:
		return "", err
	case clocks != 1:
		return "", fmt.Errorf("%w (there are %d)", errIdentity, clocks)
	}
	return Identity(name), nil
}

// In returns the statements as they are sent to the store.
func (i Identity) In(statements map[string]string) map[string]string {
	own := make(map[string]string, len(statements))
	for name, text := range statements {
		own[name] = strings.ReplaceAll(text, clock+"()", string(i)+"()")
	}
	return own
}
