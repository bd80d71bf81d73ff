package cryptstore

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// testKey returns a key whose bytes are all the same.
func testKey(t testing.TB, id string, b byte) Key {
	t.Helper()
	k, err := NewKey(id, bytes.Repeat([]byte{b}, keySize))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func testKeys(t testing.TB) *KeySet {
	t.Helper()
	return keysOf(t, testKey(t, "b", 2), testKey(t, "a", 1))
}

var (
	hexA    = hex.EncodeToString(bytes.Repeat([]byte{1}, keySize))
	hexB    = hex.EncodeToString(bytes.Repeat([]byte{2}, keySize))
	base64B = base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{2}, keySize))
)

func wantKeys(t *testing.T, keys Keys, current string, want ...Key) {
	t.Helper()
	if k, err := keys.Key(t.Context(), ""); err != nil || k.ID() != current {
		t.Errorf("the current key is %v, error %v, want %q", k, err, current)
	}
	for _, w := range want {
		if k, err := keys.Key(t.Context(), w.ID()); err != nil || k != w {
			t.Errorf("the key %q is %v, error %v", w.ID(), k, err)
		}
	}
	if _, err := keys.Key(t.Context(), "no such key"); !errors.Is(err, ErrUnknownKey) {
		t.Errorf("a key that is not there: error %v", err)
	}
}

func TestParseKeys_OneKeyALine(t *testing.T) {
	a, b := testKey(t, "a", 1), testKey(t, "b", 2)
	for text, current := range map[string]string{
		"a " + hexA: "a",
		"# keys\n\n  a\t" + strings.ToUpper(hexA) + " \r\nb " + base64B + "\ncurrent b\n": "b",
		"current a; a " + hexA + "; b " + hexB:                                            "a",
	} {
		keys, err := ParseKeys(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if wantKeys(t, keys, current, a); strings.Contains(text, "b ") {
			wantKeys(t, keys, current, b)
		}
	}
}

func TestParseKeys_AnErrorSaysWhatToWriteAndNoSecret(t *testing.T) {
	for text, want := range map[string]string{
		"":                                     "there are no keys",
		"# " + hexA:                            "there are no keys",
		hexA:                                   "line 1 of the keys has 1 words",
		"a " + hexA + " b":                     "line 1 of the keys has 3 words",
		"\na " + hexA[1:]:                      "line 2 of the keys has no key of 32 bytes",
		"a " + hexA + "00":                     "line 1 of the keys has no key of 32 bytes",
		"a " + strings.Repeat("z", 64):         "line 1 of the keys has no key of 32 bytes",
		"a/b " + hexA:                          "the ID of a key must have",
		strings.Repeat("a", 65) + " " + hexA:   "the ID of a key must have",
		"a " + hexA + "\nb " + hexB:            "none is the current one",
		"a " + hexA + "\na " + hexB:            "none is the current one",
		"current a\na " + hexA + "\na " + hexB: "two keys with the ID \"a\"",
		"current b\na " + hexA:                 "the current key is not among the keys",
		"current a\ncurrent a\na " + hexA:      "line 2 of the keys names a second current key",
	} {
		_, err := ParseKeys(text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", text, err, want)
		}
		if err != nil && (strings.Contains(err.Error(), hexA[:16]) || strings.Contains(err.Error(), "zzzz")) {
			t.Errorf("the error has a secret: %v", err)
		}
	}
}

func TestKey_ItIsNeverPrintedWithItsSecret(t *testing.T) {
	k := testKey(t, "a", 0xab)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%q", "%d"} {
		if got := fmt.Sprintf(verb, k); got != `key "a"` {
			t.Errorf("%s prints %s", verb, got)
		}
	}
}

func TestNewKeySet_AKeyThatIsNoneIsAnError(t *testing.T) {
	if _, err := NewKeySet(Key{}); err == nil {
		t.Error("a set without a key was made")
	}
	if _, err := NewKey("a", make([]byte, 16)); err == nil {
		t.Error("a key of 16 bytes was made")
	}
}

func TestKeysFromFile_TheFileIsReadAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := KeysFromFile(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a file: error %v", err)
	}
	write("a " + hexA)
	keys, err := KeysFromFile(path)
	if err != nil {
		t.Fatal(err)
	}
	wantKeys(t, keys, "a", testKey(t, "a", 1))
	write("current b\nb " + hexB + "\na " + hexA)
	wantKeys(t, keys, "b", testKey(t, "a", 1), testKey(t, "b", 2))
	write("")
	if _, err := keys.Key(t.Context(), "a"); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("an empty file: error %v", err)
	}
	write("a " + hexA + strings.Repeat("\n", longestKeyFile))
	if _, err := keys.Key(t.Context(), "a"); err == nil {
		t.Error("a file that is too long was read")
	}
}

func TestKeysFromFile_AFileForOthersIsAnError(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no file modes")
	}
	path := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(path, []byte("a "+hexA), 0o600); err != nil {
		t.Fatal(err)
	}
	for mode, ok := range map[os.FileMode]bool{0o600: true, 0o400: true, 0o640: true, 0o660: false, 0o644: false, 0o601: false, 0o602: false} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := KeysFromFile(path); (err == nil) != ok {
			t.Errorf("mode %o: error %v", mode, err)
		}
	}
}

