package proxycmd

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"reflect"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/proxyfile"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/rejection"
	"github.com/onlyonce-go/onlyonce/proxy"
)

// A reloadableProxy is a proxy whose settings can change while it serves.
type reloadableProxy struct {
	proxy  *proxy.Proxy
	reject atomic.Pointer[rejection.Writer]
	secure atomic.Pointer[security] // nil: plain HTTP, from the start on
	routes *routeBuilder
	read   func() (*proxyfile.File, error)
	log    *slog.Logger

	// The fields below are used only by the goroutine that reloads.
	file    *proxyfile.File
	tenants tenantResolver
	files   [sha256.Size]byte // hash of the files for TLS when they were last loaded
	seen    [sha256.Size]byte // their hash at the last check
	roots   [sha256.Size]byte // hash of tenant.jwt.ca when the tenants were read
	retryAt time.Time         // when to read the files again, because the public keys could not be read; zero: no retry is due
}

// newReloadableProxy puts the first settings in place.
func newReloadableProxy(ctx context.Context, f *proxyfile.File, b *routeBuilder, read func() (*proxyfile.File, error), log *slog.Logger) (*reloadableProxy, error) {
	p := &reloadableProxy{routes: b, read: read, log: log}
	return p, p.apply(ctx, f)
}

func (p *reloadableProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !p.secure.Load().admits(r) {
		w.Header().Set("Connection", "close")
		(*p.reject.Load())(w, r, otherConnection)
		return
	}
	p.proxy.ServeHTTP(w, r)
}

// apply puts all settings in place, or returns an error and changes nothing. Requests
// that are in progress finish with the old settings.
func (p *reloadableProxy) apply(ctx context.Context, f *proxyfile.File) error {
	files := digest(tlsFiles(f)...)
	p.files, p.retryAt = files, time.Time{} // whether they are right or not: only another change is worth another try
	secure := p.secure.Load()
	if !secure.isUnchanged(f.TLS) {
		var err error
		if secure, err = newSecurity(f.TLS, f.AcceptRisks); err != nil {
			return f.Mistake("tls", err.Error(), "tls.cert")
		}
	}
	var err error
	tenants, roots := p.tenants, digest(f.Tenant.JWT.CA)
	if !p.sameTenants(f) || roots != p.roots {
		if tenants, err = newTenantResolver(ctx, f, p.log); err != nil {
			p.retryAt = time.Now().Add(tryAgain) // the server of public keys may be back by then
			return err
		}
	}
	routes, reuse, err := p.routes.build(f, tenants)
	if err != nil {
		if tenants.stop != nil && tenants.keys != p.tenants.keys {
			tenants.stop()
		}
		return err
	}
	cfg := p.routes.config(f)
	if p.proxy == nil {
		p.proxy = proxy.New(routes, cfg)
	} else {
		p.proxy.Reload(routes, cfg)
	}
	p.routes.upstreams = reuse.upstreams
	p.routes.guards.Store(&reuse.guards)
	p.routes.operations.Store(operationsOf(f))
	reject := rejection.Writer(cfg.Problem)
	p.reject.Store(&reject)
	if p.file == nil || p.secure.Load() != nil && secure != nil {
		p.secure.Store(secure)
	}
	if p.tenants.stop != nil && tenants.keys != p.tenants.keys {
		p.tenants.stop()
	}
	p.file, p.tenants, p.roots = f, tenants, roots
	return nil
}

// sameTenants reports whether f identifies tenants as the current settings do.
func (p *reloadableProxy) sameTenants(f *proxyfile.File) bool {
	return p.file != nil && reflect.DeepEqual(f.Tenant, p.file.Tenant) && reflect.DeepEqual(f.Forwarded, p.file.Forwarded) && (f.TLS.ClientCA != "") == (p.file.TLS.ClientCA != "")
}

// tlsConfig is for the listener; nil: plain HTTP.
func (p *reloadableProxy) tlsConfig() *tls.Config {
	if p.secure.Load() == nil {
		return nil
	}
	return listening(p.secure.Load)
}

const (
	// lookEvery is how often the TLS files are checked for changes.
	lookEvery = 2 * time.Second
	// tryAgain is when they are tried again if the public keys could not be read.
	tryAgain = time.Minute
)

