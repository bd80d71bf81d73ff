//go:build !linux

package sqlite

// networkFileSystem knows only Linux's file systems.
func networkFileSystem(string) string { return "" }
