package proxy

import (
	"bufio"
	"encoding/base64"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce/internal/needs"
)

// A parser is a process that reads the path in targets.
type parser struct {
	name string
	in   io.Writer
	out  *bufio.Scanner
}

// parserPrograms are the parsers that servers route by.
var parserPrograms = [][]string{
	{"node", "testdata/parsers/whatwg.mjs"},
	{"python3", "testdata/parsers/urlsplit.py"},
	{"php", "testdata/parsers/parse_url.php"},
}

// startParser starts one that lasts for the test. Without its program the test is
// skipped, or fails where services are required.
func startParser(t testing.TB, command []string) *parser {
	t.Helper()
	needs.Program(t, command[0])
	cmd := exec.Command(command[0], command[1:]...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed
	})
	return &parser{command[0], in, bufio.NewScanner(out)}
}

func hasProgram(name string) bool {
	_, err := exec.LookPath(name)
	return err == nil
}

// path returns the path in a target; it is not ok if there is none.
func (p *parser) path(t testing.TB, target string) (path string, ok bool) {
	t.Helper()
	if _, err := io.WriteString(p.in, base64.StdEncoding.EncodeToString([]byte(target))+"\n"); err != nil {
		t.Fatal(err)
	}
	if !p.out.Scan() {
		t.Fatalf("%s ended at %q: %v", p.name, target, p.out.Err())
	}
	if p.out.Text() == "-" {
		return "", false
	}
	b, err := base64.StdEncoding.DecodeString(p.out.Text())
	if err != nil {
		t.Fatal(err)
	}
	return string(b), true
}

// targets are those of the corpus.
func targets(t testing.TB) []string {
	t.Helper()
	return quotedLines(t, "testdata/targets.txt")
}

// quotedLines returns the strings in the lines of a file, each quoted as in Go.
func quotedLines(t testing.TB, file string) (all []string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		said, err := strconv.Unquote(strings.TrimSpace(line))
		if err != nil {
			t.Fatalf("%s: %s: %v", file, line, err)
		}
		all = append(all, said)
	}
	return all
}

// modelled has models of the parsers, for a target that begins with a slash.
var modelled = map[string]func(target string) (path string, ok bool){
	"node": whatwgPath, "python3": urlsplitPath, "php": parseURLPath,
}

// whatwgPath is the URL standard's parser, with a base.
func whatwgPath(target string) (path string, ok bool) {
	target = strings.TrimFunc(target, func(r rune) bool { return r <= ' ' })
	target = strings.NewReplacer("\t", "", "\n", "", "\r", "").Replace(target)
	if i := strings.IndexAny(target, "?#"); i >= 0 {
		target = target[:i]
	}
	target = strings.ReplaceAll(target, `\`, "/")
	if strings.HasPrefix(target, "//") {
		rest := strings.TrimLeft(target, "/")
		if rest == "" {
			return "", false
		}
		_, target, _ = strings.Cut(rest, "/")
		target = "/" + target
	}
	if target == "" || target[0] != '/' {
		return "", false
	}
	var segments []string
	all := strings.Split(target[1:], "/")
	for i, s := range all {
		switch strings.ReplaceAll(strings.ToLower(s), "%2e", ".") {
		case "..":
			segments = segments[:max(len(segments)-1, 0)]
			if i == len(all)-1 {
				segments = append(segments, "")
			}
		case ".":
			if i == len(all)-1 {
				segments = append(segments, "")
			}
		default:
			segments = append(segments, whatwgEncoded(s))
		}
	}
	return "/" + strings.Join(segments, "/"), true
}

// whatwgEncoded encodes the bytes of a segment, each of them a character.
func whatwgEncoded(segment string) string {
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(segment) {
		c := segment[i]
		switch {
		case c >= 0x80:
			for _, u := range []byte(string(rune(c))) {
				b.WriteString("%" + string(digits[u>>4]) + string(digits[u&15]))
			}
		case c <= ' ' || c == 0x7f || strings.IndexByte("\"<>^`{}", c) >= 0:
			b.WriteString("%" + string(digits[c>>4]) + string(digits[c&15]))
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// urlsplitPath is Python's.
func urlsplitPath(target string) (path string, ok bool) {
	target = strings.TrimLeftFunc(target, func(r rune) bool { return r <= ' ' })
	target = strings.NewReplacer("\t", "", "\n", "", "\r", "").Replace(target)
	if rest, is := strings.CutPrefix(target, "//"); is {
		i := strings.IndexAny(rest, "/?#")
		if i < 0 {
			i = len(rest)
		}
		target = rest[i:]
	}
	target, _, _ = strings.Cut(target, "#")
	target, _, _ = strings.Cut(target, "?")
	return target, true
}

// parseURLPath is PHP's, of a target that is a path with or without a query.
func parseURLPath(target string) (path string, ok bool) {
	if strings.HasPrefix(target, "//") {
		return "", false
	}
	path, _, _ = strings.Cut(target, "#")
	path, _, _ = strings.Cut(path, "?")
	if _, rest, has := strings.Cut(target[:len(path)], ":"); has { // it parses the rest as a port
		rest += target[len(path):]
		digits := 0
		for digits < len(rest) && digits < 6 && '0' <= rest[digits] && rest[digits] <= '9' {
			digits++
		}
		if 0 < digits && digits < 6 && (digits == len(rest) || rest[digits] == '/') {
			return "", false
		}
	}
	return path, true
}
