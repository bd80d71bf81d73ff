package console

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/visible"
)

const (
	pageSize   = 50
	scanFor    = 150 * time.Millisecond // after which a page shows the records found so far
	listWithin = 10 * time.Second       // for stores that read all of their records for a list
	maxAddress = 8000                   // bytes of the address of a list, which servers and browsers accept
)

// A query selects records.
type query struct {
	Tenant, Operation, Key, Ref string
	State                       string // one of states, or empty
	Older                       string // a duration
	after                       onlyonce.Record
	scan                        bool // look through the records for the key, too
}

// unresolvedState selects commands whose outcome is unknown.
const unresolvedState = "unresolved"

// states are the values of query.State.
var states = []string{unresolvedState, string(onlyonce.StateProcessing), string(onlyonce.StateCompleted), string(onlyonce.StateFailed), string(onlyonce.StateRemembered)}

// readQuery reads the parameters of a page. It ignores invalid values.
func (c *console) readQuery(v url.Values) query {
	q := query{Tenant: v.Get("tenant"), Operation: v.Get("operation"), Ref: v.Get("ref"), State: v.Get("state"), Older: v.Get("older"), scan: v.Has("scan")}
	if !slices.Contains(states, q.State) {
		q.State = ""
	}
	if d, err := time.ParseDuration(q.Older); err != nil || d <= 0 {
		q.Older = ""
	}
	var key []byte
	if c.seal.open("key", v.Get("key"), &key) {
		q.Key = string(key)
	}
	var after position
	if c.seal.open("after", v.Get("after"), &after) {
		q.after = after.record()
	}
	return q
}

// address returns the address of the page at which the records of q are listed.
func (c *console) address(page string, q query) (string, error) {
	v := url.Values{}
	for name, value := range map[string]string{"tenant": q.Tenant, "operation": q.Operation, "ref": q.Ref, "state": q.State, "older": q.Older} {
		if value != "" {
			v.Set(name, value)
		}
	}
	if q.Key != "" {
		sealed, err := c.seal.seal("key", []byte(q.Key))
		if err != nil {
			return "", err
		}
		v.Set("key", sealed)
	}
	if q.scan {
		v.Set("scan", "")
	}
	if q.after.ID != (onlyonce.ID{}) {
		sealed, err := c.seal.seal("after", positionOf(q.after))
		if err != nil {
			return "", err
		}
		v.Set("after", sealed)
	}
	if len(v) == 0 {
		return c.path + page, nil
	}
	return c.path + page + "?" + v.Encode(), nil
}

// A result is a page of records.
type result struct {
	records []onlyonce.Record
	looked  int             // at so many records
	last    onlyonce.Record // that was looked at
	more    bool            // there are records after last
	byIndex bool            // they are the records of a key in known places; others may have it, too
}

// find returns a page of the records of q. It never takes much longer than scanFor in a
// store that finds the records by an index: it stops, and says how far it got.
func (c *console) find(ctx context.Context, q query) (found result, err error) {
	if q.Key != "" && !q.scan && q.after.ID == (onlyonce.ID{}) {
		if err := c.learnPlaces(ctx, q); err != nil {
			return found, err
		}
		of, err := c.findKey(ctx, q.Tenant, q.Operation, q.Key)
		if err != nil {
			return found, err
		}
		for _, r := range of {
			if q.selects(r) {
				found.records = append(found.records, r)
			}
		}
		if complete := q.Tenant != "" && q.Operation != ""; complete || len(found.records) > 0 {
			found.byIndex = !complete
			return found, nil
		}
	}
	return c.scan(ctx, q)
}

// learnPlaces looks at the newest records, to know in which places a key may be.
func (c *console) learnPlaces(ctx context.Context, q query) error {
	for r, err := range c.store.List(ctx, onlyonce.Filter{Tenant: q.Tenant, Operation: q.Operation, Limit: pageSize}) {
		if err != nil {
			return err
		}
		c.known.add(r.ID)
	}
	return nil
}

// selects reports whether a record is one of q, whose tenant, operation and ref the store
// compares, except if it was found by its key.
func (q *query) selects(r onlyonce.Record) bool {
	switch {
	case q.Key != "" && r.ID.Key != q.Key, q.Ref != "" && r.Result.Ref != q.Ref:
		return false
	case q.State == unresolvedState:
		return r.Unresolved()
	}
	return q.State == "" || q.State == string(r.State)
}

// scan lists the records of q from q.after on.
func (c *console) scan(ctx context.Context, q query) (found result, err error) {
	f := onlyonce.Filter{Tenant: q.Tenant, Operation: q.Operation, Ref: q.Ref, Unresolved: q.State == unresolvedState, After: q.after}
	if q.State == string(onlyonce.StateProcessing) {
		f.State = onlyonce.StateProcessing // by an index
	}
	if d, err := time.ParseDuration(q.Older); err == nil && q.after.ID == (onlyonce.ID{}) {
		f.After = onlyonce.Record{CreatedAt: time.Now().Add(-d)}
	}
	began := time.Now()
	for r, err := range c.store.List(ctx, f) {
		if err != nil {
			return found, err
		}
		if len(found.records) == pageSize || found.looked > 0 && time.Since(began) > scanFor {
			found.more = true
			break
		}
		found.looked++
		r.Steps = nil
		found.last = onlyonce.Record{ID: r.ID, CreatedAt: r.CreatedAt}
		if q.selects(r) {
			c.known.add(r.ID)
			r.Result.Body, r.Result.Header = nil, nil
			found.records = append(found.records, r)
		}
	}
	return found, nil
}

