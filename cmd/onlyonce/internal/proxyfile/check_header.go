package proxyfile

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/onlyonce-go/onlyonce/internal/httpfield"
)

// notOurs are headers that belong to one connection, or that the proxy sets.
var notOurs = []string{
	"connection", "proxy-connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "content-length", "host",
	"forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", strings.ToLower(httpfield.Attempt), strings.ToLower(httpfield.Fence),
}

func checkHeaders(s *Settings, wrong complaint) {
	checkChange(&s.Headers.Request, "headers.request", wrong)
	checkChange(&s.Headers.Response, "headers.response", wrong)
	if slices.ContainsFunc(s.Headers.Request.Drop, func(name string) bool { return strings.EqualFold(name, s.Key.Header) }) {
		wrong("headers.request.drop", fmt.Sprintf("%s is the header of the key, which the upstream gets: leave it out", s.Key.Header))
	}
	for name := range s.Headers.Request.Add {
		if strings.EqualFold(name, s.Key.Header) {
			wrong("headers.request.add", fmt.Sprintf("%s is the header of the key, which is different for each request: leave it out", name))
		}
	}
}

func checkChange(h *HeaderChange, at string, wrong complaint) {
	for _, name := range slices.Sorted(maps.Keys(h.Add)) {
		if text := headerName(name); text != "" {
			wrong(at+".add", text)
		}
		if !httpfield.IsText(h.Add[name]) {
			wrong(at+".add", fmt.Sprintf("the value of %q contains a control character: leave it out", name))
		}
		if slices.ContainsFunc(h.Drop, func(d string) bool { return strings.EqualFold(d, name) }) {
			wrong(at+".drop", fmt.Sprintf("%s is also in add, which replaces it: leave it out here", name), at+".drop", at+".add")
		}
	}
	for i, name := range h.Drop {
		if text := headerName(name); text != "" {
			place := fmt.Sprintf("%s.drop[%d]", at, i)
			wrong(place, text, place, at+".drop")
		}
	}
}

// severalSpellings returns the mistake of a header name that servers also accept in another
// spelling, or "".
func severalSpellings(name string) string {
	if httpfield.IsUnambiguous(name) {
		return ""
	}
	return fmt.Sprintf("%q is one of several spellings that some servers take for the same header, of which the proxy would read this one: write letters, digits and - only", name)
}

// headerName returns the mistake in the name of a header, or "".
func headerName(name string) string {
	switch {
	case !httpfield.IsToken(name):
		return fmt.Sprintf("%q is not a header name: write one such as X-Tenant-ID", name)
	case slices.Contains(notOurs, strings.ToLower(name)):
		return fmt.Sprintf("%s is the proxy's own, or of one connection only: name another header", name)
	}
	return ""
}
