package conform

import (
	"cmp"
	"context"
	"fmt"
	"time"
)

// These are the defaults of a Config.
const (
	DefaultBurst   = 8
	DefaultTimeout = 10 * time.Second
	DefaultWithin  = 2 * time.Minute
)

// A Config selects and limits the checks. The zero Config checks every row.
type Config struct {
	Only []string // IDs of the rows to check; none: all
	Skip []string // IDs of rows not to check

	Burst   int           // the number of equal requests that are sent concurrently; default DefaultBurst, at most 64
	Timeout time.Duration // of one request; default DefaultTimeout
	Within  time.Duration // of the whole run; default DefaultWithin

	// Progress is called before each row is checked, with the row, its number n, which
	// starts at 1, and the number of rows. The row has no verdict yet. Progress may be nil.
	Progress func(row Row, n, of int)
}

func (c Config) withDefaults() (Config, error) {
	for _, d := range []*time.Duration{&c.Timeout, &c.Within} {
		if *d < 0 {
			return c, fmt.Errorf("a timeout is %v: write a positive one", *d)
		}
	}
	if c.Burst < 0 || c.Burst == 1 || c.Burst > 64 {
		return c, fmt.Errorf("the burst is %d: write 2 to 64", c.Burst)
	}
	c.Burst = cmp.Or(c.Burst, DefaultBurst)
	c.Timeout = cmp.Or(c.Timeout, DefaultTimeout)
	c.Within = cmp.Or(c.Within, DefaultWithin)
	return c, nil
}

// maxRetries is the maximum number of requests that are sent again after a 429.
const maxRetries = 20

// MaxRequests returns the maximum number of requests that Run sends.
func (c Config) MaxRequests() int {
	c, err := c.withDefaults()
	chosen, wrong := c.selected()
	if err != nil || wrong != nil {
		return 0
	}
	return c.maxRequests(chosen)
}

func (c Config) maxRequests(chosen []check) int {
	n := setupRequests + maxRetries
	for _, check := range chosen {
		if n += check.maxRequests; check.id == "burst" {
			n += burstRounds * c.Burst
		}
	}
	return n
}

// setupRequests is the maximum number of requests that learnTarget and verifyCount send.
const setupRequests = 8 + 3

// Run checks a target and reports on every row. The requests that it sends take
// effect. It sends at most Config.MaxRequests of them, under new random keys.
// An error means that the target could not be checked completely, because it
// can't be reached, does not accept the body, or took too long. The report then
// has the rows that were checked so far.
func Run(ctx context.Context, target Target, cfg Config) (Report, error) {
	p, chosen, err := newProbe(target, cfg)
	if err != nil {
		return Report{}, fmt.Errorf("conform: run: %w", err)
	}
	cfg, _ = cfg.withDefaults() // newProbe has returned the error, if any
	ctx, cancel := context.WithTimeoutCause(ctx, cfg.Within, fmt.Errorf("it took longer than %v (Within, --within)", cfg.Within))
	defer cancel()
	p.ctx = ctx
	report := Report{Target: p.target.Method + " " + p.client.redactor.redactText(p.target.URL), Began: time.Now()}
	report.Rows, err = p.runChecks(chosen)
	report.Took, report.Requests = time.Since(report.Began), p.client.sent
	if err != nil {
		if end, ok := ctx.Deadline(); ok && !time.Now().Before(end) {
			<-ctx.Done() // a connection has the same deadline, and may fail before ctx ends
		}
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return report, fmt.Errorf("conform: run: %w", err)
	}
	return report, nil
}

// newProbe rejects an invalid target or Config before anything is sent.
func newProbe(target Target, cfg Config) (*probe, []check, error) {
	target, err := target.withDefaults()
	if err != nil {
		return nil, nil, err
	}
	if cfg, err = cfg.withDefaults(); err != nil {
		return nil, nil, err
	}
	chosen, err := cfg.selected()
	if err != nil {
		return nil, nil, err
	}
	bodies, err := newBodyGenerator(target.Body, target.Fresh)
	if err != nil {
		return nil, nil, fmt.Errorf("the body: %w", err)
	}
	w := &client{tls: target.TLS, timeout: cfg.Timeout, budget: cfg.maxRequests(chosen), redactor: newRedactor(target.Header, target.Other)}
	for _, address := range []string{target.URL, target.OtherURL, target.CountURL} {
		w.redactor.addQuerySecrets(address)
	}
	return &probe{target: target, bodies: bodies, client: w, burst: cfg.Burst, progress: cfg.Progress}, chosen, nil
}

func (p *probe) runChecks(chosen []check) (rows []Row, err error) {
	if err := p.learnTarget(); err != nil {
		return nil, err
	}
	for i, c := range chosen {
		if p.progress != nil {
			p.progress(c.row(), i+1, len(chosen))
		}
		row, err := p.runCheck(c)
		if err != nil {
			return rows, err
		}
		rows = append(rows, row)
	}
	if err := p.verifyCount(); err != nil {
		return nil, err
	}
	return rows, nil
}
