package orders

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/services/internal/jsonbody"
)

// The limits of an order.
const (
	maxItems    = 100
	maxQuantity = 1_000_000
	maxProduct  = 64  // characters
	maxRef      = 255 // characters
)

// An item is a quantity of one product.
type item struct {
	ProductID string `json:"product_id"`
	Quantity  int64  `json:"quantity"`
	UnitPrice string `json:"unit_price"`
}

// itemMembers are the members of an item.
var itemMembers = []string{"product_id", "quantity", "unit_price"}

// freePrice is the unit_price of an item that has none.
const freePrice = "0.00"

// A draft is the order that a client requests: everything that determines the result
// of the command.
type draft struct {
	Items       []item  `json:"items"`
	ExternalRef *string `json:"external_ref"`

	total amount
}

// parseDraft parses the body of a create, in its long form, with items, or in the short
// form of an order of one item. Both forms of one order are the same draft. Unknown
// members are ignored. The error is a *jsonbody.FieldError.
func parseDraft(body []byte) (d draft, err error) {
	o, err := jsonbody.ParseOpen(body)
	if err != nil {
		return d, err
	}
	list, err := itemsOf(o, body)
	if err != nil {
		return d, err
	}
	for n, doc := range list {
		if err := d.add(doc); err != nil {
			if o.Has("items") {
				err = within(fmt.Sprintf("items[%d]", n), err)
			}
			return d, err
		}
	}
	if o.Has("external_ref") {
		text, err := plain(o, "external_ref", maxRef)
		d.ExternalRef = &text
		return d, err
	}
	return d, nil
}

// itemsOf returns the items of an order: those that it lists or, in the short form, the
// body itself.
func itemsOf(o jsonbody.Object, body []byte) ([]json.RawMessage, error) {
	short := slices.IndexFunc(itemMembers, o.Has)
	switch {
	case short < 0 && !o.Has("items"):
		return nil, &jsonbody.FieldError{Field: "items", Detail: "is required, or product_id and quantity for an order of one item"}
	case short < 0:
		return o.Array("items", maxItems)
	case o.Has("items"):
		return nil, &jsonbody.FieldError{Field: itemMembers[short], Detail: "cannot be combined with items: an order has either items, or product_id and quantity"}
	}
	return []json.RawMessage{body}, nil
}

func (d *draft) add(doc []byte) error {
	o, err := jsonbody.ParseOpen(doc)
	if err != nil {
		return &jsonbody.FieldError{Detail: "must be a JSON object"}
	}
	var i item
	if i.ProductID, err = plain(o, "product_id", maxProduct); err != nil {
		return err
	}
	if i.Quantity, err = quantity(o); err != nil {
		return err
	}
	var price amount
	if i.UnitPrice, price, err = unitPrice(o); err != nil {
		return err
	}
	d.Items, d.total = append(d.Items, i), d.total.plus(i.Quantity, price)
	return nil
}

func quantity(o jsonbody.Object) (int64, error) {
	n, err := o.Integer("quantity")
	if err != nil || n == nil || *n < 1 || *n > maxQuantity {
		return 0, &jsonbody.FieldError{Field: "quantity", Detail: fmt.Sprintf("must be an integer from 1 to %d", maxQuantity)}
	}
	return *n, nil
}

func unitPrice(o jsonbody.Object) (text string, price amount, err error) {
	given, err := o.String("unit_price")
	switch {
	case given != nil:
		text = *given
	case err == nil:
		text = freePrice
	}
	if price, err = parseAmount(text); err != nil {
		err = &jsonbody.FieldError{Field: "unit_price", Detail: err.Error()}
	}
	return text, price, err
}

// plain returns a text that every database can store and every terminal shows
// unchanged.
func plain(o jsonbody.Object, name string, most int) (string, error) {
	text, err := o.Text(name, most)
	if err == nil && strings.ContainsFunc(text, unicode.IsControl) {
		err = &jsonbody.FieldError{Field: name, Detail: "must not contain control characters"}
	}
	return text, err
}

// within adds to the error of a field the element of the body in which it is.
func within(element string, err error) error {
	invalid, ok := err.(*jsonbody.FieldError) // add returns no other
	switch {
	case !ok:
		return err
	case invalid.Field == "":
		return &jsonbody.FieldError{Field: element, Detail: invalid.Detail}
	}
	return &jsonbody.FieldError{Field: element + "." + invalid.Field, Detail: invalid.Detail}
}

// fingerprint returns the request hash: the SHA-256 of the canonical JSON of the draft.
// The formatting of the request makes no difference.
func (d draft) fingerprint() ([]byte, error) {
	doc, err := json.Marshal(d)
	if err != nil {
		return nil, fmt.Errorf("hash the request: %w", err)
	}
	return onlyonce.FingerprintJSON(doc, "/items", "/external_ref")
}
