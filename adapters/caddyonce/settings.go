package caddyonce

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/internal/defaults"
	"github.com/onlyonce-go/onlyonce/internal/storeurl"
)

// hold is the value of Handler.Unknown that rejects repeats.
const hold = "hold"

// headerName matches the names that no server mistakes for another's.
var headerName = regexp.MustCompile(`^[A-Za-z0-9-]+$`)

// Validate returns an error that says how to mend a setting that is not valid.
func (h *Handler) Validate() error {
	_, err := parseStatuses(h.UnknownStatuses)
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
		if method != strings.ToUpper(method) || !httponce.CanProtect(method) {
			return fmt.Errorf("methods has %q: write methods that change something, in upper case, such as POST", method)
		}
	}
	for _, name := range append(slices.Clone(h.FingerprintHeaders), cmp.Or(h.Header, httponce.DefaultHeader)) {
		if !headerName.MatchString(name) {
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
	for name, value := range map[string]int64{
		"keep": int64(h.Keep), "wait": int64(h.Wait), "prefer_wait": int64(h.PreferWait), "max_body": h.MaxBody, "max_response": h.MaxResponse,
		"max_in_flight": int64(h.MaxInFlight), "max_new_keys": int64(h.MaxNewKeys),
	} {
		if value < 0 {
			return fmt.Errorf("%s is negative: write a positive value, or leave it out for the default", name)
		}
	}
	return nil
}

// statuses is a range of them.
type statuses struct{ from, to int }

var unknownByDefault = []string{"502", "504", "520-529"}

// parseStatuses parses statuses and ranges of them; none: the default.
func parseStatuses(list []string) (parsed []statuses, err error) {
	if len(list) == 0 {
		list = unknownByDefault
	}
	for _, text := range list {
		from, to, isRange := strings.Cut(text, "-")
		if !isRange {
			to = from
		}
		first, err1 := strconv.Atoi(from)
		last, err2 := strconv.Atoi(to)
		if err1 != nil || err2 != nil || first < http.StatusInternalServerError || last > 599 || first > last {
			return nil, fmt.Errorf("unknown_statuses has %q: write a status from 500 to 599, or a range such as 520-529", text)
		}
		parsed = append(parsed, statuses{first, last})
	}
	return parsed, nil
}

// isUnknown reports whether it is unknown, after a status, whether the command took effect.
func (h *Handler) isUnknown(status int) bool {
	return status == statusGone || slices.ContainsFunc(h.statuses, func(s statuses) bool { return s.from <= status && status <= s.to })
}
