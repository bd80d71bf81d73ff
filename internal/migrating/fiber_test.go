package migrating_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/idempotency"
	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/fiberonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

func fiberByItself(storage fiber.Storage, lock idempotency.Locker, authenticate, charge fiber.Handler) *fiber.App {
	app := fiber.New()
	app.Use(authenticate, idempotency.New(idempotency.Config{Storage: storage, Lock: lock, Lifetime: 24 * time.Hour}))
	app.Post("/accounts/:id/charges", charge)
	return app
}

func fiberOnce(guard *onlyonce.Guard, authenticate, charge fiber.Handler) *fiber.App {
	once := fiberonce.Middleware(guard, httponce.Config{
		Header: "X-Idempotency-Key",
		Tenant: func(r *http.Request) string { return fiber.Locals[string](fiberonce.Context(r), "account") },
	})
	app := fiber.New()
	app.Use(authenticate) // sets "account"
	app.Post("/accounts/:id/charges", once, charge)
	return app
}

func fiberDuringTheSwitch(guard *onlyonce.Guard, storage fiber.Storage, lock idempotency.Locker, authenticate, charge fiber.Handler) *fiber.App {
	once := fiberonce.Middleware(guard, httponce.Config{
		Header: "X-Idempotency-Key",
		Tenant: func(r *http.Request) string { return fiber.Locals[string](fiberonce.Context(r), "account") },
	})
	old := idempotency.New(idempotency.Config{Storage: storage, Lock: lock, Lifetime: 24 * time.Hour})
	stored := func(c fiber.Ctx) error {
		err := old(c) // calls charged, unless it has the response
		if err != nil && fiber.Locals[bool](c, "charged") {
			fiberonce.Unknown(c, err) // the charge was made, and its response could not be stored
		}
		return err
	}
	charged := func(c fiber.Ctx) error {
		err := charge(c)
		c.Locals("charged", err == nil)
		return err
	}
	app := fiber.New()
	app.Use(authenticate)
	app.Post("/accounts/:id/charges", once, stored, charged)
	return app
}

// A sharedStorage stands for the database that the processes of a fiber app share.
type sharedStorage struct {
	mu     sync.Mutex
	values map[string][]byte
	fails  error
}

func (s *sharedStorage) GetWithContext(_ context.Context, key string) ([]byte, error) {
	return s.Get(key)
}

func (s *sharedStorage) Get(key string) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.values[key], nil
}

func (s *sharedStorage) SetWithContext(_ context.Context, key string, value []byte, keep time.Duration) error {
	return s.Set(key, value, keep)
}

func (s *sharedStorage) Set(key string, value []byte, _ time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fails != nil {
		return s.fails
	}
	if s.values == nil {
		s.values = make(map[string][]byte)
	}
	s.values[strings.Clone(key)] = append([]byte(nil), value...)
	return nil
}

func (s *sharedStorage) DeleteWithContext(_ context.Context, key string) error { return s.Delete(key) }

func (s *sharedStorage) Delete(key string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.values, key)
	return nil
}

func (s *sharedStorage) ResetWithContext(context.Context) error { return s.Reset() }

func (s *sharedStorage) Reset() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.values)
	return nil
}

func (s *sharedStorage) Close() error { return nil }

// fiberCharge is a handler that charges.
func (b *bank) fiberCharge(c fiber.Ctx) error {
	receipt, err := b.charge(c.Context(), c.Body())
	if err != nil {
		return err
	}
	return c.Status(http.StatusCreated).SendString(receipt)
}

// fiberAccount sets the account of the caller.
func fiberAccount(c fiber.Ctx) error {
	c.Locals("account", c.Get("X-Account"))
	return c.Next()
}

