package clients_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	_ "modernc.org/sqlite"

	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/internal/clients/payments"
)

func newClient() *http.Client {
	return &http.Client{Transport: &httponce.Transport{}}
}

func newRetryable() *retryablehttp.Client {
	client := retryablehttp.NewClient()
	client.HTTPClient.Transport = &httponce.Transport{Base: client.HTTPClient.Transport}
	client.CheckRetry = func(context.Context, *http.Response, error) (bool, error) {
		return false, nil // the Transport retries
	}
	return client
}

func newPayments(server string) (*payments.Client, error) {
	return payments.NewClientWithResponses(server, payments.WithHTTPClient(&http.Client{Transport: &httponce.Transport{}}))
}

// pay sends a payment that already has its key.
func pay(ctx context.Context, client *payments.Client, key string, payment payments.Payment) error {
	made, err := client.CreatePaymentWithResponse(ctx, &payments.CreatePaymentParams{IdempotencyKey: &key}, payment)
	if err != nil {
		return err
	}
	if made.HTTPResponse.StatusCode != http.StatusCreated {
		return errors.New(made.HTTPResponse.Status)
	}
	return nil
}

// newPayer returns a client that stores the key of a payment before it sends the payment.
func newPayer(db *sql.DB) *http.Client {
	return &http.Client{Transport: &httponce.Transport{
		Persist: func(ctx context.Context, r *http.Request, key string) error {
			result, err := db.ExecContext(ctx, "UPDATE payments SET idempotency_key = ? WHERE id = ? AND idempotency_key IS NULL", key, paymentOf(ctx))
			if err != nil {
				return err // an error: nothing is sent
			}
			if n, err := result.RowsAffected(); err != nil || n != 1 {
				return errors.Join(errors.New("there is no payment without a key"), err)
			}
			return nil
		},
	}}
}

type paymentID struct{}

// paymentOf returns the ID of the payment that a call makes.
func paymentOf(ctx context.Context) int { return ctx.Value(paymentID{}).(int) }

// quickly shortens the waits of a client's Transport.
func quickly(client *http.Client) {
	t := client.Transport.(*httponce.Transport)
	t.Backoff = time.Millisecond
}

// A sender sends the body of a payment.
type sender func(t *testing.T, url string, body []byte) (status int, text string, err error)

func receive(w *http.Response, err error) (int, string, error) {
	if err != nil {
		return 0, "", err
	}
	defer w.Body.Close()
	text, err := io.ReadAll(w.Body)
	return w.StatusCode, string(text), err
}

func TestClients_APaymentIsMadeOnceInGo(t *testing.T) {
	for name, send := range map[string]sender{
		"Transport": func(_ *testing.T, url string, body []byte) (int, string, error) {
			client := newClient()
			quickly(client)
			return receive(client.Post(url, "application/json", bytes.NewReader(body)))
		},
		"Transport behind retryablehttp": func(_ *testing.T, url string, body []byte) (int, string, error) {
			client := newRetryable()
			client.Logger = nil
			quickly(client.HTTPClient)
			return receive(client.Post(url, "application/json", body))
		},
		"Transport behind retryablehttp's StandardClient": func(_ *testing.T, url string, body []byte) (int, string, error) {
			client := newRetryable()
			client.Logger = nil
			quickly(client.HTTPClient)
			return receive(client.StandardClient().Post(url, "application/json", bytes.NewReader(body)))
		},
		"Transport behind a generated client": func(t *testing.T, url string, body []byte) (int, string, error) {
			client, err := newPayments(url)
			if err != nil {
				t.Fatal(err)
			}
			quickly(client.Client.(*http.Client))
			var p payments.Payment
			if err := json.Unmarshal(body, &p); err != nil {
				t.Fatal(err)
			}
			made, err := client.CreatePaymentWithResponse(t.Context(), nil, p)
			if err != nil {
				return 0, "", err
			}
			return made.HTTPResponse.StatusCode, string(made.Body), nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rows := without(redirected, "the response stalls", "a rejection is truncated") // for the last two, see below
			b := openFor(t, rows)
			for _, r := range rows {
				body, err := json.Marshal(r.payment)
				if err != nil {
					t.Fatal(err)
				}
				status, text, err := send(t, b.url, body)
				if err != nil {
					t.Errorf("%s: %v", r.Note, err)
				}
				b.check(t, r, status, text)
			}
			b.checkKeys(t)
		})
	}
}

