package items

import (
	"context"
	"database/sql"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/onlyonce-go/onlyonce/services/internal/jsonbody"
)

// An item is an item of the catalog.
type item struct {
	ID        int64     `json:"id"`
	SKU       string    `json:"sku"`
	Title     string    `json:"title"`
	Status    string    `json:"status"`
	Brand     *string   `json:"brand"`
	Category  *string   `json:"category"`
	CreatedAt time.Time `json:"created_at"`
}

// The limits of texts, in characters.
const (
	maxSKU   = 64
	maxTitle = 200
)

// parseItem parses the item that a client wants to create. The error is a
// *jsonbody.FieldError.
func parseItem(body []byte) (i item, err error) {
	o, err := jsonbody.Parse(body, "sku", "title", "status", "brand", "category")
	if err != nil {
		return i, err
	}
	if i.SKU, err = requiredText(o, "sku", maxSKU); err != nil {
		return i, err
	}
	if i.Title, err = requiredText(o, "title", maxTitle); err != nil {
		return i, err
	}
	if i.Status, err = parseStatus(o); err != nil {
		return i, err
	}
	if i.Brand, err = optionalText(o, "brand"); err != nil {
		return i, err
	}
	i.Category, err = optionalText(o, "category")
	return i, err
}

func requiredText(o jsonbody.Object, name string, most int) (string, error) {
	text, err := o.Text(name, most)
	if err != nil {
		return "", err
	}
	return text, readable(name, text)
}

func optionalText(o jsonbody.Object, name string) (*string, error) {
	text, err := o.String(name)
	if err != nil || text == nil {
		return nil, err
	}
	return text, readable(name, *text)
}

// readable rejects blank text, and text with characters that a terminal or another
// program could interpret.
func readable(name, text string) error {
	switch {
	case strings.ContainsFunc(text, unicode.IsControl):
		return &jsonbody.FieldError{Field: name, Detail: "must not contain control characters"}
	case !strings.ContainsFunc(text, func(r rune) bool { return unicode.IsGraphic(r) && !unicode.IsSpace(r) }):
		return &jsonbody.FieldError{Field: name, Detail: "must not be blank"}
	}
	return nil
}

func parseStatus(o jsonbody.Object) (string, error) {
	s, err := o.String("status")
	if err != nil {
		return "", err
	}
	if s == nil || !slices.Contains([]string{"active", "inactive", "draft"}, *s) {
		return "", &jsonbody.FieldError{Field: "status", Detail: "must be active, inactive or draft"}
	}
	return *s, nil
}

const columns = `id, sku, title, status, brand, category, created_at`

const insertSQL = `INSERT INTO items_items (sku, title, status, brand, category, created_at)
VALUES (?, ?, ?, ?, ?, unixepoch()) RETURNING ` + columns

// insert adds an item, which gets its id and its created_at.
func insert(ctx context.Context, tx *sql.Tx, i item) (item, error) {
	return scan(tx.QueryRowContext(ctx, insertSQL, i.SKU, i.Title, i.Status, i.Brand, i.Category))
}

func scan(row interface{ Scan(...any) error }) (i item, err error) {
	var created int64
	err = row.Scan(&i.ID, &i.SKU, &i.Title, &i.Status, &i.Brand, &i.Category, &created)
	i.CreatedAt = time.Unix(created, 0).UTC()
	return i, err
}
