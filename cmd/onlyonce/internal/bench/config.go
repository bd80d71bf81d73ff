package bench

import (
	"cmp"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cli"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/storeflags"
	"github.com/spf13/cobra"
)

// A config holds the values of bench's flags.
type config struct {
	compare     string
	callers     int
	rate        float64
	duration    time.Duration
	requests    int64
	duplicates  float64
	keys        string
	resultSize  int
	keep        time.Duration
	leave       bool
	format      string
	acceptRisks []string
	http        httpConfig
	may         cli.WritePermission
}

// Bounds of the flags' values.
const (
	longest     = time.Hour
	mostCallers = 10_000
	mostResult  = 1 << 20
	leastKeep   = 100 * time.Millisecond
)

// leastResult is the length from which a random result is unique.
const leastResult = 16

// The values of --keys: which of the earlier keys is repeated.
const (
	keysUniform    = "uniform"
	keysZipf       = "zipf"
	keysSequential = "sequential"
)

var keyChoice = cli.Choice{keysUniform, keysZipf, keysSequential}

// The values of --format.
const (
	formatTable = "table"
	formatJSON  = "json"
)

var formats = cli.Choice{formatTable, formatJSON}

func (c *config) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.SortFlags = false
	f.IntVar(&c.callers, "callers", 16, "`number` of callers, each with one request at a time")
	f.Float64Var(&c.rate, "rate", 0, "total `number` of requests per second; 0: as fast as the responses arrive")
	f.DurationVar(&c.duration, "duration", 10*time.Second, "how long each target is measured; at most 1h")
	f.Int64Var(&c.requests, "requests", 0, "`number` of requests to each target after which the run ends early")
	f.Float64Var(&c.duplicates, "duplicates", 0.2, "`ratio` of requests that repeat an earlier one, 0 to below 1")
	f.StringVar(&c.keys, "keys", keysUniform, "which earlier key is repeated: uniform (any), zipf (mostly a few of them) or sequential (one after another)")
	cli.CompleteValues(cmd, "keys", keyChoice...)
	f.IntVar(&c.resultSize, "result-size", 500, "size of a result in `bytes`; stores only")
	f.StringVar(&c.compare, "compare", "", "another `URL` to take turns with")
	f.DurationVar(&c.keep, "keep", 5*time.Second, "how long a response is kept; it is repeated for half as long; memory:// keeps it for at most 1s unless --requests is small")
	f.BoolVar(&c.leave, "leave", false, "leave the keys in the store instead of waiting until they expire and purging them")
	f.StringSliceVar(&c.acceptRisks, "accept-risk", nil, storeflags.RiskUsage+"; may be repeated")
	f.StringVar(&c.http.method, "method", "POST", "HTTP `method`")
	f.StringVar(&c.http.path, "path", "", "`path` below the URL")
	f.StringVar(&c.http.body, "body", `{"bench":"{key}"}`, "`text` of every request's body, or @FILE")
	f.StringArrayVar(&c.http.headers, "header", nil, "`header` of every request, as 'Name: value' or @FILE; may be repeated; the default Content-Type is application/json")
	f.StringVar(&c.http.keyHeader, "key-header", "Idempotency-Key", "`name` of the header with the key")
	f.DurationVar(&c.http.timeout, "timeout", 10*time.Second, "how long an HTTP request may take")
	f.StringVar(&c.http.caCert, "cacert", "", "CA `file` (PEM) for the server's certificate (default: the system's)")
	formats.AddFlag(cmd, &c.format, "format", formatTable, "format of the report")
	c.may.AddFlag(cmd)
}

func (c *config) check() error {
	switch {
	case c.callers < 1 || c.callers > mostCallers:
		return cli.Usagef("--callers is %d: write 1 to %d", c.callers, mostCallers)
	case !(c.rate >= 0 && c.rate <= 1e9): // NaN is neither
		return cli.Usagef("--rate is %v: write requests per second, or 0 for as fast as the responses arrive", c.rate)
	case c.duration <= 0 || c.duration > longest:
		return cli.Usagef("--duration is %v: write more than 0 and at most %v", c.duration, longest)
	case c.requests < 0:
		return cli.Usagef("--requests is %d: write 1 or more, or leave it out", c.requests)
	case !(c.duplicates >= 0 && c.duplicates < 1):
		return cli.Usagef("--duplicates is %v: write the ratio of repeats, 0 to below 1, such as 0.2", c.duplicates)
	case c.resultSize < leastResult || c.resultSize > mostResult:
		return cli.Usagef("--result-size is %d: write %d to %d", c.resultSize, leastResult, mostResult)
	case c.keep < leastKeep || c.keep > longest:
		return cli.Usagef("--keep is %v: write %v to %v", c.keep, leastKeep, longest)
	}
	return cmp.Or(keyChoice.CheckFlag("keys", c.keys), formats.CheckFlag("format", c.format), c.http.check())
}

// A httpConfig holds the values of the flags for HTTP requests.
type httpConfig struct {
	method, path, body, keyHeader string
	headers                       []string
	caCert                        string
	timeout                       time.Duration
}

func (c *httpConfig) check() error {
	switch {
	case c.timeout <= 0:
		return cli.Usagef("--timeout is %v: write how long a request may take, such as 10s", c.timeout)
	case c.keyHeader == "":
		return cli.Usagef("--key-header is empty: write the name of a header, such as Idempotency-Key")
	case c.method == "" || strings.ContainsAny(c.method, " \t\r\n"):
		return cli.Usagef("--method is %q: write a method such as POST", c.method)
	}
	return nil
}
