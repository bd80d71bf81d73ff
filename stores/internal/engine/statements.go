package engine

import _ "embed"

// Common holds the statements and parts that are the same on every database, in the form
// that record.Blocks reads. They use parts that each engine defines.
//
//go:embed common.sql
var Common string

// Unnumbered holds those that are the same on the databases whose parameters need no
// numbers.
//
//go:embed unnumbered.sql
var Unnumbered string

// Listed holds those that are the same on the databases where a condition names the messages
// of a list.
//
//go:embed listed.sql
var Listed string
