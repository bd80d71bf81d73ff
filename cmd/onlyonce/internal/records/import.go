package records

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cli"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/records/importfile"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/storeflags"
	"github.com/onlyonce-go/onlyonce/internal/storeurl"
	"github.com/spf13/cobra"
)

func importCommand() *cobra.Command {
	var im importing
	var e storeurl.Encryption
	cmd := &cobra.Command{
		Use:   "import URL FILE",
		Short: "Add the keys of commands that ran before Onlyonce was used",
		Long: `Adds records of commands that have already run elsewhere, so that a retry gets the old
response and does not run the command again. FILE is a CSV file with a heading, or has a
JSON object per line, as onlyonce records export writes it. These are the columns or
fields:

  tenant, operation, key  the ID of the command, as the program that will use the store
                          forms it; tenant and operation may be empty
  fingerprint             the fingerprint that a repeat must have, in hexadecimal; it may
                          be missing if --skip-fingerprint is set
  state                   completed, or unknown if nobody knows whether the command took
                          effect; default completed
  status_code             the HTTP status of the response, or 0 for a call of Do
  header                  a JSON object of lists: {"Content-Type": ["application/json"]}
  body, body_base64       the body, as text or encoded; for a call of Do, the JSON of
                          the value
  expires_at, created_at  when the key expires, or when the command ran (--keep counts
                          from then); by this machine's clock, such as
                          2026-01-02T15:04:05Z. A key that has expired is not imported.
                          Without either, --keep counts from now, and a command of state
                          unknown stays until someone resolves it
  ref, summary, error     as onlyonce records show prints them

The whole file is checked before anything is written, and every mistake is reported with
the number of its line. A key that the store has already is never changed; if its outcome
in the store is another one, that is reported, and the exit code is 1. Running the command
again with the same file changes nothing, and completes an import that was interrupted.`,
		Example: `  onlyonce records import sqlite:onlyonce-data/onlyonce.db old.csv --dry-run
  onlyonce records import sqlite:onlyonce-data/onlyonce.db old.jsonl --skip-fingerprint --keep 72h`,
		Args: func(cmd *cobra.Command, args []string) error {
			if err := cli.ExactArgs("URL", "FILE")(cmd, args); err != nil {
				return err
			}
			return im.complete(args[1])
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			file, err := os.Open(args[1])
			if err != nil {
				return cli.Usagef("%w", err)
			}
			defer file.Close()
			im.file, im.out, im.problems = file, cmd.OutOrStdout(), cmd.ErrOrStderr()
			if err := im.check(); err != nil {
				return err
			}
			ctx, release := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer release()
			return storeurl.WithDecrypted(ctx, args[0], e, func(store storeurl.Editable) error {
				if err := e.CheckKeys(ctx, store); err != nil {
					return fmt.Errorf("nothing was imported: %w", err)
				}
				im.store = store
				return im.run(ctx)
			})
		},
	}
	cmd.Flags().BoolVar(&im.dryRun, "dry-run", false, "check the file, look up its keys in the store, and write nothing")
	cmd.Flags().BoolVar(&im.SkipFingerprint, "skip-fingerprint", false, "accept lines without a fingerprint: any request with such a key gets the old response, even a different one")
	cmd.Flags().StringSliceVar(&im.AllowHeaders, "allow-header", nil, "`name` of a header that is imported although it looks like that of a credential, as X-Page-Token does; may be repeated")
	cmd.Flags().DurationVar(&im.Keep, "keep", onlyonce.DefaultKeep, "`duration` for which a line without expires_at is kept, from its created_at or else from now; 0: until someone resolves it")
	formats.AddFlag(cmd, &im.format, "format", "", "format of the file, if its name does not end in .csv, .jsonl or .ndjson")
	storeflags.AddEncryption(cmd.Flags(), &e)
	return cmd
}

// The formats of a file to import.
const (
	formatCSV   = "csv"
	formatJSONL = "jsonl"
)

var formats = cli.Choice{formatCSV, formatJSONL}

// importLease is how long a record that is being written is held. If an import is killed
// between its two calls for a line, requests with the key are told for so long that the
// command is in progress, and the next import of the line completes it.
const importLease = 24 * time.Hour

// importers is how many lines are written at a time. A store commits them together.
const importers = 16

// reported is how many lines are named in the report of a mistake that many have.
const reported = 20

// An importing adds the lines of a file to a store.
type importing struct {
	importfile.Settings
	dryRun        bool
	format        string
	file          io.ReadSeeker
	store         onlyonce.Store
	out, problems io.Writer

	mu    sync.Mutex
	count importCount
}

// An importCount counts the lines of a file by what became of them.
type importCount struct{ imported, present, expired, different, rejected int }

// complete checks the flags, and finds the format of the file by its name.
func (im *importing) complete(name string) error {
	if mistake := cli.DurationMistake(im.Keep, "0s for records that stay until someone resolves them"); mistake != "" {
		return cli.Usagef("--keep: %s", mistake)
	}
	if im.format != "" {
		return formats.CheckFlag("format", im.format)
	}
	switch strings.ToLower(filepath.Ext(name)) {
	case ".csv":
		im.format = formatCSV
	case ".jsonl", ".ndjson":
		im.format = formatJSONL
	default:
		return cli.Usagef("the format of %s is not known: rename it to end in .csv or .jsonl, or pass --format %v", name, formats)
	}
	return nil
}

// lines returns the lines of the file from its beginning.
func (im *importing) lines() (iter.Seq[importfile.Line], error) {
	if _, err := im.file.Seek(0, io.SeekStart); err != nil {
		return nil, fmt.Errorf("read the file again from its beginning: %w", err)
	}
	if im.format == formatCSV {
		return importfile.CSVLines(im.file), nil
	}
	return importfile.JSONLines(im.file), nil
}

