package dynamostore_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/dynamostore"
	"github.com/onlyonce-go/onlyonce/stores/internal/hazard"
)

// A call whose confirmation is lost finds its own change when it looks.
func TestStore_ACallWhoseConfirmationIsLostTakesEffectOnce(t *testing.T) {
	t.Parallel()
	server, direct, observer := migrated(t)
	failed := onlyonce.Settlement{State: onlyonce.StateFailed}
	for name, call := range map[string]func(*testing.T, *dynamostore.Store, onlyonce.Record) error{
		"claim": func(t *testing.T, s *dynamostore.Store, r onlyonce.Record) error {
			c := hazard.Claim("claim")
			c.RetryFailed = true
			now, err := s.Claim(t.Context(), c)
			if now.Owner != c.Owner || now.Attempt != 2 || now.Fence <= r.Fence {
				t.Errorf("the claim got %+v", now)
			}
			return err
		},
		"renew": func(t *testing.T, s *dynamostore.Store, r onlyonce.Record) error {
			return s.Renew(t.Context(), hazard.Hold(r), time.Hour, map[string][]byte{"a": []byte("1")})
		},
		"settle": func(t *testing.T, s *dynamostore.Store, r onlyonce.Record) error {
			return s.Settle(t.Context(), hazard.Hold(r), hazard.Completed)
		},
		"release": func(t *testing.T, s *dynamostore.Store, r onlyonce.Record) error {
			return s.Settle(t.Context(), hazard.Hold(r), onlyonce.Settlement{})
		},
		"resolve": func(t *testing.T, s *dynamostore.Store, r onlyonce.Record) error {
			r.State = onlyonce.StateFailed
			return s.Resolve(t.Context(), r, hazard.Completed)
		},
		"delete": func(t *testing.T, s *dynamostore.Store, r onlyonce.Record) error {
			r.State = onlyonce.StateFailed
			return s.Resolve(t.Context(), r, onlyonce.Settlement{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := observer.Claim(t.Context(), hazard.Claim(name))
			if err == nil && (name == "claim" || name == "resolve" || name == "delete") {
				err = observer.Settle(t.Context(), hazard.Hold(r), failed)
			}
			if err != nil {
				t.Fatal(err)
			}
			revision := func() string {
				return fmt.Sprint(stored(t, direct, r.ID)["revision"].(*types.AttributeValueMemberB).Value)
			}
			before := revision()
			w := hazard.NewWay(t, server.Address)
			s := open(t, connect(t, w.Address()), dynamostore.Config{Timeout: 5 * time.Minute})

			if name == "claim" { // a first claim tries to make the record
				if _, err := s.Claim(t.Context(), hazard.Claim(name)); err != nil {
					t.Fatal(err)
				}
			}
			w.Deafen("X-Amz-Target: DynamoDB_20120810.PutItem")
			done := make(chan error, 1)
			go func() { done <- call(t, s, r) }()
			after := before
			for after == before {
				time.Sleep(time.Millisecond)
				after = revision()
			}
			w.Cut()
			w.Open()
			if err := <-done; err != nil {
				t.Errorf("the call: %v", err)
			}
			if last := revision(); name != "renew" && last != after {
				t.Error("the call was stored twice")
			}
		})
	}
}

// Once others have changed the record, a call whose confirmation was lost can't tell whether
// it took effect. It must not say that it changed nothing.
func TestStore_ACallWhoseConfirmationIsLostIsInDoubtOnceOthersHaveChangedTheRecord(t *testing.T) {
	t.Parallel()
	server, direct, observer := migrated(t)
	settle := func(t *testing.T, r onlyonce.Record, how onlyonce.Settlement) {
		t.Helper()
		if err := observer.Settle(t.Context(), hazard.Hold(r), how); err != nil {
			t.Fatal(err)
		}
	}
	remove := func(t *testing.T, r onlyonce.Record) {
		t.Helper()
		now, err := observer.Lookup(t.Context(), r.ID)
		if err == nil {
			err = observer.Resolve(t.Context(), now, onlyonce.Settlement{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		call   func(*testing.T, *dynamostore.Store, onlyonce.Record) error
		others func(*testing.T, onlyonce.Record)
	}{
		"renew": {func(t *testing.T, s *dynamostore.Store, r onlyonce.Record) error {
			return s.Renew(t.Context(), hazard.Hold(r), time.Hour, map[string][]byte{"a": []byte("1")})
		}, func(t *testing.T, r onlyonce.Record) { settle(t, r, hazard.Completed) }},
		"settle": {func(t *testing.T, s *dynamostore.Store, r onlyonce.Record) error {
			return s.Settle(t.Context(), hazard.Hold(r), hazard.Completed)
		}, remove},
		"release": {func(t *testing.T, s *dynamostore.Store, r onlyonce.Record) error {
			return s.Settle(t.Context(), hazard.Hold(r), onlyonce.Settlement{})
		}, func(t *testing.T, r onlyonce.Record) { hazard.Run(t, observer, r.ID.Key) }},
		"resolve": {func(t *testing.T, s *dynamostore.Store, r onlyonce.Record) error {
			r.State = onlyonce.StateUnknown
			return s.Resolve(t.Context(), r, hazard.Completed)
		}, remove},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := observer.Claim(t.Context(), hazard.Claim(name))
			if err != nil {
				t.Fatal(err)
			}
			if name == "resolve" {
				settle(t, r, onlyonce.Settlement{State: onlyonce.StateUnknown})
			}
			revision := func() string {
				return fmt.Sprint(stored(t, direct, r.ID)["revision"].(*types.AttributeValueMemberB).Value)
			}
			before := revision()
			w := hazard.NewWay(t, server.Address)
			s := open(t, connect(t, w.Address()), dynamostore.Config{Timeout: 5 * time.Minute})
			w.Deafen("X-Amz-Target: DynamoDB_20120810.PutItem")
			done := make(chan error, 1)
			go func() { done <- c.call(t, s, r) }()
			for revision() == before {
				time.Sleep(time.Millisecond)
			}
			c.others(t, r)
			w.Cut()
			w.Open()
			if err := <-done; err == nil || errors.Is(err, onlyonce.ErrLost) || errors.Is(err, onlyonce.ErrNotFound) {
				t.Errorf("the call: %v", err)
			}
		})
	}
}
