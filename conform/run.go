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

	Burst   int           // how many equal requests are sent concurrently; default DefaultBurst, at most 64
	Timeout time.Duration // of one request; default DefaultTimeout
	Within  time.Duration // of the whole run; default DefaultWithin

	// Progress is called before each row is checked, with the row's number, from 1, and
	// how many there are. The row has no verdict yet. Nil: it is not.
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

// repeats is how many requests may be sent again because the target asks for a
// retry.
const repeats = 20

// MaxRequests returns the maximum number of requests that Run sends.
func (c Config) MaxRequests() int {
	c, err := c.withDefaults()
	chosen, wrong := c.chosen()
	if err != nil || wrong != nil {
		return 0
	}
	return c.most(chosen)
}

func (c Config) most(chosen []check) int {
	n := meets + repeats
	for _, check := range chosen {
		if n += check.most; check.id == "burst" {
			n += rounds * c.Burst
		}
	}
	return n
}

// meets is how many requests meet and stillCounts send at most.
const meets = 8 + 3

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
	cfg, _ = cfg.withDefaults() // newProbe has seen that it makes sense
	ctx, cancel := context.WithTimeoutCause(ctx, cfg.Within, fmt.Errorf("it took longer than %v (Within, --within)", cfg.Within))
	defer cancel()
	p.ctx = ctx
	report := Report{Target: p.target.Method + " " + p.wire.censor.text(p.target.URL), Began: time.Now()}
	report.Rows, err = p.all(chosen)
	report.Took, report.Requests = time.Since(report.Began), p.wire.sent
	if err != nil {
		if end, ok := ctx.Deadline(); ok && !time.Now().Before(end) {
			<-ctx.Done() // a connection knows when time is over, and may notice first
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
	chosen, err := cfg.chosen()
	if err != nil {
		return nil, nil, err
	}
	bodies, err := newBodyMaker(target.Body, target.Fresh)
	if err != nil {
		return nil, nil, fmt.Errorf("the body: %w", err)
	}
	w := &wire{tls: target.TLS, timeout: cfg.Timeout, left: cfg.most(chosen), censor: newCensor(target.Header, target.Other)}
	for _, address := range []string{target.URL, target.OtherURL, target.CountURL} {
		w.censor.hideQuery(address)
	}
	return &probe{target: target, bodies: bodies, wire: w, burst: cfg.Burst, progress: cfg.Progress}, chosen, nil
}

func (p *probe) all(chosen []check) (rows []Row, err error) {
	if err := p.meet(); err != nil {
		return nil, err
	}
	for i, c := range chosen {
		if p.progress != nil {
			p.progress(c.row(), i+1, len(chosen))
		}
		row, err := p.look(c)
		if err != nil {
			return rows, err
		}
		rows = append(rows, row)
	}
	if err := p.stillCounts(); err != nil {
		return nil, err
	}
	return rows, nil
}
