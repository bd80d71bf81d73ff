package caddyonce

import (
	"math"
	"strconv"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/dustin/go-humanize"
)

func init() {
	httpcaddyfile.RegisterDirective("onlyonce", parseDirective)
	httpcaddyfile.RegisterDirectiveOrder("onlyonce", httpcaddyfile.Before, "invoke") // the first of those that may contain reverse_proxy
}

// parseDirective parses the directive with its matcher, after which the operation is named.
func parseDirective(h httpcaddyfile.Helper) ([]httpcaddyfile.ConfigValue, error) {
	if !h.Next() {
		return nil, h.ArgErr()
	}
	matcher := ""
	if h.NextArg() {
		matcher = h.Val()
		h.Prev()
	}
	set, err := h.ExtractMatcherSet()
	if err != nil {
		return nil, err
	}
	handler := new(Handler)
	if err := handler.UnmarshalCaddyfile(h.Dispenser); err != nil {
		return nil, err
	}
	if handler.Operation == "" && set != nil {
		handler.Operation = "{http.request.method} " + matcher
	}
	return h.NewRoute(set, handler), nil
}

// UnmarshalCaddyfile parses the directive:
//
//	onlyonce [<matcher>] [<store>] {
//		<setting> <value>…
//	}
//
// The settings are the fields of Handler, under their names in JSON. max_body and max_response may have a
// unit, such as 2MiB.
func (h *Handler) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	settings := map[string]any{
		"store": &h.Store, "no_migrate": &h.NoMigrate, "accept_risks": &h.AcceptRisks, "fingerprint_secret_file": &h.FingerprintSecretFile,
		"encryption_keys_file": &h.EncryptionKeysFile, "accept_plaintext": &h.AcceptPlaintext,
		"tenant": &h.Tenant, "single_tenant": &h.SingleTenant, "operation": &h.Operation, "methods": &h.Methods, "header": &h.Header, "required": &h.Required,
		"unknown": &h.Unknown, "unknown_statuses": &h.UnknownStatuses, "keep_errors": &h.KeepErrors,
		"lease": &h.Lease, "keep": &h.Keep, "wait": &h.Wait, "prefer_wait": &h.PreferWait,
		"fingerprint": &h.Fingerprint, "fingerprint_fields": &h.FingerprintFields, "fingerprint_headers": &h.FingerprintHeaders, "summary": &h.Summary,
		"max_body": &h.MaxBody, "max_response": &h.MaxResponse, "max_in_flight": &h.MaxInFlight, "max_new_keys": &h.MaxNewKeys, "docs_url": &h.DocsURL,
	}
	d.Next() // the directive
	if d.NextArg() {
		h.Store = d.Val()
		delete(settings, "store")
	}
	if d.NextArg() {
		return d.ArgErr()
	}
	for d.NextBlock(0) {
		name := d.Val()
		to, ok := settings[name]
		if !ok {
			return d.Errf("%s is not a setting of onlyonce, or is set twice: see docs/frameworks.md", name)
		}
		if delete(settings, name); !set(to, d.RemainingArgs()) {
			return d.Errf("onlyonce: %s has a wrong value: write %s", name, form(name, to))
		}
	}
	return nil
}

// set parses the values of a setting, and reports whether they are right.
func set(to any, args []string) bool {
	switch to := to.(type) {
	case *bool:
		*to = true
		return len(args) == 0
	case *[]string:
		*to = args
		return len(args) > 0
	}
	if len(args) != 1 {
		return false
	}
	var err error
	switch to := to.(type) {
	case *string:
		*to = args[0]
	case *int:
		*to, err = strconv.Atoi(args[0])
	case *int64:
		var size uint64
		size, err = humanize.ParseBytes(args[0])
		*to = int64(min(size, math.MaxInt64))
	case *caddy.Duration:
		var d time.Duration
		d, err = caddy.ParseDuration(args[0])
		*to = caddy.Duration(d)
	}
	return err == nil
}

// form says how to write a setting.
func form(name string, to any) string {
	switch to.(type) {
	case *bool:
		return name + " without a value"
	case *[]string:
		return name + " and one or more values"
	case *caddy.Duration:
		return name + " and a duration such as 30s"
	case *int64:
		return name + " and a size such as 2MiB"
	case *int:
		return name + " and a number"
	}
	return name + " and one value, in quotes if it has spaces"
}

var _ caddyfile.Unmarshaler = (*Handler)(nil)
