package canonical

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"
)

// orders returns a document of about size bytes: orders with members in no
// order, strings with and without escapes, whole and broken numbers.
func orders(size int) []byte {
	b := []byte(`{"tenant":"shop-7","orders":[`)
	for i := 0; ; i++ {
		order := fmt.Appendf(nil, `{"id":%d,"customer":{"name":"Zoë Müller","email":"zoe.mueller+%d@example.com","address":{"street":"Hauptstraße 12","city":"Köln","zip":"50667","country":"DE"}},`+
			`"amount":"%d.50","currency":"EUR","paid":%t,"note":"line one\nline \"two\" and a rather longer piece of plain text after it","discount":null,`+
			`"lines":[{"sku":"A-%d","qty":%d,"price":12.95},{"sku":"B-%d","qty":1,"price":0.5,"tags":["new","sale"]}],"weight":1.250,"created":"2026-03-01T12:00:00Z"}`,
			9007199254740993+i, i, i, i%2 == 0, i, i%9, i)
		if len(b)+len(order) > size {
			return append(b, `],"version":1}`...)
		}
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, order...)
	}
}

func BenchmarkWriter(b *testing.B) {
	for _, size := range []int{1 << 10, 100 << 10} {
		doc := orders(size)
		var pretty bytes.Buffer
		if err := json.Indent(&pretty, doc, "", "  "); err != nil {
			b.Fatal(err)
		}
		name := fmt.Sprintf("%dKiB", size>>10)
		b.Run(name, func(b *testing.B) { benchmarkWriter(b, doc) })
		b.Run(name+"Indented", func(b *testing.B) { benchmarkWriter(b, pretty.Bytes()) })
		b.Run(name+"EncodingJSON", func(b *testing.B) {
			b.SetBytes(int64(len(doc)))
			b.ReportAllocs()
			for b.Loop() {
				var v any
				d := json.NewDecoder(bytes.NewReader(doc))
				d.UseNumber()
				if err := d.Decode(&v); err != nil {
					b.Fatal(err)
				}
				if _, err := json.Marshal(v); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func benchmarkWriter(b *testing.B, doc []byte, fields ...string) {
	b.SetBytes(int64(len(doc)))
	b.ReportAllocs()
	for b.Loop() {
		w := NewWriter()
		if _, err := w.Write(doc, fields...); err != nil {
			b.Fatal(err)
		}
		w.Selected(nil)
		w.Release()
	}
}

// BenchmarkWriterWorst has the documents that need the most work: the
// time for a byte stays about the same as they grow.
func BenchmarkWriterWorst(b *testing.B) {
	for _, n := range []int{1000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("64Levels/%d", n), func(b *testing.B) { benchmarkWriter(b, []byte(levels(n))) })
		docs := worstOrders(n)
		for _, name := range slices.Sorted(maps.Keys(docs)) {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) { benchmarkWriter(b, []byte(docs[name])) })
		}
	}
}

func BenchmarkWriterFields(b *testing.B) {
	benchmarkWriter(b, orders(1<<10), "/tenant", "/version", "/orders/0/amount", "/orders/0/lines/1/sku")
}
