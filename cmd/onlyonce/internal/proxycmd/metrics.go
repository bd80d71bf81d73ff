package proxycmd

import (
	"context"
	"errors"
	"log/slog"
	"net/http"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/logging"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/metrics"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/rejection"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/server"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/prometheus/client_golang/prometheus"
)

// trafficMetrics count the traffic, beside the outcomes of keys. No path, key or
// tenant is in a label.
type trafficMetrics struct {
	keys        *metrics.API
	requests    [6]prometheus.Counter // by the first digit of the status
	active      prometheus.Gauge
	rejected    *prometheus.CounterVec
	upstream    *prometheus.CounterVec
	reloads     *prometheus.CounterVec
	storeFailed func() // is called when a call of the store failed; may be nil
	limits      *prometheus.CounterVec
	reached     map[string]*logging.Limit // limits the log messages about each limit
	log         *slog.Logger
	failures    logging.Limits // limits the log messages of report
}

func newTrafficMetrics(in *metrics.Set, log *slog.Logger) *trafficMetrics {
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "onlyonce_proxy_requests_total",
		Help: "Requests with and without a key, by the status class of the response.",
	}, []string{"code"})
	m := &trafficMetrics{
		keys: in.API("main", "proxy"),
		active: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "onlyonce_proxy_active_requests",
			Help: "Requests that are being handled now.",
		}),
		rejected: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "onlyonce_proxy_rejections_total",
			Help: "Requests that the proxy rejected itself, by the code of the problem.",
		}, []string{"code"}),
		upstream: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "onlyonce_proxy_upstream_errors_total",
			Help: "Requests that got no response from the upstream: it was unreachable, and nothing was sent; the connection broke; or it took too long (timeout).",
		}, []string{"upstream", "kind"}),
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "onlyonce_proxy_reloads_total",
			Help: "Readings of the settings and certificates after the start, by whether they took effect (ok) or not (failed).",
		}, []string{"result"}),
		limits: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "onlyonce_proxy_limit_rejections_total",
			Help: "Requests that the proxy rejected because a limit was reached, by the limit.",
		}, []string{"limit"}),
		reached: make(map[string]*logging.Limit),
		log:     log,
	}
	for limit := range settingsOfLimits {
		m.limits.WithLabelValues(limit)
		m.reached[limit] = new(logging.Limit)
	}
	for i, class := range []string{"", "1xx", "2xx", "3xx", "4xx", "5xx"} {
		if class != "" {
			m.requests[i] = requests.WithLabelValues(class)
		}
	}
	for _, result := range []string{"ok", "failed"} {
		m.reloads.WithLabelValues(result)
	}
	in.Registry.MustRegister(requests, m.active, m.rejected, m.limits, m.upstream, m.reloads)
	return m
}

// count returns h with its requests counted.
func (m *trafficMetrics) count(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.active.Inc()
		c := server.StatusWriter{ResponseWriter: w}
		passing := &passage{}
		defer func() {
			m.active.Dec()
			if passing.keyed {
				m.keys.Active.Add(-1)
			}
			if class := c.Status / 100; class > 0 && class < len(m.requests) {
				m.requests[class].Inc()
			}
		}()
		h.ServeHTTP(&c, r.WithContext(context.WithValue(logging.WithRequest(r.Context(), r), passageKey{}, passing)))
	})
}

// A passage is a request on its way through the proxy, in its context.
type passage struct{ keyed bool }

type passageKey struct{}

// countKeyed returns tenant, and counts each request for which it is called, until the
// request has its response. It is called once for each request with a key that is
// about to be protected.
func (m *trafficMetrics) countKeyed(tenant func(*http.Request) string) func(*http.Request) string {
	return func(r *http.Request) string {
		if p, ok := r.Context().Value(passageKey{}).(*passage); ok && !p.keyed {
			p.keyed = true
			m.keys.Active.Add(1)
		}
		return tenant(r)
	}
}

// rejections counts problems that w writes for requests to an upstream.
func (m *trafficMetrics) rejections(upstream string, write rejection.Writer) rejection.Writer {
	return func(w http.ResponseWriter, r *http.Request, p httponce.Problem) {
		m.rejected.WithLabelValues(p.Code).Inc()
		m.limit(r, p.Limit)
		switch {
		case p.Code == httponce.CodeStoreUnavailable && m.storeFailed != nil:
			m.storeFailed()
		case p.Code == "upstream_unreachable":
			m.upstream.WithLabelValues(upstream, "unreachable").Inc()
		case p.Code == "upstream_failed" && p.Status == http.StatusGatewayTimeout:
			m.upstream.WithLabelValues(upstream, "timeout").Inc()
		case p.Code == "upstream_failed":
			m.upstream.WithLabelValues(upstream, "broken").Inc()
		}
		write(w, r, p)
	}
}

// settingsOfLimits are the settings of the limits of httponce.
var settingsOfLimits = map[string]string{
	httponce.LimitInFlight:     "limits.in_flight",
	httponce.LimitNewKeys:      "limits.new_keys",
	httponce.LimitTenantStored: "limits.tenant_stored",
	httponce.LimitStored:       "store.limit",
	httponce.LimitTenantMemory: "limits.tenant_memory",
	httponce.LimitMemory:       "server.memory",
}

// limit counts a request that was rejected because a limit was reached, and warns of each
// limit once in ten seconds.
func (m *trafficMetrics) limit(r *http.Request, limit string) {
	allowed, ok := m.reached[limit]
	if !ok {
		return
	}
	m.limits.WithLabelValues(limit).Inc()
	if allowed.Allow() {
		m.log.WarnContext(r.Context(), "a limit is reached: requests are rejected", "setting", settingsOfLimits[limit], "route", r.Pattern)
	}
}

// report logs why a request was rejected or its response broke off, with the record of
// its command. Paths and headers come from callers, and are not logged, except the ids of
// logging.WithRequest.
func (m *trafficMetrics) report(r *http.Request, err error) {
	cause := err.Error()
	var named interface{ Cause() string }
	if errors.As(err, &named) {
		cause = named.Cause()
	}
	left, ok := m.failures.Allow(r.Pattern, cause)
	if !ok {
		return
	}
	log := m.log
	if left > 0 {
		log = log.With("not_logged", left)
	}
	if a := onlyonce.Current(r.Context()); a != nil {
		log = log.With("record_id", logging.RecordID(a.Record().ID))
	}
	log.WarnContext(r.Context(), "request failed", "method", r.Method, "route", r.Pattern, "error", err)
}

// limitUnavailable keeps the requests that come while the store can't be reached from
// filling the log: server.StoreWatch tells once that it is lost, and why.
func (m *trafficMetrics) limitUnavailable(log onlyonce.Observer) onlyonce.Observer {
	return func(ctx context.Context, e onlyonce.Event) {
		if e.Outcome == onlyonce.OutcomeUnavailable && e.Err != nil {
			if _, ok := m.failures.Allow(e.Record.ID.Operation, e.Err.Error()); !ok {
				return
			}
		}
		log(ctx, e)
	}
}