// A listPage is a page with a list of records.
type listPage struct {
	Query    query // as the person sees it
	States   []string
	Rows     []row
	More     string // address of the next page; empty: there is none
	Scan     string // address of the page that looks through all records; empty: none is needed
	First    string // address of the first page; empty: this is the first
	Looked   string // how many records were looked at without finding any
	LookedAt string // how old the last of them is
	CanDo    bool   // a person can decide
}

// A row is a record in a list.
type row struct {
	Href, ID, State, Tone, Tenant, Operation, Key, Ref, Status, Created, Ago, Left, Error string
	Attempt                                                                               int
}

func (c *console) row(r onlyonce.Record) row {
	id := recordID(r.ID)
	return row{
		Href: c.path + "records/" + id, ID: id[:16], State: stateOf(r), Tone: toneOf(r),
		Tenant: show(visible.Cut(r.ID.Tenant, 64)), Operation: show(visible.Cut(r.ID.Operation, 96)), Key: show(visible.Cut(r.ID.Key, 96)), Ref: show(visible.Cut(r.Result.Ref, 64)),
		Status: statusOf(r.Result.Status), Created: instant(r.CreatedAt), Ago: ago(r.CreatedAt), Left: leftOf(r), Attempt: r.Attempt,
		Error: show(visible.Cut(c.redact.text(r.Error), 200)),
	}
}

// records lists records.
func (c *console) records(w http.ResponseWriter, r *http.Request, s *session) {
	c.list(w, r, s, c.readQuery(r.URL.Query()), "records", "Records")
}

// queue lists the commands whose outcome is unknown.
func (c *console) queue(w http.ResponseWriter, r *http.Request, s *session) {
	q := c.readQuery(r.URL.Query())
	c.list(w, r, s, query{State: unresolvedState, after: q.after}, "decisions", "Decisions")
}

func (c *console) list(w http.ResponseWriter, r *http.Request, s *session, q query, page, title string) {
	ctx, cancel := context.WithTimeout(r.Context(), listWithin)
	defer cancel()
	found, err := c.find(ctx, q)
	if err != nil {
		c.failed(w, r, s, err)
		return
	}
	shown := q
	shown.Tenant, shown.Operation, shown.Key, shown.Ref = show(q.Tenant), show(q.Operation), show(q.Key), show(q.Ref)
	p := listPage{Query: shown, States: states, CanDo: c.resolver != nil && s.Role == Writer}
	for _, of := range found.records {
		p.Rows = append(p.Rows, c.row(of))
	}
	link := func(to *string, q query) {
		if err == nil {
			*to, err = c.address(page, q)
		}
	}
	first := q
	first.after, first.scan = onlyonce.Record{}, false
	if q.after.ID != (onlyonce.ID{}) {
		link(&p.First, first)
	}
	if found.more {
		next := q
		next.after, next.scan = found.last, q.Key != ""
		link(&p.More, next)
		if len(found.records) < pageSize {
			p.Looked, p.LookedAt = number(found.looked), instant(found.last.CreatedAt)
		}
	}
	if found.byIndex {
		all := first
		all.scan = true
		link(&p.Scan, all)
	}
	if err != nil {
		c.failed(w, r, s, err)
		return
	}
	c.render(w, s, http.StatusOK, page, title, p)
}

// search redirects to the list that a person asked for. It is a form that is posted, so
// that no key is in an address.
func (c *console) search(w http.ResponseWriter, r *http.Request, s *session) {
	q := query{
		Tenant: r.PostFormValue("tenant"), Operation: r.PostFormValue("operation"), Key: r.PostFormValue("key"), Ref: r.PostFormValue("ref"),
		State: r.PostFormValue("state"), Older: r.PostFormValue("older"),
	}
	if q.Older != "" {
		if d, err := time.ParseDuration(q.Older); err != nil || d <= 0 {
			c.problem(w, s, http.StatusBadRequest, "The age is not a duration: write a number with a unit, such as 90s, 15m or 24h.")
			return
		}
	}
	if q.Key != "" && c.isRecordID(w, r, q.Key) {
		return
	}
	to, err := c.address("records", q)
	if err != nil {
		c.failed(w, r, s, err)
		return
	}
	if len(to) > maxAddress {
		c.problem(w, s, http.StatusBadRequest, "This is too long to be searched for. Search for less at once.")
		return
	}
	http.Redirect(w, r, to, http.StatusSeeOther)
}

// isRecordID redirects to the record whose id, as in a log, was given in the place of a
// key, and reports whether there is one.
func (c *console) isRecordID(w http.ResponseWriter, r *http.Request, text string) bool {
	if len(text) < 16 || len(text) > 64 || !isHex(text) {
		return false
	}
	ctx, cancel := context.WithTimeout(r.Context(), listWithin)
	defer cancel()
	var ids []string
	for of, err := range c.store.List(ctx, onlyonce.Filter{IDPrefix: text, Limit: 2}) {
		if err != nil {
			return false
		}
		c.known.add(of.ID)
		ids = append(ids, recordID(of.ID))
	}
	if len(ids) != 1 {
		return false
	}
	http.Redirect(w, r, c.path+"records/"+ids[0], http.StatusSeeOther)
	return true
}

func isHex(text string) bool {
	for _, r := range text {
		if (r < '0' || r > '9') && (r < 'a' || r > 'f') {
			return false
		}
	}
	return true
}
