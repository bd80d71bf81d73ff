package doctor

import (
	"errors"
	"regexp"

	"github.com/onlyonce-go/onlyonce"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// findingForm matches the result of Finding.String.
var findingForm = regexp.MustCompile(`^([a-z-]+): (.+?); (.+)$`)

// rejections returns the findings because of which a store was not opened. Each is a
// separate error in the tree of err.
func rejections(err error) (findings []onlyonce.Finding) {
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		if cause := e.Unwrap(); cause != nil { // some errors, such as net.DNSError, may have none
			return rejections(cause)
		}
	case interface{ Unwrap() []error }:
		for _, err := range e.Unwrap() {
			findings = append(findings, rejections(err)...)
		}
		return findings
	}
	if m := findingForm.FindStringSubmatch(err.Error()); m != nil {
		findings = append(findings, onlyonce.Finding{Name: m[1], Problem: m[2], Fix: m[3]})
	}
	return findings
}

// orReadOnly returns a finding instead of the error of a file that cannot be written.
func orReadOnly(err error) ([]onlyonce.Finding, error) {
	var cause *sqlite.Error
	if !errors.As(err, &cause) || cause.Code()&0xff != sqlite3.SQLITE_READONLY { // the rest of the code says why
		return nil, err
	}
	return []onlyonce.Finding{{Name: "read-only", Problem: cause.Error(), Fix: "give the process write access to the file and its directory"}}, nil
}