func TestKeysFromEnv_TheVariableHasTheKeys(t *testing.T) {
	const name = "CRYPTSTORE_TEST_KEYS"
	t.Setenv(name, "")
	if _, err := KeysFromEnv(name); err == nil || !strings.Contains(err.Error(), name) {
		t.Errorf("an empty variable: error %v", err)
	}
	t.Setenv(name, "a")
	if _, err := KeysFromEnv(name); err == nil || !strings.Contains(err.Error(), name) {
		t.Errorf("a variable without keys: error %v", err)
	}
	t.Setenv(name, "current b; a "+hexA+"; b "+base64B)
	keys, err := KeysFromEnv(name)
	if err != nil {
		t.Fatal(err)
	}
	wantKeys(t, keys, "b", testKey(t, "a", 1), testKey(t, "b", 2))
}

// countedKeys count their calls.
type countedKeys struct {
	calls int
	key   func(ctx context.Context, id string) (Key, error)
}

func (c *countedKeys) Key(ctx context.Context, id string) (Key, error) {
	c.calls++
	return c.key(ctx, id)
}

func newKeyCache(keys Keys) *keyCache {
	return &New(Config{Keys: keys, CacheKeys: 10 * time.Minute}).keys
}

func TestKeyCache_AKeyIsUsedForABoundedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outage := errors.New("no route")
		up := testKeys(t)
		keys := &countedKeys{key: up.Key}
		c := newKeyCache(keys)
		get := func(id string, calls int, want error) {
			t.Helper()
			_, err := c.get(t.Context(), id)
			synctest.Wait()
			if !errors.Is(err, want) || keys.calls != calls {
				t.Errorf("error %v after %d calls, want %v after %d", err, keys.calls, want, calls)
			}
		}
		get("", 1, nil)
		get("", 1, nil)
		get("b", 1, nil) // it is the current key
		get("a", 2, nil)
		time.Sleep(5*time.Minute - 1)
		get("", 2, nil)
		time.Sleep(time.Second)
		get("", 3, nil) // in the background

		keys.key = func(context.Context, string) (Key, error) { return Key{}, outage }
		time.Sleep(5 * time.Minute)
		get("", 4, nil)
		get("", 4, nil) // not again at once
		time.Sleep(fetchWait)
		get("", 5, nil)
		time.Sleep(5 * time.Minute)
		get("", 6, outage)
		get("", 6, outage)
	})
}

func TestKeyCache_ManyCallersShareOneFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &countedKeys{key: func(ctx context.Context, id string) (Key, error) {
			time.Sleep(time.Second)
			return testKeys(t).Key(ctx, id)
		}}
		c := newKeyCache(slow)
		for range 10 {
			go func() {
				if k, err := c.get(t.Context(), ""); err != nil || k.id != "b" {
					t.Errorf("got %v, error %v", k, err)
				}
			}()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := c.get(ctx, ""); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a caller whose time is over: error %v", err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if slow.calls != 1 {
			t.Errorf("there were %d calls", slow.calls)
		}
	})
}

func TestKeyCache_AFetchEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newKeyCache(&countedKeys{key: func(ctx context.Context, _ string) (Key, error) {
			<-ctx.Done()
			return Key{}, context.Cause(ctx)
		}})
		began := time.Now()
		if _, err := c.get(t.Context(), ""); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != fetchTime {
			t.Errorf("after %v: error %v", time.Since(began), err)
		}
	})
}

func TestKeyCache_KeysThatDoNotReturnAreNotWaitedForLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up, returns := testKeys(t), make(chan struct{})
		keys := &countedKeys{key: up.Key}
		c := newKeyCache(keys)
		if _, err := c.get(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		keys.key = func(ctx context.Context, id string) (Key, error) {
			<-returns
			return up.Key(ctx, id)
		}
		time.Sleep(10 * time.Minute)
		began := time.Now()
		for range 2 { // they are called once
			if k, err := c.getLast(t.Context()); err != nil || k.id != "b" {
				t.Errorf("the last key is %v, error %v", k, err)
			}
			if _, err := c.get(t.Context(), ""); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("error %v", err)
			}
		}
		if took := time.Since(began); took != fetchTime {
			t.Errorf("the calls took %v", took)
		}
		close(returns)
		synctest.Wait()
		if _, err := c.get(t.Context(), ""); err != nil {
			t.Errorf("once they have returned: error %v", err)
		}
	})
}

func TestKeyCache_WhatKeysReturnIsChecked(t *testing.T) {
	for name, key := range map[string]func(ctx context.Context, id string) (Key, error){
		"another key": func(context.Context, string) (Key, error) { return testKey(t, "a", 1), nil },
		"no key":      func(context.Context, string) (Key, error) { return Key{}, nil },
		"a panic":     func(context.Context, string) (Key, error) { panic("no keys") },
	} {
		if k, err := newKeyCache(&countedKeys{key: key}).get(t.Context(), "b"); err == nil || k != nil || !strings.Contains(err.Error(), `the key "b"`) {
			t.Errorf("%s: got %v, error %v", name, k, err)
		}
	}
}

func TestKeyCache_IDsOfNoKeysDoNotFillTheMemory(t *testing.T) {
	c := newKeyCache(testKeys(t))
	for i := range 3 * mostKeys {
		if _, err := c.get(t.Context(), fmt.Sprint(i)); !errors.Is(err, ErrUnknownKey) {
			t.Fatal(err)
		}
	}
	if len(c.byID) > mostKeys {
		t.Errorf("the cache has %d entries", len(c.byID))
	}
}
