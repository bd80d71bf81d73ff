package docsite

import (
	"html"
	"regexp"
	"strings"
)

// syntax has the languages of code blocks. A match of an expression is a comment, a string or a
// keyword, which are its groups. A language without an expression is shown as it is.
//
// This knows what the pages contain, and is far smaller than a library of lexers, whose
// tables every run of onlyonce would have to load.
var syntax = map[string]*regexp.Regexp{
	"caddyfile":  lexer(hashComment, quotes, `(?m)^\s*[a-z_]+`),
	"console":    lexer(nothing, quotes, `(?m)^\$`),
	"go":         lexer(slashComment, quotes+"|`[^`]*`", words(`break case chan const continue default defer else fallthrough for func go goto if import interface map package range return select struct switch type var nil true false`)),
	"hcl":        lexer(hashComment, quotes, words(`resource true false`)),
	"http":       lexer(nothing, `(?m)^\{.*`, `(?m)^[A-Za-z-]+:`),
	"java":       lexer(slashComment, quotes, words(`boolean break case catch class double else final finally for if import int long new null public private return static throw throws try var void while true false`)),
	"javascript": lexer(slashComment, quotes+"|`[^`]*`", words(`async await break catch class const else export finally for function if import let new null return throw try typeof while true false`)),
	"json":       lexer(nothing, quotes, words(`true false null`)),
	"python":     lexer(hashComment, quotes, words(`and as async await break class continue def elif else except finally for from if import in is lambda None not or pass raise return try while with True False`)),
	"sh":         lexer(hashComment, quotes, `(?:^|[ \t])--?\w[\w-]*`),
	"sql":        lexer(`--[^\n]*`, quotes, `\b[A-Z]{2,}\b`),
	"text":       nil,
	"typescript": lexer(slashComment, quotes+"|`[^`]*`", words(`any async await boolean break case catch class const declare else export false finally for function if import interface let new null number return string throw true try typeof unknown while`)),
	"yaml":       lexer(hashComment, quotes, `[\w-]+:(?:\s|$)`),
}

const (
	nothing      = `[^\s\S]`
	hashComment  = `(?m:^|[ \t])#[^\n]*`
	slashComment = `//[^\n]*|(?s:/\*.*?\*/)`
	quotes       = `"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'`
)

func lexer(comment, text, keyword string) *regexp.Regexp {
	return regexp.MustCompile("(" + comment + ")|(" + text + ")|(" + keyword + ")")
}

// words returns an expression for any of the words in a list.
func words(list string) string { return `\b(?:` + strings.ReplaceAll(list, " ", "|") + `)\b` }

// highlight returns code as HTML, with comments, strings and keywords in elements whose classes
// are c, s and k.
func highlight(language, code string) string {
	expression := syntax[language]
	if expression == nil {
		return html.EscapeString(code)
	}
	var b strings.Builder
	end := 0
	for _, match := range expression.FindAllStringSubmatchIndex(code, -1) {
		for i, class := range []string{"c", "s", "k"} {
			from, to := match[2*i+2], match[2*i+3]
			if from < to { // a group that did not match is at -1
				b.WriteString(html.EscapeString(code[end:from]) + `<span class="` + class + `">` + html.EscapeString(code[from:to]) + "</span>")
				end = to
			}
		}
	}
	return b.String() + html.EscapeString(code[end:])
}
