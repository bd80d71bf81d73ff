// Package shares says how much of a process's resources one of several tenants may use.
package shares

// MayTake reports whether a tenant that holds so many places may take one of those that are
// free. It may hold three times as many as it leaves: one tenant three quarters of all, two
// three sevenths each. Something is always left for another tenant.
func MayTake(held, free int) bool { return held < 3*free }

// Long returns how many bytes of a memory long bodies and responses may use. A quarter is
// reserved for short ones.
func Long(memory int64) int64 { return memory - memory/4 }

// Memory returns how many bytes of a memory one tenant may use by default.
func Memory(all int64) int64 { return all / 2 }

// Stored returns how many of the bytes that may be stored one tenant may store by default.
func Stored(all int64) int64 { return (all + 3) / 4 }
