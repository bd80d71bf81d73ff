package server

import (
	"fmt"
	"net/http"

	"github.com/onlyonce-go/onlyonce/console"
	"github.com/onlyonce-go/onlyonce/internal/storeurl/private"
)

// ConsoleTokensUsage is the help of --console-tokens.
const ConsoleTokensUsage = "`file` whose lines are a name, a role (reader or writer) and the SHA-256 of a token: turns on the console for operators at --admin, under " + console.DefaultPath

// ConsoleRedactUsage is the help of --console-redact.
const ConsoleRedactUsage = "JSON Pointer, such as /customer/email, or `name` of a header or JSON member whose values the console does not show, in addition to the usual names of secrets; may be repeated"

// noConsole says how to turn the console on.
const noConsole = "The console is off, because nobody could log in: name a file of tokens with --console-tokens (ONLYONCE_CONSOLE_TOKENS; for the proxy also console.tokens in the file of settings)."

// A consoleOff is in the place of a console without tokens.
type consoleOff struct{}

func (consoleOff) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, noConsole, http.StatusNotFound)
}

// canLogIn reports whether one of the consoles is on.
func canLogIn(consoles map[string]http.Handler) bool {
	for _, c := range consoles {
		if _, off := c.(consoleOff); !off {
			return true
		}
	}
	return false
}

// NewConsole returns the console for the tokens in a file. Without a file, it returns a
// handler that says how to turn the console on.
func NewConsole(file string, acceptRisks []string, cfg console.Config) (http.Handler, error) {
	if file == "" {
		return consoleOff{}, nil
	}
	var err error
	if cfg.Tokens, err = ReadConsoleTokens(file, acceptRisks); err != nil {
		return nil, err
	}
	return console.New(cfg)
}

// ReadConsoleTokens reads a file of tokens for the console.
func ReadConsoleTokens(path string, acceptRisks []string) ([]console.Token, error) {
	file, err := private.OpenTokens(path, acceptRisks)
	if err != nil {
		return nil, fmt.Errorf("read the tokens of the console: %w", err)
	}
	defer file.Close()
	list, err := console.ParseTokens(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return list, nil
}
