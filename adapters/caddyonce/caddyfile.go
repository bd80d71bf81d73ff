package caddyonce

import (
	"math"
	"reflect"
	"strconv"
	"strings"
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
	settings := h.settings()
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
		delete(settings, name)
		if form, ok := set(to, d.RemainingArgs()); !ok {
			return d.Errf("onlyonce: %s has a wrong value: write %s %s", name, name, form)
		}
	}
	return nil
}

// settings returns pointers to the fields of the handler that are settings, by their names.
func (h *Handler) settings() map[string]any {
	all, v := make(map[string]any), reflect.ValueOf(h).Elem()
	for _, field := range reflect.VisibleFields(v.Type()) {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "" {
			all[name] = v.FieldByIndex(field.Index).Addr().Interface()
		}
	}
	return all
}

// set sets a setting to the arguments that follow its name. It returns how to write them, and
// whether they are right.
func set(to any, args []string) (form string, ok bool) {
	var arg string
	var err error
	one := len(args) == 1
	if one {
		arg = args[0]
	}
	switch to := to.(type) {
	case *bool:
		*to = true
		return "without a value", len(args) == 0
	case *[]string:
		*to = args
		return "and one or more values", len(args) > 0
	case *string:
		*to, form = arg, "and one value, in quotes if it has spaces"
	case *int:
		*to, err = strconv.Atoi(arg)
		form = "and a number"
	case *int64:
		var size uint64
		size, err = humanize.ParseBytes(arg)
		*to, form = int64(min(size, math.MaxInt64)), "and a size such as 2MiB"
	case *caddy.Duration:
		var d time.Duration
		d, err = caddy.ParseDuration(arg)
		*to, form = caddy.Duration(d), "and a duration such as 30s"
	}
	return form, one && err == nil
}

var _ caddyfile.Unmarshaler = (*Handler)(nil)
