package postgres

import (
	"fmt"
	"testing"

	"github.com/onlyonce-go/onlyonce/stores/internal/server"
)

// A sqlState is an error of the server, by its code.
type sqlState string

func (s sqlState) Error() string    { return "ERROR: something (SQLSTATE " + string(s) + ")" }
func (s sqlState) SQLState() string { return string(s) }

func TestDialect_AnErrorOfTheServerIsKnownByItsSQLState(t *testing.T) {
	for code, want := range map[string]server.ErrorClass{
		"40001": server.ClassConflict, "40P01": server.ClassConflict, "25P02": server.ClassAborted, "57014": server.ClassTimeout, "55P03": server.ClassTimeout,
		"22001": server.ClassTooLarge, "25006": server.ClassReadOnly, "23505": server.ClassRefused, "42P01": server.ClassRefused,
		"53300": server.ClassOther, "57P01": server.ClassOther, "08006": server.ClassOther, "58030": server.ClassOther, "XX000": server.ClassOther,
	} {
		if got := (dialect{}).Classify(fmt.Errorf("wrapped: %w", sqlState(code))); got != want {
			t.Errorf("%s is of class %d, want %d", code, got, want)
		}
	}
}
