//go:build !linux

package sqlstore

// networkFileSystem knows only Linux's file systems.
func networkFileSystem(string) string { return "" }
