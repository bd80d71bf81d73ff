package record

import (
	"fmt"
	"regexp"
	"strings"
)

// comment is a line of SQL that is a comment.
var comment = regexp.MustCompile(`(?m)^--.*\n`)

// Blocks splits a file of SQL at its "-- name: x" lines. Other lines that are comments
// are not sent.
func Blocks(file string) map[string]string {
	named := make(map[string]string)
	for _, block := range strings.Split(file, "\n-- name: ")[1:] {
		name, text, ok := strings.Cut(block, "\n")
		if _, twice := named[name]; !ok || twice {
			panic(fmt.Sprintf("record: the block %q is empty or there twice", name))
		}
		named[name] = strings.TrimSuffix(strings.TrimSpace(comment.ReplaceAllString(text, "")), ";")
	}
	return named
}
