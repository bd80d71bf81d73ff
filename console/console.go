package console

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path"
	"strings"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/outbox"
)

// DefaultPath is where a console is, unless Config.Path says otherwise.
const DefaultPath = "/console/"

// A Config configures a console. Store and Tokens are required.
type Config struct {
	// Store must also be an onlyonce.Lister. Only if it is an onlyonce.Resolver can a
	// person decide, and only if it is an onlyonce.Auditor are decisions recorded in it.
	Store onlyonce.Store

	// Tokens are those with which a person can log in. Without one, New returns an error.
	Tokens []Token

	// Path is where the handler is mounted. It begins and ends with a slash; requests must
	// reach the handler with it. The default is DefaultPath.
	Path string

	// Name is the store's name on the pages, such as its URL without a password.
	Name string

	// Meter provides the numbers about requests. Without one, they are not shown.
	Meter *Meter

	// Outbox is the queue whose parked messages are shown. Without one, none are. Only if it
	// is an outbox.Auditor are decisions about them recorded in it.
	Outbox outbox.Queue

	// Health returns an error if the store takes no commands; it is called at most once in
	// two seconds. By default, the store counts as healthy if its records can be listed.
	Health func(context.Context) error

	// Redact selects values of stored responses that are not shown, in addition to those
	// with usual names of secrets, such as password or card_number. An entry that begins
	// with a slash is a JSON Pointer (RFC 6901), in which * stands for any member or index,
	// such as /customer/email or /items/*/owner. Any other entry is the name of a header, a
	// JSON member or a form field; case and punctuation do not matter, and a name of four
	// letters or more also selects the names that contain it.
	Redact []string

	// OnDecision is called with the ID of a record after a person has decided about it, also
	// if the decision may not have taken effect. It is where a program calls Guard.Forget for
	// each of its Guards that have a cache. Several goroutines may call it at once.
	OnDecision func(onlyonce.ID)

	// Log gets a line for every login and every decision. The default is slog.Default().
	Log *slog.Logger
}

// A console is the handler that New returns.
type console struct {
	store interface {
		onlyonce.Store
		onlyonce.Lister
	}
	resolver   onlyonce.Resolver // nil: nobody can decide
	auditor    onlyonce.Auditor  // nil: there is no audit trail
	outbox     outbox.Queue      // may be nil
	boxAuditor outbox.Auditor    // the outbox; nil: it keeps no audit trail
	meter      *Meter            // may be nil
	tokens     []Token
	path       string
	name       string
	redact     *redaction
	onDecision func(onlyonce.ID) // may be nil
	log        *slog.Logger

	secret   [32]byte // of the tokens in forms
	seal     sealer
	known    *known
	sessions sessions
	logins   logins
	gauges   *gauges
	streams  streams
	pages    pages
	mux      *http.ServeMux
}

// New returns a console. It returns an error if the configuration can't be used.
func New(cfg Config) (http.Handler, error) {
	c := &console{outbox: cfg.Outbox, meter: cfg.Meter, tokens: cfg.Tokens, path: cfg.Path, name: cfg.Name, onDecision: cfg.OnDecision, log: cfg.Log, known: newKnown()}
	if err := c.configure(&cfg); err != nil {
		return nil, fmt.Errorf("console: %w", err)
	}
	rand.Read(c.secret[:]) // never fails
	c.gauges = newGauges(c, cfg.Health)
	c.route()
	return c.protect(c.mux), nil
}

func (c *console) configure(cfg *Config) (err error) {
	list, ok := cfg.Store.(interface {
		onlyonce.Store
		onlyonce.Lister
	})
	if !ok {
		return errors.New("Config.Store is not an onlyonce.Lister: pass a store that can list its records")
	}
	c.store = list
	c.resolver, _ = cfg.Store.(onlyonce.Resolver)
	c.auditor, _ = cfg.Store.(onlyonce.Auditor)
	c.boxAuditor, _ = cfg.Outbox.(outbox.Auditor)
	if err := checkTokens(c.tokens); err != nil {
		return fmt.Errorf("Config.Tokens: %w", err)
	}
	if c.path == "" {
		c.path = DefaultPath
	}
	if !validPath(c.path) {
		return fmt.Errorf("Config.Path is %q: write a path that begins and ends with a slash, such as %s", c.path, DefaultPath)
	}
	if c.log == nil {
		c.log = slog.Default()
	}
	if c.redact, err = newRedaction(cfg.Redact); err != nil {
		return fmt.Errorf("Config.Redact: %w", err)
	}
	if c.seal, err = newSealer(); err != nil {
		return err
	}
	c.pages, err = parsePages()
	return err
}

// validPath reports whether requests can reach a handler below p, which ends up in
// patterns, cookies and links.
func validPath(p string) bool {
	for _, r := range p {
		if !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~/", r) {
			return false
		}
	}
	return strings.HasPrefix(p, "/") && (p == "/" || path.Clean(p)+"/" == p)
}

// route registers the pages.
func (c *console) route() {
	c.mux = http.NewServeMux()
	handle := func(pattern string, h http.HandlerFunc) {
		method, rest, _ := strings.Cut(pattern, " ")
		c.mux.HandleFunc(method+" "+c.path+rest, h)
	}
	for name := range assets {
		handle("GET "+name, serveAsset)
	}
	handle("GET login", c.showLogin)
	handle("POST login", c.logIn)
	handle("POST logout", c.posted(Reader, c.logOut))
	handle("GET {$}", c.seen(c.overview))
	handle("GET live", c.live)
	handle("GET records", c.seen(c.records))
	handle("POST records", c.posted(Reader, c.search))
	handle("GET records/{id}", c.seen(c.record))
	handle("POST records/{id}", c.posted(Writer, c.decide))
	handle("GET decisions", c.seen(c.queue))
	handle("GET messages", c.seen(c.messages))
	handle("POST messages", c.posted(Writer, c.decideMessage))
	handle("GET ", c.seen(func(w http.ResponseWriter, r *http.Request, s *session) {
		c.problem(w, s, http.StatusNotFound, "There is no such page.")
	}))
}