// check reports every mistake in the file, and returns an error if there is one.
func (im *importing) check() error {
	lines, err := im.lines()
	if err != nil {
		return err
	}
	wrong, all := 0, 0
	first := make(map[[32]byte]int) // the lines of the IDs
	for l := range lines {
		all++
		e, err := l.Entry(im.Settings)
		if err == nil {
			hash := e.ID.Hash()
			if earlier, ok := first[hash]; ok {
				err = fmt.Errorf("line %d has the same tenant, operation and key: keep one of the two", earlier)
			} else {
				first[hash] = l.Number()
			}
		}
		if err != nil {
			if wrong++; wrong <= reported {
				fmt.Fprintf(im.problems, "line %d: %v\n", l.Number(), err)
			}
		}
	}
	if wrong > reported {
		fmt.Fprintf(im.problems, "… and %d more\n", wrong-reported)
	}
	if wrong > 0 {
		return fmt.Errorf("nothing was imported: lines with a mistake: %d of %d", wrong, all)
	}
	return nil
}

// run imports the file, which has been checked, and reports what became of its lines. When
// ctx ends, it returns as soon as the lines that have been begun are complete.
func (im *importing) run(ctx context.Context) error {
	lines, err := im.lines()
	if err != nil {
		return err
	}
	err = im.all(ctx, lines)
	done := "imported"
	if im.dryRun {
		done = "would be imported"
	}
	n := im.count
	fmt.Fprintf(im.out, "%s: %d\nalready in the store: %d\nexpired: %d\n", done, n.imported, n.present, n.expired)
	switch {
	case err != nil && ctx.Err() != nil:
		return errors.New("the import was interrupted: run it again to complete it")
	case err != nil:
		return fmt.Errorf("the import is not complete: run it again: %w", err)
	case n.different+n.rejected > 0:
		return fmt.Errorf("not imported: %d, of which the store has %d with another outcome", n.different+n.rejected, n.different)
	}
	return nil
}

// all imports the lines, several at a time, and returns the first error after which it
// makes no sense to go on.
func (im *importing) all(ctx context.Context, lines iter.Seq[importfile.Line]) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	entries := make(chan importfile.Entry)
	var workers sync.WaitGroup
	for range importers {
		workers.Go(func() {
			for e := range entries {
				if err := im.one(ctx, e); err != nil {
					stop(fmt.Errorf("line %d: %w", e.Line, err))
				}
			}
		})
	}
	for l := range lines {
		e, err := l.Entry(im.Settings)
		if err != nil {
			stop(fmt.Errorf("line %d: the file has changed since it was checked: %w", l.Number(), err))
			break
		}
		select {
		case entries <- e:
			continue
		case <-ctx.Done():
		}
		break
	}
	close(entries)
	workers.Wait()
	return context.Cause(ctx)
}

// one imports a line, and counts it.
func (im *importing) one(ctx context.Context, e importfile.Entry) error {
	keep := e.KeepAt(time.Now())
	if keep == 0 {
		im.counted(&im.count.expired)
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if im.dryRun {
		r, err := im.store.Lookup(ctx, e.ID)
		switch {
		case errors.Is(err, onlyonce.ErrNotFound):
			im.counted(&im.count.imported)
		case err != nil:
			return err
		case e.IsHeldFor(r):
			im.counted(&im.count.imported)
		default:
			im.found(e, r)
		}
		return nil
	}
	r, err := im.store.Claim(ctx, onlyonce.Claim{
		ID: e.ID, Owner: e.Owner, Fingerprint: e.Fingerprint, SkipFingerprint: e.Fingerprint == nil, Summary: e.Summary,
		Lease: importLease, Keep: keep,
	})
	if err != nil {
		return err
	}
	if !e.IsHeldFor(r) {
		im.found(e, r)
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute) // a line that was begun is completed
	defer cancel()
	hold := onlyonce.Hold{ID: e.ID, Owner: r.Owner, Fence: r.Fence}
	s := e.Settlement
	s.Keep = keep
	switch err := im.store.Settle(ctx, hold, s); {
	case errors.Is(err, onlyonce.ErrTooLarge):
		im.reject(e, "the response is larger than the store accepts: shorten it, or leave out its body: "+err.Error())
		return im.store.Settle(ctx, hold, onlyonce.Settlement{})
	case err != nil:
		return err
	}
	im.counted(&im.count.imported)
	return nil
}

// found counts a line whose key is in the store.
func (im *importing) found(e importfile.Entry, r onlyonce.Record) {
	s := e.Settlement
	var what string
	switch {
	case r.State != s.State:
		what = stateOf(r)
	case r.Result.Status != s.Result.Status || !bytes.Equal(r.Result.Body, s.Result.Body):
		what = "with another response"
	default:
		im.counted(&im.count.present)
		return
	}
	im.counted(&im.count.different)
	im.report(e, fmt.Sprintf("the store has this key already, %s: the record was left as it is; onlyonce records show %s", what, r.ID.HexHash()[:shortID]))
}

// reject counts a line that the store does not accept.
func (im *importing) reject(e importfile.Entry, why string) {
	im.counted(&im.count.rejected)
	im.report(e, why)
}

func (im *importing) counted(n *int) {
	im.mu.Lock()
	defer im.mu.Unlock()
	*n++
}

// report names a line that was not imported.
func (im *importing) report(e importfile.Entry, why string) {
	im.mu.Lock()
	defer im.mu.Unlock()
	switch n := im.count.different + im.count.rejected; {
	case n <= reported:
		fmt.Fprintf(im.problems, "line %d: %s\n", e.Line, why)
	case n == reported+1:
		fmt.Fprintln(im.problems, "…")
	}
}
