package record

import (
	"fmt"
	"strings"
)

// Blocks splits a file of SQL at its "-- name: x" lines.
func Blocks(file string) map[string]string {
	named := make(map[string]string)
	for _, block := range strings.Split(file, "\n-- name: ")[1:] {
		name, text, ok := strings.Cut(block, "\n")
		if _, twice := named[name]; !ok || twice {
			panic(fmt.Sprintf("record: the block %q is empty or there twice", name))
		}
		named[name] = strings.TrimSuffix(strings.TrimSpace(text), ";")
	}
	return named
}
