//go:build linux

package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// settle kills all processes, resolves the held commands as an operator would, repeats every
// command once more, and compares the responses with the rows. A command that starts over may
// be held again, because this attempt, too, can outlast its lease.
func (r *run) settle(report *Report) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	var keys []string
	for key, c := range r.commands {
		if c.unstored {
			report.Unstored++
		}
		if c.held && (c.first == "" || c.unstored) {
			report.Held++
		}
		if c.way != Plain {
			keys = append(keys, key)
		}
	}
	for len(keys) > 0 {
		if err := r.restart(); err != nil {
			return err
		}
		rows, err := r.rows(ctx)
		if err != nil {
			return err
		}
		for _, key := range keys {
			c := r.commands[key]
			if c.first != "" && !c.unstored {
				continue
			}
			if err := r.decide(ctx, key, c, rows[key]); err != nil {
				return fmt.Errorf("decide about %s: %w", key, err)
			}
		}
		if keys, err = r.sendAgain(keys); err != nil {
			return err
		}
	}
	rows, err := r.rows(ctx)
	if err != nil {
		return err
	}
	report.Commands = len(r.commands)
	for key, c := range r.commands {
		r.compare(report, key, c, rows[key])
	}
	for key, tokens := range rows {
		if r.commands[key] == nil {
			report.addFinding(&report.Doubled, "%s, which no client sent, has the rows %v", key, tokens)
		}
	}
	return nil
}

// restart kills all processes and the server and starts them again, so that all data comes from
// the disk and no request is in flight.
func (r *run) restart() error {
	for _, c := range r.processes {
		r.kill(c)
	}
	r.service.Close() // which waits for the requests that it has begun
	if r.Server != nil {
		if err := r.Server.Restart(); err != nil {
			return err
		}
	}
	r.serve()
	for n, c := range r.processes {
		next, err := r.start(c.job)
		if err != nil {
			return err
		}
		r.processes[n] = next
	}
	return nil
}

// rows reads all rows. It tries again if a connection was cut.
func (r *run) rows(ctx context.Context) (rows map[string][]string, err error) {
	for range 20 {
		if rows, err = r.db.Rows(ctx); err == nil {
			return rows, nil
		}
	}
	return nil, err
}

// decide resolves a command whose outcome is unknown or whose attempt is dead: as completed if
// its row exists, and otherwise so that it starts over.
func (r *run) decide(ctx context.Context, key string, c *command, tokens []string) error {
	for {
		rec, err := r.db.Store.Lookup(ctx, idOf(key))
		switch {
		case errors.Is(err, onlyonce.ErrNotFound):
			return nil
		case err == nil && (rec.State == onlyonce.StateProcessing && rec.LeaseLeft <= 0 || rec.State == onlyonce.StateUnknown) && c.way != ByDoTx && c.way != ByRerun:
			s := onlyonce.Settlement{}
			if len(tokens) > 0 {
				s = onlyonce.Settlement{State: onlyonce.StateCompleted, Result: resultOf(c.way, tokens[0]), Keep: time.Hour}
			}
			if err = r.db.Store.Resolve(ctx, rec, s); err == nil {
				return nil
			}
		case err == nil && rec.State != onlyonce.StateProcessing, err == nil && rec.LeaseLeft <= 0:
			return nil
		}
		if ctx.Err() != nil {
			return errors.Join(ctx.Err(), err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// resultOf returns the result of a command whose response was the token.
func resultOf(way, token string) onlyonce.Result {
	if way == ByHeld {
		body, _ := json.Marshal(token) // of a string
		return onlyonce.Result{Body: body}
	}
	return onlyonce.Result{Status: 201, Body: []byte(token)}
}

// sendAgain repeats the commands, and returns those that are held. A command that had a response
// before must not be held.
func (r *run) sendAgain(keys []string) (held []string, err error) {
	next := make(chan string)
	var clients sync.WaitGroup
	for range 32 {
		clients.Go(func() {
			for key := range next {
				r.mu.Lock()
				c := r.commands[key]
				responded := c.first != "" && !c.unstored
				r.mu.Unlock()
				i := slices.IndexFunc(ways, func(w struct{ way, job string }) bool { return w.way == c.way })
				a, err := r.sendUntilResponse(key, c.way, ways[i].job)
				r.mu.Lock()
				switch {
				case err != nil:
					r.failure = errors.Join(r.failure, err)
				case a.Held && responded:
					c.others = append(c.others, "that its outcome is unknown")
				case a.Held:
					held = append(held, key)
				}
				r.mu.Unlock()
			}
		})
	}
	for _, key := range keys {
		next <- key
	}
	close(next)
	clients.Wait()
	return held, r.failure
}

// compare compares the responses to a command with its rows.
func (r *run) compare(report *Report, key string, c *command, tokens []string) {
	switch {
	case c.way == Plain:
		if len(tokens) > 1 {
			report.ControlDoubled++
		}
		return
	case len(tokens) > 1:
		report.addFinding(&report.Doubled, "%s, %s: responded with %s, it has the rows %v", key, c.way, c.first, tokens)
	case len(tokens) == 0:
		report.addFinding(&report.Lost, "%s, %s: responded with %q, it has no row", key, c.way, c.first)
	case c.first == "":
		report.addFinding(&report.Lost, "%s, %s: it has the row %s and no response", key, c.way, tokens[0])
	case c.first != tokens[0]:
		report.addFinding(&report.Differing, "%s, %s: responded with %s, it has the row %s", key, c.way, c.first, tokens[0])
	}
	if len(c.others) > 0 {
		report.addFinding(&report.Differing, "%s, %s: responded with %s, then %v", key, c.way, c.first, c.others)
	}
	if c.ran > 1 && !c.unstored {
		report.addFinding(&report.Doubled, "%s, %s: it ran %d times to its end", key, c.way, c.ran)
	}
}

// addFinding counts an error, and describes the first ones.
func (report *Report) addFinding(count *int, format string, args ...any) {
	*count++
	if len(report.Findings) < 20 {
		report.Findings = append(report.Findings, fmt.Sprintf(format, args...))
	}
}