func TestClients_AnAttemptThatStallsIsAbandonedInGo(t *testing.T) {
	t.Parallel()
	p := payment{"the response stalls", 5}
	b := newBank(t, map[string][]fault{p.Note: {stalls}})
	client := newClient()
	quickly(client)
	client.Transport.(*httponce.Transport).AttemptTimeout = 5 * time.Second // in which a busy machine makes the second one
	status, text, err := receive(client.Post(b.url, "application/json", jsonOf(t, p)))
	if err != nil {
		t.Fatal(err)
	}
	b.check(t, row{payment: p, status: 201, requests: 2, runs: 1}, status, text)
}

func TestClients_ATruncatedRejectionIsReturnedInGo(t *testing.T) {
	p := payment{"a rejection is truncated", 0}
	b := newBank(t, map[string][]fault{p.Note: {truncates}})
	status, _, err := receive(newClient().Post(b.url, "application/json", jsonOf(t, p)))
	if status != http.StatusBadRequest || !errors.Is(err, io.ErrUnexpectedEOF) || len(b.call(p.Note).keys) != 1 {
		t.Errorf("got %d, %v after the requests %v", status, err, b.call(p.Note).keys)
	}
}

func TestClients_AGeneratedClientSendsTheKeyThatItIsGiven(t *testing.T) {
	b := newBank(t, nil)
	client, err := newPayments(b.url)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // as two processes
		if err := pay(t.Context(), client, "stored-before", payments.Payment{Note: "given", Amount: 5}); err != nil {
			t.Error(err)
		}
	}
	if err := pay(t.Context(), client, "", payments.Payment{Note: "given", Amount: 5}); err == nil {
		t.Error("a payment with an empty key was sent")
	}
	if c := b.call("given"); c.runs != 1 || len(c.keys) != 2 || c.keys[0] != "stored-before" {
		t.Errorf("%d runs of requests with the keys %v", c.runs, c.keys)
	}
}

func TestClients_APaymentThatAProcessHasLeftIsSentAgainWithItsKey(t *testing.T) {
	p := payment{"the process ends", 5}
	b := newBank(t, map[string][]fault{p.Note: {loses}})
	db, err := sql.Open("sqlite", "file:"+t.TempDir()+"/payments.db")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec("CREATE TABLE payments (id INTEGER PRIMARY KEY, idempotency_key TEXT); INSERT INTO payments (id) VALUES (7)"); err != nil {
		t.Fatal(err)
	}
	first := newPayer(db)
	first.Transport.(*httponce.Transport).MaxAttempts = 1
	send := func(client *http.Client, key string) (int, string, error) {
		r, err := http.NewRequestWithContext(context.WithValue(t.Context(), paymentID{}, 7), http.MethodPost, b.url, jsonOf(t, p))
		if err != nil {
			t.Fatal(err)
		}
		if key != "" {
			r.Header.Set("Idempotency-Key", key)
		}
		return receive(client.Do(r))
	}
	var none *httponce.NoResponseError
	if _, _, err := send(first, ""); !errors.As(err, &none) {
		t.Fatal(err)
	}
	var key string
	if err := db.QueryRow("SELECT idempotency_key FROM payments WHERE id = 7").Scan(&key); err != nil || key != none.Key {
		t.Fatalf("the stored key is %q, %v, and the one that was sent %q", key, err, none.Key)
	}
	if _, _, err := send(newPayer(db), ""); err == nil || errors.As(err, &none) {
		t.Errorf("the payment was sent with another key: %v", err)
	}
	status, text, err := send(newPayer(db), key)
	if err != nil {
		t.Fatal(err)
	}
	b.check(t, row{payment: p, status: 201, requests: 2, runs: 1}, status, text)
}

func jsonOf(t *testing.T, p payment) io.Reader {
	t.Helper()
	body, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.NewReader(body)
}

func TestClients_RetriesOfRetryablehttpItselfWouldHaveOtherKeys(t *testing.T) {
	p := payment{"the library retries", 5}
	b := newBank(t, map[string][]fault{p.Note: {loses}})
	client := newRetryable()
	client.Logger, client.RetryWaitMin, client.CheckRetry = nil, time.Millisecond, retryablehttp.DefaultRetryPolicy
	client.HTTPClient.Transport.(*httponce.Transport).MaxAttempts = 1
	if _, _, err := receive(client.Post(b.url, "application/json", jsonOf(t, p))); err != nil {
		t.Fatal(err)
	}
	if c := b.call(p.Note); c.runs != 2 || c.keys[0] == c.keys[1] {
		t.Errorf("%d runs of requests with the keys %v: the guide warns of these retries", c.runs, c.keys)
	}
}