// run reloads on SIGHUP, and when a file for TLS changes, until ctx ends.
func (p *reloadableProxy) run(hangups <-chan os.Signal) func(context.Context) error {
	return func(ctx context.Context) error {
		look := time.NewTicker(lookEvery)
		defer look.Stop()
		for {
			select {
			case <-ctx.Done():
				p.proxy.Close()
				return nil
			case <-hangups:
				p.reload(ctx)
			case <-look.C:
				p.look(ctx)
			}
		}
	}
}

// look puts the files for TLS in place if they have changed, and have not changed since
// the last look: they could still be being written, and end between two certificates.
func (p *reloadableProxy) look(ctx context.Context) {
	files := digest(tlsFiles(p.file)...)
	isWritten := files == p.seen
	p.seen = files
	if files != p.files && isWritten || !p.retryAt.IsZero() && !time.Now().Before(p.retryAt) {
		p.done(p.apply(ctx, p.file), "the files for TLS have changed and are in place")
	}
}

// hangups delivers SIGHUP. From now on, the signal does not end the process.
func hangups() <-chan os.Signal {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGHUP)
	return c
}

// reload reads the settings again. Invalid settings change nothing.
func (p *reloadableProxy) reload(ctx context.Context) {
	before := p.file
	f, err := p.read()
	var needRestart []string // settings that changed and need a restart
	if err == nil {
		f, needRestart, err = keepUntilRestart(before, f)
	}
	if err == nil {
		tried, again := p.files, p.retryAt
		if err = p.apply(ctx, f); err != nil {
			p.files, p.retryAt = tried, again // they may be right with the settings that stay
		}
	}
	if err == nil && p.tenants.keys != nil {
		if err := p.tenants.keys.Refresh(ctx); err != nil {
			p.log.Error("the public keys could not be reloaded: the known ones stay in effect", "error", err)
		}
	}
	p.done(err, "the settings were read again and are in place")
	if err != nil {
		return
	}
	if len(needRestart) > 0 {
		p.log.Warn("some changed settings take effect only after a restart", "settings", needRestart)
	}
	if lost := lostOperations(before, f); len(lost) > 0 {
		p.log.Warn("some operations no longer have a route: a repeat of a command that is recorded under one of them runs again; to keep an operation, name it in its route", "operations", lost)
	}
	if tenantSetting(before) != tenantSetting(f) {
		p.log.Warn("tenants are identified in another way: a repeat of a command that is recorded under another tenant runs again")
	}
}

// done logs and counts how a reload ended.
func (p *reloadableProxy) done(err error, well string) {
	if err == nil {
		p.routes.metrics.reloads.WithLabelValues("ok").Inc()
		p.log.Info(well)
		return
	}
	p.routes.metrics.reloads.WithLabelValues("failed").Inc()
	var all proxyfile.Mistakes
	if !errors.As(err, &all) {
		p.log.Error("the new settings were rejected: the old ones stay in effect", "error", err)
		return
	}
	for _, m := range all {
		p.log.Error("the new settings were rejected: the old ones stay in effect", "error", m.Error())
	}
}

// keepUntilRestart returns next with those settings of running that stay in place until the
// proxy restarts, and the names of the settings that differ. The next reload names them
// again. The TLS settings of next are checked, although they do not take effect.
func keepUntilRestart(running, next *proxyfile.File) (f *proxyfile.File, names []string, err error) {
	f, names = next.KeepUntilRestart(running)
	if f.TLS != next.TLS {
		if _, err := newSecurity(next.TLS, next.AcceptRisks); err != nil {
			return nil, nil, next.Mistake("tls", err.Error(), "tls.cert")
		}
	}
	return f, names, nil
}

// lostOperations returns the operations that a names and b does not.
func lostOperations(a, b *proxyfile.File) (dropped []string) {
	kept := *operationsOf(b)
	for operation := range *operationsOf(a) {
		if !kept[operation] {
			dropped = append(dropped, operation)
		}
	}
	slices.Sort(dropped)
	return dropped
}

// tenantSetting names the setting by which tenants are identified.
func tenantSetting(f *proxyfile.File) string {
	t := &f.Tenant
	return fmt.Sprintf("%q %q %t %t", http.CanonicalHeaderKey(t.Header), t.JWT.Claim, t.Authorization, t.Single)
}
