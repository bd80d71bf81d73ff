// Package integration tests Onlyonce against real databases, brokers and
// processes. It has no code of its own and is never tagged.
package integration
