package cryptstore

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce"
)

var testID = onlyonce.ID{Tenant: "acme", Operation: "POST /orders", Key: "k"}

// newCipher returns a Cipher and its current key.
func newCipher(t testing.TB, cfg Config) (*Cipher, *readyKey) {
	t.Helper()
	if cfg.Keys == nil {
		cfg.Keys = testKeys(t)
	}
	c := New(cfg)
	k, err := c.current(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return c, k
}

// secret is a text that must not be found in a store.
const secret = "the customer's secret"

// aSettlement is a settlement that has everything.
func aSettlement() onlyonce.Settlement {
	return onlyonce.Settlement{
		State: onlyonce.StateFailed, Final: true, Error: secret + " in the error",
		Result: onlyonce.Result{
			Status: 402, Ref: "order-1", Body: []byte(`{"detail":"` + secret + `"}`),
			Header: map[string][]string{"Set-Cookie": {secret, "b"}, "Empty": {}},
		},
	}
}

// aStored is a record with steps as it is stored once it has been settled as aSettlement.
func aStored(c *Cipher, k *readyKey) onlyonce.Record {
	r := onlyonce.Record{ID: testID, Attempt: 1, Fence: 7, Steps: c.sealSteps(k, testID, map[string][]byte{"charge": []byte(`"` + secret + `"`), "mail": []byte(`1`)})}
	return r.Settled(c.sealSettlement(k, testID, aSettlement(), nil), r.CreatedAt)
}

// wantCaught wants a record that was changed to be corrupt. mayFail allows an error instead:
// the change made it a record of another key, of another version, or one that is not encrypted.
func wantCaught(t *testing.T, c *Cipher, changed onlyonce.Record, mayFail bool, what string, at int) {
	t.Helper()
	o, err := c.openRecord(t.Context(), changed)
	switch {
	case err != nil && mayFail && (errors.Is(err, ErrUnknownKey) || errors.Is(err, ErrNotEncrypted) || errors.Is(err, errNewer)):
	case err != nil:
		t.Errorf("%s at %d: error %v", what, at, err)
	case !o.Corrupt || o.State != onlyonce.StateUnknown || o.Result.Body != nil || o.Result.Header != nil:
		t.Errorf("%s at %d: it is %+v", what, at, o.Record)
	}
}

func TestRecord_NothingOfItsContentsIsStoredInClear(t *testing.T) {
	for _, off := range []bool{false, true} {
		c, k := newCipher(t, Config{NoCompression: off})
		stored := aStored(c, k)
		o, err := c.openRecord(t.Context(), stored)
		want := aSettlement()
		if err != nil || o.Corrupt || o.Error != want.Error || !bytes.Equal(o.Result.Body, want.Result.Body) || !slices.Equal(o.Result.Header["Set-Cookie"], want.Result.Header["Set-Cookie"]) ||
			len(o.Result.Header) != 2 || string(o.Steps["charge"]) != `"`+secret+`"` || len(o.Steps) != 2 {
			t.Errorf("the record became %+v, error %v", o.Record, err)
		}
		if stored.Result.Header != nil {
			t.Errorf("the header is stored as %v", stored.Result.Header)
		}
		for what, b := range map[string][]byte{"body": stored.Result.Body, "error": []byte(stored.Error), "step": stored.Steps["charge"]} {
			if bytes.Contains(b, []byte(secret)) {
				t.Errorf("the %s is stored as %q", what, b)
			}
		}
	}
}

func TestRecord_EveryFlippedBitIsCaught(t *testing.T) {
	c, k := newCipher(t, Config{})
	stored := aStored(c, k)
	flip := func(b []byte, bit int) []byte {
		b = bytes.Clone(b)
		b[bit/8] ^= 1 << (bit % 8)
		return b
	}
	// The beginning, the version, and the ID of the key, which has one letter, with its length: what
	// follows may look like a part of a longer ID.
	mayFail := func(bit int) bool { return bit/8 <= len(magic) || bit/8 == len(magic)+2 || bit/8 == len(magic)+3 }
	for bit := range 8 * len(stored.Result.Body) {
		r := stored
		r.Result.Body = flip(stored.Result.Body, bit)
		wantCaught(t, c, r, mayFail(bit), "a bit of the result", bit)
	}
	for bit := range 8 * len(stored.Error) {
		r := stored
		r.Error = string(flip([]byte(stored.Error), bit))
		wantCaught(t, c, r, true, "a bit of the error", bit)
	}
	for bit := range 8 * len(stored.Steps["charge"]) {
		r := stored
		r.Steps = map[string][]byte{"mail": stored.Steps["mail"], "charge": flip(stored.Steps["charge"], bit)}
		wantCaught(t, c, r, mayFail(bit), "a bit of a step", bit)
	}
	for what, change := range map[string]func(r *onlyonce.Record){
		"the tenant":    func(r *onlyonce.Record) { r.ID.Tenant = "acmf" },
		"the operation": func(r *onlyonce.Record) { r.ID.Operation = "POST /order" },
		"the key":       func(r *onlyonce.Record) { r.ID.Key = "l" },
		"the border":    func(r *onlyonce.Record) { r.ID.Tenant, r.ID.Operation = "acmeP", "OST /orders" },
		"the state":     func(r *onlyonce.Record) { r.State = onlyonce.StateCompleted },
		"the status":    func(r *onlyonce.Record) { r.Result.Status = 200 },
		"the ref":       func(r *onlyonce.Record) { r.Result.Ref = "order-2" },
		"final":         func(r *onlyonce.Record) { r.Final = false },
		"no error":      func(r *onlyonce.Record) { r.Error = "" },
		"no result":     func(r *onlyonce.Record) { r.Result.Body = nil },
		"a header":      func(r *onlyonce.Record) { r.Result.Header = map[string][]string{"Set-Cookie": {"x"}} },
		"another error": func(r *onlyonce.Record) { r.Error = c.sealText(k, errorPlace(testID), "an older error") },
	} {
		r := stored
		change(&r)
		wantCaught(t, c, r, what == "no result", what, 0)
	}
}

func TestRecord_EveryTruncationIsCaught(t *testing.T) {
	c, k := newCipher(t, Config{})
	stored := aStored(c, k)
	for n := range len(stored.Result.Body) {
		r := stored
		r.Result.Body = stored.Result.Body[:n]
		wantCaught(t, c, r, n < len(magic), "a result that ends", n)
	}
	for n := range len(stored.Error) {
		r := stored
		r.Error = stored.Error[:n]
		wantCaught(t, c, r, false, "an error that ends", n)
	}
	for n := range len(stored.Steps["charge"]) {
		r := stored
		r.Steps = map[string][]byte{"charge": stored.Steps["charge"][:n]}
		wantCaught(t, c, r, n < len(magic), "a step that ends", n)
	}
	for what, change := range map[string]func(r *onlyonce.Record){
		"a longer result": func(r *onlyonce.Record) { r.Result.Body = append(bytes.Clone(r.Result.Body), 0) },
		"a longer error":  func(r *onlyonce.Record) { r.Error += "A" },
		"a line break":    func(r *onlyonce.Record) { r.Error += "\n" },
	} {
		r := stored
		change(&r)
		wantCaught(t, c, r, false, what, 0)
	}
}

func TestEnvelope_AValueIsOpenedAtItsOwnPlaceOnly(t *testing.T) {
	c, k := newCipher(t, Config{})
	at := func(id onlyonce.ID) []place {
		return []place{
			errorPlace(id), stepPlace(id, "charge"), stepPlace(id, "mail"), stepPlace(id, ""),
			resultPlace(id, onlyonce.StateCompleted, &onlyonce.Result{}, false, ""),
			resultPlace(id, onlyonce.StateFailed, &onlyonce.Result{}, false, ""),
			resultPlace(id, onlyonce.StateFailed, &onlyonce.Result{}, true, ""),
			resultPlace(id, onlyonce.StateUnknown, &onlyonce.Result{}, false, ""),
			resultPlace(id, onlyonce.StateCompleted, &onlyonce.Result{Status: 201}, false, ""),
			resultPlace(id, onlyonce.StateCompleted, &onlyonce.Result{Ref: "201"}, false, ""),
			resultPlace(id, onlyonce.StateCompleted, &onlyonce.Result{}, false, "201"),
		}
	}
	places := slices.Concat(at(testID), at(onlyonce.ID{Tenant: "acmeP", Operation: "OST /orders", Key: "k"}), at(onlyonce.ID{Tenant: "other", Operation: testID.Operation, Key: "k"}),
		at(onlyonce.ID{Tenant: testID.Tenant, Operation: testID.Operation, Key: "l"}), at(onlyonce.ID{Key: "k"}), at(onlyonce.ID{Tenant: "k"}))
	for i, from := range places {
		b := c.seal(k, from, []byte(secret))
		for j, to := range places {
			plain, _, err := c.open(t.Context(), to, b)
			if i == j && (err != nil || string(plain) != secret) {
				t.Errorf("%+v was opened as %q, error %v", from, plain, err)
			}
			if i != j && !errors.Is(err, onlyonce.ErrCorrupt) {
				t.Errorf("the value of %+v was opened as that of %+v: %q, error %v", from, to, plain, err)
			}
		}
	}
}

func TestEnvelope_AsTextItHasOneSpelling(t *testing.T) {
	c, k := newCipher(t, Config{})
	p := errorPlace(testID)
	for _, plain := range []string{"a", "ab", "abc"} { // one of them leaves bits of the last letter unused
		stored := c.sealText(k, p, plain)
		if got, err := c.openText(t.Context(), p, stored); err != nil || got != plain {
			t.Errorf("%q was opened as %q, error %v", plain, got, err)
		}
		others := []string{stored + "\n", stored[:20] + "\r\n" + stored[20:], stored + "="}
		for last := range 256 {
			if s := stored[:len(stored)-1] + string([]byte{byte(last)}); s != stored {
				others = append(others, s)
			}
		}
		for _, other := range others {
			if got, err := c.openText(t.Context(), p, other); !errors.Is(err, onlyonce.ErrCorrupt) {
				t.Errorf("%q was opened as %q, error %v", other, got, err)
			}
		}
	}
}

func TestEnvelope_TwoOfOneValueDiffer(t *testing.T) {
	c, k := newCipher(t, Config{})
	if p := errorPlace(testID); bytes.Equal(c.seal(k, p, []byte(secret)), c.seal(k, p, []byte(secret))) {
		t.Error("a nonce was used twice")
	}
}

func TestEnvelope_ANewerVersionIsNotCorrupt(t *testing.T) {
	c, k := newCipher(t, Config{})
	b := c.seal(k, errorPlace(testID), []byte(secret))
	b[len(magic)]++
	if _, _, err := c.open(t.Context(), errorPlace(testID), b); !errors.Is(err, errNewer) || errors.Is(err, onlyonce.ErrCorrupt) {
		t.Errorf("a newer version: error %v", err)
	}
}

func TestCompression_OnlyWhatShrinksIsCompressed(t *testing.T) {
	noise := make([]byte, 4<<10)
	rand.Read(noise)
	overhead := len(magic) + 3 + 1 + checkSize + nonceSize + tagSize
	for name, v := range map[string]struct {
		plain  []byte
		off    bool
		shrink bool
	}{
		"text":     {plain: []byte(strings.Repeat(secret, 100)), shrink: true},
		"noise":    {plain: noise},
		"short":    {plain: []byte(strings.Repeat("a", leastCompressed-1))},
		"off":      {plain: []byte(strings.Repeat(secret, 100)), off: true},
		"too long": {plain: make([]byte, mostCompressed+1)},
		"longest":  {plain: make([]byte, mostCompressed), shrink: true},
		"empty":    {},
	} {
		c, k := newCipher(t, Config{NoCompression: v.off})
		b := c.seal(k, errorPlace(testID), v.plain)
		if shrunk := len(b) < len(v.plain)+overhead; shrunk != v.shrink || !shrunk && len(b) != len(v.plain)+overhead {
			t.Errorf("%s: %d bytes became %d", name, len(v.plain), len(b))
		}
		if plain, _, err := c.open(t.Context(), errorPlace(testID), b); err != nil || !bytes.Equal(plain, v.plain) {
			t.Errorf("%s: %d bytes became %d, error %v", name, len(v.plain), len(plain), err)
		}
	}
}

func TestCompression_ABombIsCorrupt(t *testing.T) {
	c, k := newCipher(t, Config{})
	frame := compressor().EncodeAll(make([]byte, 1<<20), nil)
	for name, length := range map[string]uint64{"less than it is": 1000, "more than it is": 1<<20 + 1, "more than there may be": 1 << 40, "the most": 1<<64 - 1} {
		b := k.seal(errorPlace(testID), append(binary.AppendUvarint(nil, length), frame...), flagCompressed)
		if plain, _, err := c.open(t.Context(), errorPlace(testID), b); !errors.Is(err, onlyonce.ErrCorrupt) || plain != nil {
			t.Errorf("a frame whose length is %s became %d bytes, error %v", name, len(plain), err)
		}
	}
	for name, plain := range map[string][]byte{"nothing": nil, "no frame": []byte("\x04zstd"), "half a frame": append(binary.AppendUvarint(nil, 1<<20), frame[:len(frame)/2]...)} {
		b := k.seal(errorPlace(testID), plain, flagCompressed)
		if plain, _, err := c.open(t.Context(), errorPlace(testID), b); !errors.Is(err, onlyonce.ErrCorrupt) || plain != nil {
			t.Errorf("%s became %d bytes, error %v", name, len(plain), err)
		}
	}
}

func FuzzOpen(f *testing.F) {
	c, k := newCipher(f, Config{})
	p := errorPlace(testID)
	for _, plain := range []string{"", secret, strings.Repeat(secret, 50)} {
		f.Add(c.seal(k, p, []byte(plain)))
	}
	f.Add([]byte(magic))
	f.Add([]byte(magic + "\x01\x00\xff"))
	f.Add([]byte(magic + "\x01\x00\x01bCHECKSUMABCDEFGHIJKLMNOPQRSTUVWX0123456789abcdef"))
	genuine := map[string]bool{"": true, secret: true, strings.Repeat(secret, 50): true}
	f.Fuzz(func(t *testing.T, b []byte) {
		plain, _, err := c.open(t.Context(), p, b)
		switch {
		case err == nil && !genuine[string(plain)]:
			t.Errorf("%q was opened as %q", b, plain)
		case err != nil && plain != nil:
			t.Errorf("%q was opened as %q with error %v", b, plain, err)
		case err != nil && !errors.Is(err, onlyonce.ErrCorrupt) && !errors.Is(err, ErrUnknownKey) && !errors.Is(err, ErrNotEncrypted) && !errors.Is(err, errNewer):
			t.Errorf("%q: error %v", b, err)
		}
	})
}

func FuzzDecodePayload(f *testing.F) {
	for _, p := range []payload{
		{},
		{body: []byte{}},
		{header: map[string][]string{}},
		{removed: []string{"a", ""}},
		{header: map[string][]string{"A": {"b", "c"}, "": {}}, body: []byte(secret), removed: []string{"step"}},
	} {
		f.Add(p.encode())
	}
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := decodePayload(b)
		if err != nil {
			return
		}
		again, err := decodePayload(p.encode())
		if err != nil || !equal(p, again) {
			t.Errorf("%q became %+v and then %+v, error %v", b, p, again, err)
		}
	})
}

