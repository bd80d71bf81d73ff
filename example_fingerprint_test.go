package onlyonce_test

import (
	"bytes"
	"fmt"

	"github.com/onlyonce-go/onlyonce"
)

func ExampleFingerprintJSON() {
	first := []byte(`{"amount": 12.50, "currency": "EUR", "sent_at": "12:00:00"}`)
	repeat := []byte(`{"currency":"\u0045UR","amount":125e-1,"sent_at":"12:00:07"}`)
	other := []byte(`{"amount": 12.51, "currency": "EUR", "sent_at": "12:00:00"}`)

	same := func(a, b []byte, fields ...string) bool {
		x, err := onlyonce.FingerprintJSON(a, fields...)
		if err != nil {
			fmt.Println(err)
		}
		y, err := onlyonce.FingerprintJSON(b, fields...)
		if err != nil {
			fmt.Println(err)
		}
		return bytes.Equal(x, y)
	}
	fmt.Println("all of it:", same(first, repeat))
	fmt.Println("what counts:", same(first, repeat, "/amount", "/currency"))
	fmt.Println("another amount:", same(first, other, "/amount", "/currency"))

	_, err := onlyonce.FingerprintJSON([]byte(`{"amount": 1, "amount": 1000}`))
	fmt.Println(err)
	// Output:
	// all of it: false
	// what counts: true
	// another amount: false
	// onlyonce: canonical JSON: a second member of the same name at byte 14
}
