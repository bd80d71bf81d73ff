package record

import (
	"fmt"
	"regexp"
	"strings"
)

var (
	// heading begins a block.
	heading = regexp.MustCompile(`(?m)^-- (name|part): (.+)\n`)

	// comment is a line of SQL that is a comment.
	comment = regexp.MustCompile(`(?m)^--.*\n`)

	// braces may hold the name of a block, and a parameter or a keyword for it.
	braces = regexp.MustCompile(`\{([a-z ]+[a-z])( \$[0-9]+| [A-Z]+)?\}`)
)

// Blocks returns the statements of a file of SQL by their names. A statement begins after
// a line "-- name: x", and a part that statements share after a line "-- part: x". The name of a
// part or of a statement in braces stands for its text, in which $n is the parameter or
// the keyword that follows the name, as in {x $4} or {x LOCAL}; other braces stay as they are.
// Other lines that are comments are not sent. Blocks panics if two blocks have the same
// name, or if a part is not used.
func Blocks(file string) map[string]string {
	texts, parts := make(map[string]string), make(map[string]bool)
	headings := heading.FindAllStringSubmatchIndex(file, -1)
	for i, at := range headings {
		end := len(file)
		if i+1 < len(headings) {
			end = headings[i+1][0]
		}
		name := file[at[4]:at[5]]
		if _, twice := texts[name]; twice {
			panic(fmt.Sprintf("record: the block %q is there twice", name))
		}
		texts[name] = strings.TrimSuffix(strings.TrimSpace(comment.ReplaceAllString(file[at[1]:end], "")), ";")
		if file[at[2]:at[3]] == "part" {
			parts[name] = false
		}
	}
	var expand func(text string) string
	expand = func(text string) string {
		return braces.ReplaceAllStringFunc(text, func(brace string) string {
			found := braces.FindStringSubmatch(brace)
			name, parameter := found[1], strings.TrimSpace(found[2])
			text, there := texts[name]
			if !there {
				return brace
			}
			if _, part := parts[name]; part {
				parts[name] = true
			}
			if parameter != "" {
				text = strings.ReplaceAll(text, "$n", parameter)
			}
			return expand(text)
		})
	}
	statements := make(map[string]string, len(texts))
	for name, text := range texts {
		if _, part := parts[name]; !part {
			statements[name] = expand(text)
		}
	}
	for name, used := range parts {
		if !used {
			panic(fmt.Sprintf("record: the part %q is not used", name))
		}
	}
	return statements
}
