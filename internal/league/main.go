// Command league runs "onlyonce check" against public implementations of the Idempotency-Key
// header, each in the configuration that its own documentation recommends, and against Onlyonce in
// the same way. It writes what it finds to internal/league/results.json and docs/league.md.
//
// It runs at the top of the repository, and needs Go, Node with npm, and access to the package
// registries of both languages. The servers in Go are in a module of their own, so that the
// implementations do not raise the versions of other modules here.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"
)

// The files that the program writes, from the top of the repository.
const (
	resultsFile = "internal/league/results.json"
	pageFile    = "docs/league.md"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("league: ")
	only := flag.String("only", "", "regular expression of the implementations to check, such as ^fiber$; the results are printed, and no file is written (default: all)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *only); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, only string) error {
	pattern, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	var chosen []implementation
	for _, i := range implementations {
		if pattern.MatchString(i.id) {
			chosen = append(chosen, i)
		}
	}
	if len(chosen) == 0 {
		return fmt.Errorf("-only %q matches no implementation", only)
	}
	dir, err := os.MkdirTemp("", "league")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	w := workshop{dir: dir}
	if err := w.build(ctx); err != nil {
		return err
	}
	found := results{Date: time.Now().UTC().Format(time.DateOnly), Go: strings.TrimPrefix(runtime.Version(), "go")}
	if found.Node, err = output(ctx, "", "node", "--version"); err != nil {
		return err
	}
	found.Node = strings.TrimPrefix(found.Node, "v")
	for _, i := range chosen {
		log.Print(i.id)
		c, err := w.check(ctx, i)
		if err != nil {
			return fmt.Errorf("%s: %w", i.id, err)
		}
		found.Checked = append(found.Checked, c)
	}
	if only != "" {
		for _, i := range chosen {
			fmt.Printf("%s %s\n\n%s\n", i.id, found.checked(i).Version, i.evidence(found.checked(i)))
		}
		return nil
	}
	text, err := found.encode()
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(resultsFile, text, 0o644), os.WriteFile(pageFile, []byte(found.page()), 0o644))
}

// A workshop is a temporary folder with the programs.
type workshop struct{ dir string }

func (w workshop) onlyonce() string { return filepath.Join(w.dir, "onlyonce") }

// build builds onlyonce and the servers in Go, and installs the packages of those in Node.
func (w workshop) build(ctx context.Context) error {
	servers, packages := filepath.Join(w.dir, "servers"), filepath.Join(w.dir, "node")
	if err := os.Mkdir(servers, 0o700); err != nil {
		return err
	}
	if err := os.CopyFS(packages, os.DirFS("internal/league/node")); err != nil {
		return err
	}
	for _, c := range []struct {
		dir  string
		line []string
	}{
		{"", []string{"go", "build", "-o", w.onlyonce(), "./cmd/onlyonce"}},
		{"internal/league/servers", []string{"go", "build", "-o", servers, "./..."}},
		{packages, []string{"npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"}},
	} {
		log.Print(strings.Join(c.line, " "))
		if _, err := output(ctx, c.dir, c.line[0], c.line[1:]...); err != nil {
			return err
		}
	}
	return nil
}

// output runs a program to its end, and returns what it prints.
func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	text, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), explained(err))
	}
	return strings.TrimSpace(string(text)), nil
}

// explained adds what a program has printed as errors to the error of the program.
func explained(err error) error {
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		return fmt.Errorf("%w\n%s", err, exit.Stderr)
	}
	return err
}

// check starts the server of an implementation in an empty folder, and checks it.
func (w workshop) check(ctx context.Context, i implementation) (c checked, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop() // ends the servers
	dir := filepath.Join(w.dir, "data-"+i.id)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return c, err
	}
	version, err := w.version(ctx, i)
	if err != nil {
		return c, err
	}
	line := []string{filepath.Join(w.dir, "servers", i.id)}
	switch {
	case i.proxy:
		line = []string{"node", filepath.Join(w.dir, "node", "plain.mjs")}
	case i.language == node:
		line = []string{"node", filepath.Join(w.dir, "node", i.id+".mjs")}
	}
	url, err := start(ctx, dir, line[0], line[1:]...)
	if err == nil && i.proxy {
		url, err = start(ctx, dir, w.onlyonce(), "proxy", "--upstream", url, "--listen", "127.0.0.1:0",
			"--store", "sqlite:"+filepath.Join(dir, "records.db"), "--tenant-header", "X-Account", "--unknown", "hold")
	}
	if err != nil {
		return c, err
	}
	text, err := exec.CommandContext(ctx, w.onlyonce(), append([]string{"check", url}, i.arguments("--format", "json")...)...).Output()
	if err != nil && len(text) == 0 { // otherwise, a rule failed, or the report has the reason
		return c, fmt.Errorf("onlyonce check: %w", explained(err))
	}
	var doc document
	if err := json.Unmarshal(text, &doc); err != nil {
		return c, fmt.Errorf("onlyonce check: %w", err)
	}
	return doc.checked(i.id, version), ctx.Err()
}

// arguments returns the arguments of onlyonce check after the URL.
func (i implementation) arguments(more ...string) []string {
	args := []string{
		"--yes-it-may-write", "--path", "/payments",
		"--body", `{"amount":1250,"currency":"EUR","reference":"order-{{fresh}}"}`,
		"--header", "X-Account: acme", "--other-header", "X-Account: globex", "--other-path", "/refunds",
		"--count-url", "/payments/count?reference=order-{{fresh}}", "--count", "/count",
	}
	if i.header != "" {
		args = append(args, "--key-header", i.header)
	}
	return append(args, more...)
}

// version returns the version of the implementation that is checked.
func (w workshop) version(ctx context.Context, i implementation) (string, error) {
	switch {
	case i.pkg == "":
		return "", nil
	case i.language == golang:
		version, err := output(ctx, "internal/league/servers", "go", "list", "-m", "-f", "{{.Version}}", i.pkg)
		return strings.TrimPrefix(version, "v"), err
	}
	text, err := os.ReadFile(filepath.Join(w.dir, "node", "node_modules", i.pkg, "package.json"))
	if err != nil {
		return "", err
	}
	var about struct{ Version string }
	err = json.Unmarshal(text, &about)
	return about.Version, err
}

// address finds the address of a server in what it prints.
var address = regexp.MustCompile(`http://127\.0\.0\.1:\d+`)

// start starts a server, which is killed when ctx ends. It returns the first address that the server
// prints.
func start(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	var log bytes.Buffer
	cmd.Dir, cmd.Stderr = dir, &log
	cmd.Env = append(os.Environ(), "NODE_ENV=production")
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	addresses := make(chan string, 1)
	go func() {
		defer close(addresses)
		for in := bufio.NewReader(out); ; {
			line, err := in.ReadString('\n')
			if found := address.FindString(line); found != "" {
				select {
				case addresses <- found:
				default: // a later one
				}
			}
			if err != nil {
				_ = cmd.Wait() // it was killed, or log says why it ended
				return
			}
		}
	}()
	url, ok := <-addresses
	if !ok {
		return "", fmt.Errorf("%s has ended: %s", filepath.Base(name), log.String())
	}
	return url, nil
}