func equal(a, b payload) bool {
	if len(a.header) != len(b.header) || (a.header == nil) != (b.header == nil) || (a.body == nil) != (b.body == nil) {
		return false
	}
	for name, values := range a.header {
		if got, ok := b.header[name]; !ok || !slices.Equal(values, got) {
			return false
		}
	}
	return bytes.Equal(a.body, b.body) && slices.Equal(a.removed, b.removed)
}

func TestPayload_IsDecodedAsItWasEncoded(t *testing.T) {
	for _, p := range []payload{
		{},
		{body: []byte{}},
		{header: map[string][]string{}},
		{removed: []string{"a", ""}},
		{header: map[string][]string{"A": {"b", "c"}, "": {}, "\xff\x00": {"\n"}}, body: []byte("\x00"), removed: []string{"step"}},
	} {
		if got, err := decodePayload(p.encode()); err != nil || !equal(p, got) {
			t.Errorf("%+v became %+v, error %v", p, got, err)
		}
	}
}

// benchmarkBody is a JSON document of 4 KiB, a list of orders whose values are random.
func benchmarkBody() []byte {
	r := mathrand.New(mathrand.NewPCG(1, 2))
	var b bytes.Buffer
	for b.Len() < 4<<10 {
		fmt.Fprintf(&b, `{"id":"ord_%016x","status":%q,"amount":%d,"currency":"EUR","created_at":"2026-%02d-%02dT%02d:%02d:%02dZ","customer":{"id":"cus_%08x","name":%q},"lines":[{"sku":"chair-%d","quantity":%d}]},`,
			r.Uint64(), []string{"paid", "open", "shipped"}[r.IntN(3)], r.IntN(1_000_000), 1+r.IntN(12), 1+r.IntN(28), r.IntN(24), r.IntN(60), r.IntN(60),
			r.Uint32(), []string{"Ada Lovelace", "Grace Hopper", "Edsger Dijkstra", "Barbara Liskov"}[r.IntN(4)], r.IntN(10_000), 1+r.IntN(9))
	}
	return b.Bytes()[:4<<10]
}

func BenchmarkResult(b *testing.B) {
	for _, off := range []bool{false, true} {
		name := "compressed"
		if off {
			name = "uncompressed"
		}
		c, k := newCipher(b, Config{NoCompression: off})
		body := benchmarkBody()
		st := onlyonce.Settlement{State: onlyonce.StateCompleted, Result: onlyonce.Result{Status: 201, Ref: "ord_1", Body: body, Header: map[string][]string{"Content-Type": {"application/json"}, "Location": {"/v1/orders/ord_1"}}}}
		stored := onlyonce.Record{ID: testID}.Settled(c.sealSettlement(k, testID, st, nil), onlyonce.Record{}.CreatedAt)
		b.Run("seal/"+name, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				c.sealSettlement(k, testID, st, nil)
			}
			b.ReportMetric(float64(len(stored.Result.Body)), "stored-bytes")
		})
		b.Run("open/"+name, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if o, err := c.openRecord(b.Context(), stored); err != nil || o.Corrupt {
					b.Fatalf("%+v, error %v", o, err)
				}
			}
		})
	}
}
