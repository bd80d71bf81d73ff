package items

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/services/internal/apitest"
)

func TestKey_CreateWithoutAKey(t *testing.T) {
	w := newWorld(t, Config{})
	a, b := w.post(mug), w.post(mug)
	if a.Status != 201 || b.Status != 201 || b.item.ID <= a.item.ID {
		t.Errorf("%d %s, then %d %s", a.Status, a.Body, b.Status, b.Body)
	}
	if n := w.count("onlyonce_records"); n != 0 {
		t.Errorf("%d records", n)
	}
}

func TestKey_CreateWithANewKey(t *testing.T) {
	w := newWorld(t, Config{})
	got := w.post(mug, key, "k1")
	if got.Status != 201 || got.Header.Get("Idempotency-Replayed") != "" || w.count("items_items") != 1 {
		t.Errorf("got %d %v %s", got.Status, got.Header, got.Body)
	}
	if n := w.count(fmt.Sprintf("onlyonce_records WHERE result_ref = '%d' AND status_code = 201", got.item.ID)); n != 1 {
		t.Errorf("%d records name the item", n)
	}
}

func TestKey_ARepeatWithTheSameKeyAndBodyIsByteIdentical(t *testing.T) {
	w := newWorld(t, Config{})
	body := `{"sku":"É<&>","title":"\u2028 <script>","status":"draft","brand":"x"}`
	first := w.post(body, key, "k1")
	w.exec("UPDATE items_items SET created_at = 0, title = 'changed'")
	again := w.post(body, key, "k1")
	same(t, first, again)
	if first.Status != 201 || again.Header.Get("Idempotency-Replayed") != "true" || w.count("items_items") != 1 {
		t.Errorf("the repeat: %v", again.Header)
	}
}

func TestKey_ARepeatTouchesNeitherTheHandlerNorItsDatabase(t *testing.T) {
	w := newWorld(t, Config{})
	first := w.post(mug, key, "k1")
	w.exec("DROP TABLE items_items")
	same(t, first, w.post(mug, key, "k1"))
}

func TestKey_ARepeatWithAnotherBodyConflicts(t *testing.T) {
	w := newWorld(t, Config{})
	w.post(mug, key, "k1")
	for _, other := range []string{strings.Replace(mug, "Mug", "Cup", 1), mug + " ", `{}`, `nonsense`} {
		got := w.post(other, key, "k1")
		if want := `{"detail":"Idempotency key already used with different request body","error_code":"IDEMPOTENCY_KEY_CONFLICT","idempotency_key":"k1"}`; got.Status != 409 || got.Body != want {
			t.Errorf("got %d %s", got.Status, got.Body)
		}
	}
	if n := w.count("items_items"); n != 1 {
		t.Errorf("%d items", n)
	}
}

func TestKey_ThreeConcurrentRequestsWithOneKey(t *testing.T) {
	w := newWorld(t, Config{})
	held := apitest.Hold(w.store)
	w = w.with(held, Config{})
	first := make(chan reply)
	go func() { first <- w.post(mug, key, "k1") }()
	<-held.Running
	for range 2 {
		got := w.post(mug, key, "k1")
		got.want(t, 409, "IDEMPOTENCY_KEY_IN_PROGRESS")
		if after := got.Header.Get("Retry-After"); after == "" || after == "0" || got.problem.Key != "k1" {
			t.Errorf("Retry-After %q, body %s", after, got.Body)
		}
	}
	close(held.LetGo)
	got := <-first
	if got.Status != 201 || w.count("items_items") != 1 {
		t.Errorf("the first got %d %s; %d items", got.Status, got.Body, w.count("items_items"))
	}
	same(t, got, w.post(mug, key, "k1"))
}

func TestKey_ManyConcurrentRequestsWithOneKeyMakeOneItem(t *testing.T) {
	w := newWorld(t, Config{})
	replies := make([]reply, 64)
	var wg sync.WaitGroup
	for i := range replies {
		wg.Go(func() { replies[i] = w.post(mug, key, "k1") })
	}
	wg.Wait()
	final := w.post(mug, key, "k1")
	for _, r := range replies {
		if r.Status == 409 {
			r.want(t, 409, "IDEMPOTENCY_KEY_IN_PROGRESS")
			continue
		}
		same(t, final, r)
	}
	if n := w.count("items_items"); n != 1 || final.Status != 201 {
		t.Errorf("%d items, %s", n, final.Body)
	}
}

func TestKey_ARepeatOneMinuteLaterIsStillReplayed(t *testing.T) {
	w := newWorld(t, Config{})
	first := w.post(mug, key, "k1")
	w.age(time.Minute)
	same(t, first, w.post(mug, key, "k1"))
	w.age(58 * time.Minute)
	same(t, first, w.post(mug, key, "k1"))
}

