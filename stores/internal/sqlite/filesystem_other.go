//go:build !linux

package sqlite

// networkFileSystem detects network file systems only on Linux.
func networkFileSystem(string) string { return "" }
