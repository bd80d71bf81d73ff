package dynamostore_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/dynamostore"
	"github.com/onlyonce-go/onlyonce/stores/internal/hazard"
)

func TestStore_ATableThatHasForgottenRunsNoNewCommand(t *testing.T) {
	t.Parallel()
	_, client, s := migrated(t)
	for name, forget := range map[string]func(){
		"the table is gone": func() {
			if _, err := client.DeleteTable(t.Context(), &dynamodb.DeleteTableInput{TableName: table}); err != nil {
				t.Fatal(err)
			}
		},
		"the table is empty": func() {
			for _, key := range keys(t, client, "") {
				remove(t, client, key)
			}
		},
	} {
		id := hazard.Run(t, s, "before")
		forget()
		for n := 0; ; n++ { // within a second, a claim may still be granted
			_, err := s.Claim(t.Context(), hazard.Claim(fmt.Sprint(name, n)))
			if errors.Is(err, dynamostore.ErrForgotten) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if r, err := s.Claim(t.Context(), hazard.Claim("before")); !errors.Is(err, dynamostore.ErrForgotten) {
			t.Errorf("%s: claim got %v and error %v", name, r, err)
		}
		if _, err := s.Lookup(t.Context(), hazard.Claim("another").ID); !errors.Is(err, dynamostore.ErrForgotten) || errors.Is(err, onlyonce.ErrNotFound) {
			t.Errorf("%s: lookup: %v", name, err)
		}
		if _, err := dynamostore.Open(t.Context(), client, emulated(dynamostore.Config{})); err == nil || !strings.Contains(err.Error(), "forgotten: ") {
			t.Errorf("%s: open: %v", name, err)
		}
		migrate(t, client, dynamostore.Config{})
		if _, err := s.Lookup(t.Context(), id); !errors.Is(err, onlyonce.ErrNotFound) {
			t.Errorf("%s: lookup after Migrate: %v", name, err)
		}
	}
}

func TestStore_MigratingAgainForgetsNothing(t *testing.T) {
	t.Parallel()
	_, client, s := migrated(t)
	id := hazard.Run(t, s, "k")
	if made, err := dynamostore.Migrate(t.Context(), client, emulated(dynamostore.Config{})); made || err != nil {
		t.Errorf("made %v, error %v", made, err)
	}
	if r, err := s.Lookup(t.Context(), id); err != nil || r.State != onlyonce.StateCompleted {
		t.Errorf("the record is %+v, error %v", r, err)
	}
}
