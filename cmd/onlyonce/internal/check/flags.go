package check

import (
	"strings"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cli"
	"github.com/onlyonce-go/onlyonce/conform"
	"github.com/spf13/cobra"
)

// flags holds the values of check's flags.
type flags struct {
	t   conform.Target
	cfg conform.Config

	path          string
	body, badBody string
	header, other []string
	caCert        string
	format        string
	verbose       bool
	may           cli.WritePermission
}

func (f *flags) addFlags(cmd *cobra.Command) {
	s := cmd.Flags()
	s.SortFlags = false
	f.may.AddFlag(cmd)
	s.StringVar(&f.t.Method, "method", conform.DefaultMethod, "`method` of the operation")
	s.StringVar(&f.path, "path", "", "`path` of the operation, added to URL")
	s.StringVar(&f.body, "body", "", "`text` of a body that the API accepts, or @FILE; each {{fresh}} in it is replaced by new digits")
	s.StringVar(&f.t.Fresh, "fresh", "", "JSON `pointer` to a string or an integer in the body that is changed for every command")
	s.StringArrayVar(&f.header, "header", nil, "`header` of every request, as 'Name: value' or @FILE; may be repeated")
	s.StringArrayVar(&f.other, "other-header", nil, "`header` that a second tenant sends instead of the first one's; may be repeated")
	s.StringVar(&f.t.OtherURL, "other-path", "", "`path` on the server of another operation that accepts the same body")
	s.StringVar(&f.badBody, "bad-body", "", "`text` of a body that the API rejects, or @FILE (default: the body without its end, if it is JSON)")
	s.StringVar(&f.t.KeyHeader, "key-header", conform.DefaultKeyHeader, "`name` of the key's header")
	s.StringVar(&f.t.CountURL, "count-url", "", "`path` on the server whose response to a GET says how often commands took effect; {{fresh}} in it is replaced as in the body")
	s.StringVar(&f.t.Count, "count", "", "JSON `pointer` to the number, or to an array of that length, in the response from --count-url (default: all of it)")
	s.StringSliceVar(&f.cfg.Only, "only", nil, "check only these `rows`")
	s.StringSliceVar(&f.cfg.Skip, "skip", nil, "do not check these `rows`")
	s.IntVar(&f.cfg.Burst, "burst", conform.DefaultBurst, "`number` of equal requests that are sent at once, 2 to 64")
	s.DurationVar(&f.cfg.Timeout, "timeout", conform.DefaultTimeout, "how long one request may take")
	s.DurationVar(&f.cfg.Within, "within", conform.DefaultWithin, "how long the whole check may take")
	s.StringVar(&f.caCert, "cacert", "", "CA `file` (PEM) for the server's certificate (default: the system's)")
	formats.AddFlag(cmd, &f.format, "format", formatTable, "format of the report")
	s.BoolVarP(&f.verbose, "verbose", "v", false, "show requests and responses of rows that pass, too")
	cli.CompleteValues(cmd, "only", rowIDs()...)
	cli.CompleteValues(cmd, "skip", rowIDs()...)
}

// The values of --format.
const (
	formatTable = "table"
	formatJSON  = "json"
	formatJUnit = "junit"
)

var formats = cli.Choice{formatTable, formatJSON, formatJUnit}

func rowIDs() (ids []string) {
	for _, row := range conform.Rows() {
		ids = append(ids, row.ID)
	}
	return ids
}

func (f *flags) writer() (reportWriter, error) {
	switch f.format {
	case formatJSON:
		return writeJSON, nil
	case formatJUnit:
		return writeJUnit, nil
	}
	return tableWriter(f.verbose), formats.CheckFlag("format", f.format)
}

// target returns the target that the flags describe, after reading the files that
// they name.
func (f *flags) target(url string) (t conform.Target, err error) {
	if f.cfg.Timeout <= 0 || f.cfg.Within <= 0 {
		return t, cli.Usagef("--timeout is %v and --within %v: write more than 0", f.cfg.Timeout, f.cfg.Within)
	}
	if f.cfg.MaxRequests() == 0 {
		return t, cli.Usagef("no row is selected, a row is unknown, or --burst is not 2 to 64; the rows are %s", strings.Join(rowIDs(), ", "))
	}
	t = f.t
	t.URL = cli.JoinURL(url, f.path)
	if t.Body, err = cli.TextOrFile(f.body); err != nil {
		return t, err
	}
	if t.BadBody, err = cli.TextOrFile(f.badBody); err != nil {
		return t, err
	}
	if t.Header, err = cli.ParseHeader(f.header); err != nil {
		return t, err
	}
	if t.Other, err = cli.ParseHeader(f.other); err != nil {
		return t, err
	}
	if f.caCert != "" {
		t.TLS, err = cli.TrustOnly(f.caCert)
	}
	return t, err
}
