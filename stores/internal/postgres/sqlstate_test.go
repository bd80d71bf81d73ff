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

func TestClassify_AnErrorOfTheServerIsKnownByItsSQLState(t *testing.T) {
	for code, want := range map[string]server.ErrorClass{
		"40001": server.ClassConflict, "40P01": server.ClassConflict, "25P02": server.ClassAborted, "57014": server.ClassTimeout, "55P03": server.ClassTimeout,
		"25P03": server.ClassLeftOpen, "25P04": server.ClassTimeout,
		"22001": server.ClassTooLarge, "25006": server.ClassReadOnly, "23505": server.ClassRejected, "42P01": server.ClassRejected,
		"53300": server.ClassOther, "57P01": server.ClassOther, "08006": server.ClassOther, "58030": server.ClassOther, "XX000": server.ClassOther,
	} {
		if got := Classify(fmt.Errorf("wrapped: %w", sqlState(code))); got != want {
			t.Errorf("%s is of class %d, want %d", code, got, want)
		}
	}
	for message, want := range map[string]server.ErrorClass{
		"function onlyonce_now_0123456789abcdef() does not exist": server.ClassOtherCluster,
		"function shop_price(integer) does not exist":             server.ClassRejected,
	} {
		if got := Classify(fmt.Errorf("%s: %w", message, sqlState("42883"))); got != want {
			t.Errorf("%q is of class %d, want %d", message, got, want)
		}
	}
}

func TestClassify_AnotherConnectionMayWorkAfterOneThatTheServerEnds(t *testing.T) {
	for code, want := range map[string]bool{"57P01": true, "57P03": true, "08006": true, "57014": false, "53300": false, "40001": false, "": false} {
		if got := EndsConnection(code); got != want {
			t.Errorf("%q ends the connection: %v", code, got)
		}
	}
}