// sendFiber sends a request of an account to an app.
func sendFiber(t *testing.T, app *fiber.App, account, path, key, body string) reply {
	t.Helper()
	r := newRequest(path, key, body)
	r.Header.Set("X-Account", account)
	resp, err := app.Test(r, fiber.TestConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{resp.StatusCode, string(text), resp.Header.Get("Idempotency-Replayed") == "true"}
}

const (
	uuid      = "11111111-1111-4111-8111-111111111111"
	otherUUID = "22222222-2222-4222-8222-222222222222"
)

func TestFiber_ByItselfAKeyIsOneForAllRequestsAndCallers(t *testing.T) {
	var b bank
	app := fiberByItself(new(sharedStorage), nil, fiberAccount, b.fiberCharge)
	want(t, "the first", sendFiber(t, app, "acme", "/accounts/7/charges", uuid, "1"), 201, "receipt 1 for 1", false)
	want(t, "its repeat", sendFiber(t, app, "acme", "/accounts/7/charges", uuid, "1"), 201, "receipt 1 for 1", false)
	want(t, "another body", sendFiber(t, app, "acme", "/accounts/7/charges", uuid, "2"), 201, "receipt 1 for 1", false)
	want(t, "another path", sendFiber(t, app, "acme", "/accounts/8/charges", uuid, "1"), 201, "receipt 1 for 1", false)
	want(t, "another caller", sendFiber(t, app, "other", "/accounts/7/charges", uuid, "1"), 201, "receipt 1 for 1", false)
	b.wantCharges(t, 1)
}

func TestFiber_WithFiberonceAKeyBelongsToItsRequestAndCaller(t *testing.T) {
	var b bank
	app := fiberOnce(onlyonce.New(memstore.New(memstore.Config{}), onlyonce.Config{}), fiberAccount, b.fiberCharge)
	want(t, "the first", sendFiber(t, app, "acme", "/accounts/7/charges", uuid, "1"), 201, "receipt 1 for 1", false)
	want(t, "its repeat", sendFiber(t, app, "acme", "/accounts/7/charges", uuid, "1"), 201, "receipt 1 for 1", true)
	want(t, "another body", sendFiber(t, app, "acme", "/accounts/7/charges", uuid, "2"), 422, httponce.CodeKeyReused, false)
	want(t, "another path", sendFiber(t, app, "acme", "/accounts/8/charges", uuid, "1"), 422, httponce.CodeKeyReused, false)
	want(t, "another caller", sendFiber(t, app, "other", "/accounts/7/charges", uuid, "1"), 201, "receipt 2 for 1", false)
	b.wantCharges(t, 2)
}

func TestFiber_DuringTheSwitchAChargeIsMadeOnceByBothVersions(t *testing.T) {
	var b bank
	storage, guard := new(sharedStorage), onlyonce.New(memstore.New(memstore.Config{}), onlyonce.Config{})
	lock := idempotency.NewMemoryLock()
	before, during := fiberByItself(storage, lock, fiberAccount, b.fiberCharge), fiberDuringTheSwitch(guard, storage, lock, fiberAccount, b.fiberCharge)
	const path = "/accounts/7/charges"
	want(t, "a charge of the old version", sendFiber(t, before, "acme", path, uuid, "1"), 201, "receipt 1 for 1", false)
	want(t, "its retry at the new one", sendFiber(t, during, "acme", path, uuid, "1"), 201, "receipt 1 for 1", false)
	want(t, "the next retry", sendFiber(t, during, "acme", path, uuid, "1"), 201, "receipt 1 for 1", true)
	want(t, "a charge of the new version", sendFiber(t, during, "acme", path, otherUUID, "2"), 201, "receipt 2 for 2", false)
	want(t, "its retry at the old one", sendFiber(t, before, "acme", path, otherUUID, "2"), 201, "receipt 2 for 2", false)
	b.wantCharges(t, 2)
}

// A sharedLock is the Lock of both versions, and reports the second request that wants it.
type sharedLock struct {
	idempotency.Locker
	calls  atomic.Int32
	second func()
}

func (l *sharedLock) Lock(key string) error {
	if l.calls.Add(1) == 2 {
		l.second()
	}
	return l.Locker.Lock(key)
}

// chargeTwice sends a charge to the old version, and to the new one while the old version makes
// it. end lets the old version finish.
func chargeTwice(t *testing.T, b *bank, old, during idempotency.Locker, end chan struct{}) (first func() reply, second reply) {
	t.Helper()
	const path = "/accounts/7/charges"
	storage, guard := new(sharedStorage), onlyonce.New(memstore.New(memstore.Config{}), onlyonce.Config{})
	running, replies := make(chan struct{}), make(chan reply, 1)
	before := fiberByItself(storage, old, fiberAccount, func(c fiber.Ctx) error {
		close(running)
		<-end
		return b.fiberCharge(c)
	})
	go func() {
		defer close(replies)
		replies <- sendFiber(t, before, "acme", path, uuid, "1")
	}()
	<-running
	second = sendFiber(t, fiberDuringTheSwitch(guard, storage, during, fiberAccount, b.fiberCharge), "acme", path, uuid, "1")
	return func() reply { return <-replies }, second
}

func TestFiber_DuringTheSwitchARunningChargeIsMadeOnceIfTheVersionsShareALock(t *testing.T) {
	var b bank
	end := make(chan struct{})
	lock := &sharedLock{Locker: idempotency.NewMemoryLock(), second: func() { close(end) }}
	first, second := chargeTwice(t, &b, lock, lock, end)
	want(t, "the charge of the old version", first(), 201, "receipt 1 for 1", false)
	want(t, "its retry at the new one", second, 201, "receipt 1 for 1", false)
	b.wantCharges(t, 1)
}

func TestFiber_DuringTheSwitchARunningChargeIsMadeTwiceWithoutASharedLock(t *testing.T) {
	var b bank
	end := make(chan struct{})
	first, second := chargeTwice(t, &b, nil, nil, end)
	close(end)
	want(t, "the retry at the new version", second, 201, "receipt 1 for 1", false)
	want(t, "the charge of the old one", first(), 201, "receipt 2 for 1", false)
	b.wantCharges(t, 2)
}

func TestFiber_DuringTheSwitchAChargeWhoseResponseFiberCouldNotStoreIsHeld(t *testing.T) {
	var b bank
	storage := &sharedStorage{fails: errors.New("the storage is unreachable")}
	guard := onlyonce.New(memstore.New(memstore.Config{}), onlyonce.Config{HoldUnknown: true, Observer: onlyonce.DiscardEvents})
	during := fiberDuringTheSwitch(guard, storage, nil, fiberAccount, b.fiberCharge)
	const path = "/accounts/7/charges"
	want(t, "the charge", sendFiber(t, during, "acme", path, uuid, "1"), 500, "failed to save response", false)
	b.wantCharges(t, 1)
	storage.fails, b.fails = nil, errNoAnswer
	want(t, "its repeat", sendFiber(t, during, "acme", path, uuid, "1"), 409, httponce.CodeOutcomeUnknown, false)
	want(t, "a charge that fails", sendFiber(t, during, "acme", path, otherUUID, "2"), 500, errNoAnswer.Error(), false)
	b.fails = nil
	want(t, "its repeat", sendFiber(t, during, "acme", path, otherUUID, "2"), 201, "receipt 3 for 2", false)
}
