package items

import (
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/services/internal/jsonbody"
)

// maxBody is far above the size of a valid body.
const maxBody = 64 << 10

// protected returns create wrapped in the middleware.
func (a *API) protected() http.Handler {
	return rejectEncoded(httponce.WrapTx(a.guard, a.create, httponce.Config{
		Tenant:      a.cfg.Tenant,
		KeyFormat:   httponce.KeyFormat{Syntax: httponce.TokenOnly},
		Fingerprint: bodyHash,

		FingerprintSecret: a.cfg.FingerprintSecret,

		MaxBody:        maxBody,
		MismatchStatus: http.StatusConflict,
		StoreStatus:    func(status int) bool { return status == http.StatusCreated },
		Problem:        a.render,
	}))
}

func bodyHash(_ *http.Request, body []byte) []byte {
	sum := sha256.Sum256(body)
	return sum[:]
}

// rejectEncoded rejects requests with a content coding, which this API does not support.
func rejectEncoded(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if jsonbody.RejectEncoded(w, r) != nil {
			write(w, http.StatusUnsupportedMediaType, bodyEncoded)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// create adds an item. If it returns an error, its rows are rolled back.
func (a *API) create(w http.ResponseWriter, r *http.Request, tx *sql.Tx) error {
	body, err := jsonbody.Read(w, r, maxBody)
	var i item
	if err == nil {
		i, err = parseItem(body)
	}
	var field *jsonbody.FieldError
	switch {
	case errors.As(err, &field):
		write(w, http.StatusBadRequest, invalid(field.Error()))
		return nil
	case err != nil:
		return err
	}
	if i, err = insert(r.Context(), tx, i); err != nil {
		return fmt.Errorf("add an item: %w", err)
	}
	if attempt := onlyonce.Current(r.Context()); attempt != nil {
		attempt.SetRef(strconv.FormatInt(i.ID, 10))
	}
	write(w, http.StatusCreated, i)
	return nil
}