func TestKey_AnExpiredKeyCanBeUsedAgain(t *testing.T) {
	w := newWorld(t, Config{})
	first := w.post(mug, key, "k1")
	w.age(61 * time.Minute)
	other := strings.Replace(mug, "Mug", "Cup", 1)
	second := w.post(other, key, "k1")
	if second.Status != 201 || second.item.ID == first.item.ID {
		t.Errorf("got %d %s", second.Status, second.Body)
	}
	same(t, second, w.post(other, key, "k1"))
}

func TestKey_TheKeysTimeToLiveIsConfigurable(t *testing.T) {
	w := newWorld(t, Config{Keep: 2 * time.Minute})
	first := w.post(mug, key, "k1")
	w.age(time.Minute)
	same(t, first, w.post(mug, key, "k1"))
	w.age(time.Minute)
	if got := w.post(mug, key, "k1"); got.item.ID == first.item.ID {
		t.Error("a key outlived its time")
	}
}

func TestKey_AKeyWithInvalidCharacters(t *testing.T) {
	w := newWorld(t, Config{})
	for _, k := range []string{"a b", "a.b", "ä", "a/b", "a\x00b", `"quoted"`, "a,b", "a;p=1", "k\n", "a'--"} {
		w.post(mug, key, k).want(t, 400, "IDEMPOTENCY_KEY_INVALID")
	}
	w.post(mug, key, "a", key, "a").want(t, 400, "IDEMPOTENCY_KEY_INVALID")
	if w.count("items_items") != 0 || w.count("onlyonce_records") != 0 {
		t.Error("something ran")
	}
	if got := w.post(mug, key, "azAZ09-_"); got.Status != 201 {
		t.Error(got.Body)
	}
}

func TestKey_AnEmptyKey(t *testing.T) {
	w := newWorld(t, Config{})
	for _, k := range []string{"", " "} {
		w.post(mug, key, k).want(t, 400, "IDEMPOTENCY_KEY_INVALID")
	}
	if w.count("items_items") != 0 {
		t.Error("something ran")
	}
}

func TestKey_AKeyOf256Characters(t *testing.T) {
	w := newWorld(t, Config{})
	w.post(mug, key, strings.Repeat("k", 256)).want(t, 400, "IDEMPOTENCY_KEY_INVALID")
	if w.count("items_items") != 0 {
		t.Error("something ran")
	}
	if got := w.post(mug, key, strings.Repeat("k", 255)); got.Status != 201 {
		t.Error(got.Body)
	}
}

func TestKey_ACommandFinishesAlthoughItsClientIsGone(t *testing.T) {
	w := newWorld(t, Config{})
	held := apitest.Hold(w.store)
	w = w.with(held, Config{})
	ctx, gone := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.sendIn(ctx, "POST", base, mug, key, "k1")
	}()
	<-held.Running
	gone()
	close(held.LetGo)
	<-done
	got := w.post(mug, key, "k1")
	if got.Status != 201 || got.Header.Get("Idempotency-Replayed") != "true" || w.count("items_items") != 1 {
		t.Errorf("the retry got %d %v %s", got.Status, got.Header, got.Body)
	}
}

func TestKey_AHandlerThatFailsLeavesNothingAndMayRunAgain(t *testing.T) {
	w := newWorld(t, Config{})
	w.exec("ALTER TABLE items_items RENAME TO elsewhere")
	for _, header := range [][]string{nil, {key, "k1"}} {
		got := w.post(mug, header...)
		got.want(t, 500, "INTERNAL_ERROR")
		if strings.Contains(got.Body, "items_items") || !strings.Contains(w.log.String(), "no such table") {
			t.Errorf("the cause is to be in the log only: %s", got.Body)
		}
	}
	w.exec("ALTER TABLE elsewhere RENAME TO items_items")
	if got := w.post(mug, key, "k1"); got.Status != 201 {
		t.Error(got.Body)
	}
}

func TestKey_AStoreThatCanNotBeReachedRunsNothing(t *testing.T) {
	w := newWorld(t, Config{})
	w = w.with(&apitest.Broken{Store: w.store, Err: errors.New("disk on fire")}, Config{})
	got := w.post(mug, key, "k1")
	got.want(t, 503, "STORE_UNAVAILABLE")
	if strings.Contains(got.Body, "fire") || got.Header.Get("Retry-After") == "" || !strings.Contains(w.log.String(), "disk on fire") {
		t.Errorf("%v %s", got.Header, got.Body)
	}
}
