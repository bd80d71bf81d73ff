package proxycmd

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"strings"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cli"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/metrics"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/proxyfile"
	"github.com/onlyonce-go/onlyonce/console"
	"github.com/onlyonce-go/onlyonce/internal/storeurl"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
)

// A recordStore is where a proxy keeps its records.
type recordStore struct {
	onlyonce.Store
	shown   string // its URL, without a password
	secret  []byte // keys the fingerprints in it; nil: nothing does
	forgets bool   // with the process
	close   func() error
}

// inMemory is the URL of a store that is lost when the process ends.
const inMemory = "memory://"

// openStore opens a store, whose records it encrypts if there are keys. One in a SQL database is
// made or brought up to date first, unless the settings forbid it.
func openStore(ctx context.Context, f *proxyfile.File, m *metrics.Set, meter *console.Meter, log *slog.Logger) (*recordStore, error) {
	cipher, err := encryption(f).Cipher()
	if err != nil {
		return nil, err
	}
	s, err := openPlain(ctx, f, m, meter, log)
	if err == nil && cipher != nil {
		s.Store = cipher.Wrap(s.Store)
	}
	return s, err
}

func encryption(f *proxyfile.File) storeurl.Encryption {
	return storeurl.Encryption{KeysFile: f.Store.EncryptionKeysFile, AcceptPlaintext: f.Store.AcceptPlaintext}
}

func openPlain(ctx context.Context, f *proxyfile.File, m *metrics.Set, meter *console.Meter, log *slog.Logger) (*recordStore, error) {
	raw, err := storeURLOf(f)
	if err != nil {
		return nil, err
	}
	if raw == inMemory {
		s := &recordStore{Store: memstore.New(memstore.Config{}), shown: raw, secret: []byte(rand.Text()), forgets: true, close: func() error { return nil }}
		if path := f.Store.FingerprintSecretFile; path != "" {
			s.secret, err = storeurl.ReadSecret(path, f.AcceptRisks)
		}
		return s, err
	}
	if strings.HasPrefix(raw, "memory:") {
		return nil, cli.Usagef("the URL of a store in memory has no parameters: write %s", inMemory)
	}
	u, err := storeurl.Parse(raw)
	if err != nil {
		return nil, err
	}
	cfg := sqlstore.Config{AcceptRisks: f.AcceptRisks, PurgeEvery: f.Store.PurgeEvery}
	if u.RecordsOnly() == "" { // the others delete expired records by themselves
		cfg.Observer = onlyonce.Tee(m.Purges("main", log), meter.Observe)
	}
	records, err := u.OpenOwnRecords(ctx, cfg, f.Store.NoMigrate)
	if err != nil {
		return nil, err
	}
	store := &recordStore{Store: records, shown: u.String(), close: records.Close}
	if store.secret, err = storeurl.FingerprintSecret(ctx, u, records, f.Store.FingerprintSecretFile, f.AcceptRisks, log); err != nil {
		return nil, errors.Join(err, store.close())
	}
	return store, nil
}

// storeURLOf returns the store's URL, from the settings or the file they name.
func storeURLOf(f *proxyfile.File) (string, error) {
	if f.Store.URLFile == "" {
		return f.Store.URL, nil
	}
	return storeurl.ReadFile(f.Store.URLFile, f.AcceptRisks)
}
