package caddyonce

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/caddyserver/caddy/v2"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/promonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/internal/storeurl"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
)

// Stored are the settings of a store. Placeholders such as {env.STORE} and {file./run/secrets/store} are
// replaced when the configuration is loaded.
type Stored struct {
	// The URL of the store: sqlite:PATH, or that of a PostgreSQL, MySQL, Redis, NATS or etcd
	// server, or of a DynamoDB table.
	Store string `json:"store,omitempty"`

	NoMigrate             bool     `json:"no_migrate,omitempty"`              // create and change no tables; default: they are brought up to date
	AcceptRisks           []string `json:"accept_risks,omitempty"`            // names of findings of "onlyonce doctor" that are accepted
	FingerprintSecretFile string   `json:"fingerprint_secret_file,omitempty"` // the same for all servers on the store; default: PATH.secret for sqlite, which is generated, and none for a server
	EncryptionKeysFile    string   `json:"encryption_keys_file,omitempty"`    // keys that encrypt responses and errors; default: they are not encrypted
	AcceptPlaintext       bool     `json:"accept_plaintext,omitempty"`        // also read records that are older than the keys
}

// stores are the open stores by their settings, which outlive a configuration that is reloaded.
var stores = caddy.NewUsagePool()

// A pooled store is one that is open. It is closed when nothing uses it any more: no configuration,
// and no request.
type pooled struct {
	records onlyonce.Store
	name    string // its URL, without a password
	secret  []byte // keys the fingerprints in it; nil: nothing does
	usage   httponce.Usage
	purges  atomic.Pointer[onlyonce.Observer] // of the last configuration
	close   func() error

	mu       sync.Mutex
	requests int
	retired  bool // no configuration uses it
}

func (s *pooled) enter() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests++
}

func (s *pooled) leave() {
	s.mu.Lock()
	s.requests--
	last := s.retired && s.requests == 0
	s.mu.Unlock()
	if last {
		if err := s.close(); err != nil {
			caddy.Log().Error("onlyonce: close the store", zap.String("store", s.name), zap.Error(err))
		}
	}
}

// Destruct is called when the last configuration that uses the store is gone.
func (s *pooled) Destruct() error {
	s.mu.Lock()
	s.retired = true
	unused := s.requests == 0
	s.mu.Unlock()
	if unused {
		return s.close()
	}
	return nil
}

// open gets the store from the pool, and opens it if it is not there.
func (h *Handler) open(ctx caddy.Context) error {
	s, repl := h.Stored, caddy.NewReplacer()
	for name, value := range map[string]*string{"store": &s.Store, "fingerprint_secret_file": &s.FingerprintSecretFile, "encryption_keys_file": &s.EncryptionKeysFile} {
		replaced, err := repl.ReplaceOrErr(*value, true, true)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		*value = strings.TrimSpace(replaced)
	}
	key, err := json.Marshal(s)
	if err != nil {
		return err
	}
	store, _, err := stores.LoadOrNew(string(key), func() (caddy.Destructor, error) { return s.open(ctx) })
	if err != nil {
		return errors.New(inCaddy.Replace(err.Error()))
	}
	h.store, h.key = store.(*pooled), string(key)
	return nil
}

// inCaddy replaces the names of the proxy's flags by those of this module's settings.
var inCaddy = strings.NewReplacer("--accept-risk ", "accept_risks ", "--fingerprint-secret-file", "fingerprint_secret_file", "--encryption-keys-file", "encryption_keys_file", "--accept-plaintext", "accept_plaintext")

func (s Stored) open(ctx caddy.Context) (*pooled, error) {
	u, err := storeurl.Parse(s.Store)
	if err != nil {
		return nil, err
	}
	cipher, err := storeurl.Encryption{KeysFile: s.EncryptionKeysFile, AcceptPlaintext: s.AcceptPlaintext}.Cipher()
	if err != nil {
		return nil, err
	}
	p := &pooled{name: strings.ToValidUTF8(u.String(), "?")}
	background := context.WithoutCancel(ctx) // the store outlives the configuration
	records, err := u.OpenOwnRecords(background, sqlstore.Config{AcceptRisks: s.AcceptRisks, Observer: p.observePurge}, s.NoMigrate)
	if err != nil {
		return nil, err
	}
	p.records, p.close = records, records.Close
	if p.secret, err = storeurl.FingerprintSecret(background, u, records, s.FingerprintSecretFile, s.AcceptRisks, ctx.Slogger()); err != nil {
		return nil, errors.Join(err, p.close())
	}
	if cipher != nil {
		p.records = cipher.Wrap(records)
	}
	return p, nil
}

func (s *pooled) observePurge(ctx context.Context, e onlyonce.Event) {
	if observe := s.purges.Load(); observe != nil {
		(*observe)(ctx, e)
	}
}

// observer returns an Observer that logs with Caddy's logger and counts in its metrics, those of the API.
// From now on, it also gets the purges of the store.
func observer(ctx caddy.Context, s *pooled) (*promonce.API, onlyonce.Observer, error) {
	m := promonce.New(promonce.Config{ErrorKind: storeurl.KindOf})
	var known prometheus.AlreadyRegisteredError
	if err := ctx.GetMetricsRegistry().Register(m); errors.As(err, &known) { // by another handler of the configuration
		m = known.ExistingCollector.(*promonce.Metrics)
	} else if err != nil {
		return nil, nil, err
	}
	store, logs := m.Store(s.name), onlyonce.SlogObserver(ctx.Slogger(), nil)
	store.Watch(s.records)
	purges := onlyonce.Tee(store.Purges(), logs)
	s.purges.Store(&purges)
	api := store.API(s.name)
	return api, onlyonce.Tee(api.Observe, logs), nil
}
