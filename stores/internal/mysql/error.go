package mysql

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/onlyonce-go/onlyonce/stores/internal/server"
)

// errorNumber finds the number with which the text of the driver's error begins. The error's
// type is the driver's, which this package does not import.
var errorNumber = regexp.MustCompile(`^Error (\d{4})\b`)

// numberOf returns the server's number of an error, or of one that it wraps; 0: none.
func numberOf(err error) int {
	if err == nil {
		return 0
	}
	if found := errorNumber.FindStringSubmatch(err.Error()); found != nil {
		n, _ := strconv.Atoi(found[1])
		return n
	}
	switch e := err.(type) { // errors.As would need the driver's type
	case interface{ Unwrap() error }:
		return numberOf(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, wrapped := range e.Unwrap() {
			if n := numberOf(wrapped); n != 0 {
				return n
			}
		}
	}
	return 0
}

func (*dialect) Classify(err error) server.ErrorClass {
	switch n := numberOf(err); n {
	case 1213, 1020, 3101:
		return server.ClassConflict
	case 1205, 1317, 1969, 3024, 3572:
		return server.ClassTimeout
	case 1105, 1118, 1153, 1162, 1264, 1406:
		return server.ClassTooLarge
	case 1290, 1792, 1836, 3989:
		return server.ClassReadOnly
	case 1054: // there is no such column
		if strings.Contains(err.Error(), identityPrefix) {
			return server.ClassOtherCluster
		}
		return server.ClassRejected
	case 0, 1040, 1053, 1077, 1927, 2006, 2013, 3169, 4031:
		return server.ClassOther
	case 1021, 1023, 1026, 1030, 1037, 1038, 1041, 1114, 1135, 1203, 1226, 1598: // it lacks disk, memory, threads or connections, or can't write its files
		return server.ClassOther
	case 1047, 1180, 3100: // it has left its cluster, or could not replicate the commit
		return server.ClassOther
	default:
		return server.ClassRejected
	}
}
