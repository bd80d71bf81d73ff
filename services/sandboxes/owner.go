package sandboxes

import (
	"net/http"
	"strings"
)

// anonymous is the owner of what a caller makes who has no token and no name.
const anonymous = "anonymous"

// owner returns who calls. A token that is there must be right, also where
// anonymous callers are allowed.
func (a *API) owner(h http.Header) (string, error) {
	if given := h.Values("Authorization"); len(given) > 0 {
		return a.bearer(given)
	}
	if !a.cfg.AllowAnonymous {
		return "", errUnauthorized()
	}
	names := h.Values("X-Owner")
	if len(names) == 0 {
		names = []string{anonymous}
	}
	switch {
	case len(names) > 1 || !ownerName.MatchString(names[0]):
		return "", errInvalid("X-Owner", "must be one name of 1 to 128 characters out of a-z A-Z 0-9 . _ @ -")
	case a.cfg.Tokens.has(names[0]):
		return "", errUnauthorized()
	}
	return names[0], nil
}

func (a *API) bearer(given []string) (string, error) {
	scheme, secret, _ := strings.Cut(given[0], " ")
	owner, ok := a.cfg.Tokens.Owner(strings.TrimSpace(secret))
	if len(given) > 1 || !strings.EqualFold(scheme, "Bearer") || !ok {
		return "", errUnauthorized()
	}
	return owner, nil
}
