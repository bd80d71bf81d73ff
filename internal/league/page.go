package main

import (
	"fmt"
	"strings"
)

// The signs of the tables.
const (
	signPass          = "✓"
	signFail          = "✗"
	signNotPromised   = "○"
	signNotApplicable = "–"
)

// sign returns the sign of a result.
func (i implementation) sign(r result) string {
	switch r.Verdict {
	case pass:
		return signPass
	case notSupported:
		return signNotApplicable
	}
	if _, ok := i.promised(r.ID); ok {
		return signFail
	}
	return signNotPromised
}

// page returns the text of docs/league.md.
func (r results) page() string {
	var b strings.Builder
	fmt.Fprintf(&b, introduction, r.Date)
	b.WriteString("| | implementation | version | license | for | records | configuration |\n|---|---|---|---|---|---|---|\n")
	for n, i := range implementations {
		version, language := r.checked(i).Version, string(i.language)
		if i.pkg == "" {
			version = "this repository"
		}
		if i.proxy {
			language = "any language"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s |\n", letter(n), i.name, version, i.license, language, i.records, i.config)
	}
	fmt.Fprintf(&b, "\nThe servers ran with Go %s and Node %s.\n", r.Go, r.Node)
	fmt.Fprintf(&b, howToRead, quoted(append([]string{"onlyonce", "check", "http://127.0.0.1:8080"}, implementation{}.arguments()...)))
	b.WriteString(r.table())
	b.WriteString(background)
	for n, i := range implementations {
		title, _, _ := strings.Cut(strings.TrimPrefix(i.name, "["), "](")
		fmt.Fprintf(&b, "\n### %s: %s\n\n", letter(n), title)
		b.WriteString(i.evidence(r.checked(i)))
	}
	return b.String()
}

// quoted returns a command line for a shell.
func quoted(words []string) string {
	for i, word := range words {
		if strings.ContainsAny(word, " {}?\"") {
			words[i] = "'" + word + "'"
		}
	}
	return strings.Join(words, " ")
}

// letter names the implementation with an index in the tables.
func letter(n int) string { return string(rune('A' + n)) }

// checked returns the results of an implementation, which are empty if it was not checked.
func (r results) checked(i implementation) checked {
	for _, c := range r.Checked {
		if c.ID == i.id {
			return c
		}
	}
	return checked{}
}

// table returns the table of the signs. The rules that protect commands and callers are first, and
// those about the form of responses last.
func (r results) table() string {
	var b strings.Builder
	b.WriteString("| rule | draft |")
	for n := range implementations {
		fmt.Fprintf(&b, " %s |", letter(n))
	}
	b.WriteString("\n|---|---|" + strings.Repeat(":-:|", len(implementations)) + "\n")
	for _, advisory := range []bool{false, true} {
		for _, rule := range r.rules() {
			if rule.Advisory != advisory {
				continue
			}
			fmt.Fprintf(&b, "| `%s` | %s |", rule.ID, drafted[rule.ID])
			for _, i := range implementations {
				sign := ""
				for _, row := range r.checked(i).Rows {
					if row.ID == rule.ID {
						sign = i.sign(row)
					}
				}
				fmt.Fprintf(&b, " %s |", sign)
			}
			b.WriteString("\n")
		}
	}
	return b.String()
}

// rules returns the rows of the most complete check.
func (r results) rules() (rows []result) {
	for _, c := range r.Checked {
		if len(c.Rows) > len(rows) {
			rows = c.Rows
		}
	}
	return rows
}

// evidence returns what is behind the failures of an implementation.
func (i implementation) evidence(c checked) string {
	var b strings.Builder
	if c.Error != "" {
		fmt.Fprintf(&b, "The check ended early: %s\n\n", c.Error)
	}
	var passed int
	var missing []string
	for _, row := range c.Rows {
		switch row.Verdict {
		case pass:
			passed++
		case notSupported:
			missing = append(missing, "`"+row.ID+"`")
		}
	}
	fmt.Fprintf(&b, "%d of %d rules pass.", passed, len(c.Rows))
	if len(missing) > 0 {
		fmt.Fprintf(&b, " Not applicable: %s.", strings.Join(missing, ", "))
	}
	b.WriteString("\n")
	for _, row := range c.Rows {
		if row.Verdict != fail {
			continue
		}
		where, promised := i.promised(row.ID)
		fmt.Fprintf(&b, "\n**%s `%s`**: %s.", i.sign(row), row.ID, row.Title)
		switch {
		case !promised:
			b.WriteString(" Not promised.")
		case where != "":
			fmt.Fprintf(&b, " Promised: %s.", where)
		}
		fmt.Fprintf(&b, " Found: %s", row.Detail)
		if note := i.notes[row.ID]; note != "" {
			b.WriteString(" " + note)
		}
		fmt.Fprintf(&b, "\n\n```text\n%s\n```\n", strings.Join(row.Bytes, "\n"))
	}
	return b.String()
}

const introduction = `# League

[` + "`onlyonce check`" + `](check.md) tests from the outside whether an API keeps the promises of the ` + "`Idempotency-Key`" + ` header. This page shows what it found on %s in public implementations of that header for Go and Node, and in Onlyonce. Each of them ran in the configuration that its own documentation recommends, in front of the same small payment API, and got the same requests.

Please read the results with the following in mind:

- The authors of Onlyonce wrote the check. It asks what they consider important, and Onlyonce was built to pass it; the others were not. The columns of Onlyonce show that it is checked in the same way. They do not prove that it is better.
- A result is about one version in one configuration. Where we know of options with which more rules pass, the page names them.
- The check sees only what HTTP shows. It does not test crashes, several processes, the loss of a database, speed, or how easy something is to use.
- We may have misconfigured an implementation, or misread its documentation. Corrections are welcome, as an issue or as a change to the server in [internal/league](../internal/league).

This command checks everything again and writes this page. It needs Go, Node with npm, and access to the package registries of both languages:

` + "```sh" + `
make league
` + "```" + `

` + "`go run ./internal/league -only '^fiber$'`" + ` prints the results of one implementation instead.

## What was checked

`

const howToRead = `
The API has two operations, ` + "`POST /payments` and `POST /refunds`" + `. Each takes 60 ms, responds with 201, a JSON body, a ` + "`Location`" + ` header and a session cookie, and rejects an invalid body with 400. The header ` + "`X-Account`" + ` stands for an authenticated caller. Each server was checked with this command, and with ` + "`--key-header`" + ` if its header has another name:

` + "```sh" + `
%s
` + "```" + `

## Results

| sign | meaning |
|---|---|
| ✓ | The rule passes. |
| ✗ | The rule fails, although it is promised: by the documentation, or because it is what the header is for (` + "`replay`, `burst`, `in-flight`, `disconnect`, `cut-off`" + `). |
| ○ | The rule fails, and the documentation does not promise it. |
| – | The rule is not applicable, because the implementation lacks an optional behavior, or because the check could not observe it. |

[Check any API](check.md#the-rows) explains the rules. Those from ` + "`error`" + ` down concern the form of responses, or behavior that is a matter of choice. The column *draft* says how strictly [draft-ietf-httpapi-idempotency-key-header-07](https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-idempotency-key-header-07), an Internet-Draft that expired in April 2026, calls for the rule: MUST, SHOULD, *advice* if only its security considerations recommend the rule, or – if the draft does not mention it. An implementation whose documentation says that it follows the draft promises what the draft calls for with MUST or SHOULD.

`

const background = `
## What was not checked

- Implementations whose packages could not be downloaded when this page was made: [bright-room/idem](https://github.com/bright-room/idem), [idemlease](https://github.com/repenguin22/idemlease), [faustbrian/go-idempotency](https://github.com/faustbrian/go-idempotency) and [AnandSundar/go-idempotency](https://github.com/AnandSundar/go-idempotency) for Go, and [hono-idempotency](https://github.com/paveg/hono-idempotency), [idempot](https://github.com/idempot-dev/idempot-js), and the plugins of [node-idempotency](https://github.com/mahendraHegde/node-idempotency) for Express and Fastify, for Node. The same is true of version 2 of express-idempotency.
- [idempotency-backend](https://github.com/FutureSolutionDev/idempotency-backend) for Node, which responds to a repeat in a form of its own, ` + "`{\"cached\": true, \"data\": …}`" + `, where the check looks for the first response.
- Implementations in other languages, because the program starts servers in Go and Node only.

To add an implementation, write a server of about 30 lines in ` + "`internal/league/servers` or `internal/league/node`" + `, and add an entry to ` + "`internal/league/implementations.go`" + `.

## Behind each failure

For each rule that fails, this section shows what was sent (` + "`>`" + `) and received (` + "`<`" + `). Headers that say nothing about the rule are left out, and long lines are cut.
`
