package caddyonce

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/internal/defaults"
	"github.com/onlyonce-go/onlyonce/internal/httpfield"
	"github.com/onlyonce-go/onlyonce/internal/statuses"
	"github.com/onlyonce-go/onlyonce/internal/storeurl"
)

// hold is the value of Handler.Unknown that rejects repeats.
const hold = "hold"

// Validate returns an error that says how to mend a setting that is not valid.
func (h *Handler) Validate() (err error) {
	h.statuses, err = h.parseStatuses()
	return cmp.Or(h.checkTenant(), h.checkRequests(), err, h.checkLimits())
}

func (h *Handler) checkTenant() error {
	switch {
	case h.Store == "":
		return fmt.Errorf("store is missing: write %s", storeurl.Forms)
	case h.Tenant != "" && h.SingleTenant:
		return errors.New("tenant and single_tenant are both set: leave one out")
	case h.Tenant == "" && !h.SingleTenant:
		return errors.New("nothing identifies the tenant: write tenant with a placeholder that was verified before this handler, such as {http.auth.user.id}, or single_tenant if all callers are one tenant")
	case h.Tenant != "" && !strings.Contains(h.Tenant, "{"):
		return fmt.Errorf("tenant %q has no placeholder: write one, such as {http.auth.user.id}, or single_tenant if all callers are one tenant", h.Tenant)
	}
	return nil
}

func (h *Handler) checkRequests() error {
	for _, method := range h.Methods {
		if !httponce.CanProtect(method) {
			return fmt.Errorf("methods has %q: write methods that change something, in upper case, such as POST", method)
		}
	}
	for _, name := range append(slices.Clone(h.FingerprintHeaders), cmp.Or(h.Header, httponce.DefaultHeader)) {
		if !httpfield.IsUnambiguous(name) {
			return fmt.Errorf("%q is not the name of a header: write letters, digits and -", name)
		}
	}
	switch {
	case !slices.Contains([]string{"", "rerun", hold}, h.Unknown):
		return fmt.Errorf("unknown: %q is not known: write rerun or hold", h.Unknown)
	case !slices.Contains([]string{"", "bytes", "json", "none"}, h.Fingerprint):
		return fmt.Errorf("fingerprint: %q is not known: write bytes, json or none", h.Fingerprint)
	case len(h.FingerprintFields) > 0 && h.Fingerprint != "json":
		return errors.New("fingerprint_fields needs fingerprint json: write that, too, or leave the fields out")
	}
	if _, err := onlyonce.FingerprintJSON([]byte("{}"), h.FingerprintFields...); err != nil {
		return fmt.Errorf("fingerprint_fields: %w", err)
	}
	return nil
}

func (h *Handler) checkLimits() error {
	if h.Lease != 0 && int64(h.Lease) < int64(defaults.ShortestLease) {
		return fmt.Errorf("lease is too short: write at least %v, or leave it out for 30s", defaults.ShortestLease)
	}
	for name, setting := range h.settings() {
		if v := reflect.ValueOf(setting).Elem(); v.CanInt() && v.Int() < 0 {
			return fmt.Errorf("%s is negative: write a positive value, or leave it out for the default", name)
		}
	}
	if remember, keep := time.Duration(h.Remember), cmp.Or(time.Duration(h.Keep), onlyonce.DefaultKeep); defaults.RememberTooShort(remember, keep) {
		return fmt.Errorf("remember is %v, which is shorter than keep, %v: raise it, or leave it out for the same time as keep", remember, keep)
	}
	return nil
}

// parseStatuses parses the UnknownStatuses; nil: the default.
func (h *Handler) parseStatuses() (set statuses.Set, err error) {
	for _, text := range h.UnknownStatuses {
		r, err := statuses.Parse(text)
		if err != nil || r.From < http.StatusInternalServerError {
			return nil, fmt.Errorf("unknown_statuses has %q: write a status from 500 to 599, or a range such as 520-529", text)
		}
		set = append(set, r)
	}
	return set, nil
}
