package orders

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/services/internal/apitest"
)

func TestConfig_TheTimesHaveTheirDefaults(t *testing.T) {
	c := Config{}.withDefaults()
	if c.Keep != 24*time.Hour || c.Lease != 30*time.Second || c.MaxWait != 10*time.Second || c.AllowAnonymous || c.KeepFailures {
		t.Errorf("they are %+v", c)
	}
}

func TestConfig_ANegativeTimeIsRejectedWithWhatToWriteInstead(t *testing.T) {
	for name, c := range map[string]Config{"Keep": {Keep: -1}, "Lease": {Lease: -1}, "MaxWait": {MaxWait: -1}} {
		func() {
			defer func() {
				if text := fmt.Sprint(recover()); !strings.Contains(text, "orders: Config."+name) || !strings.Contains(text, "or leave it 0") {
					t.Errorf("%s: %s", name, text)
				}
			}()
			c.withDefaults()
		}()
	}
}

func TestConfig_ServersThatStartTogetherMakeTheTablesOnce(t *testing.T) {
	apitest.OnEngines(t, func(t *testing.T, on *apitest.Database) {
		db, store := openStore(t, on)
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				if _, err := New(t.Context(), db, store, store.Outbox(), Config{}); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		var n int
		if err := db.QueryRow("SELECT count(*) FROM orders_schema WHERE version_id > 0").Scan(&n); err != nil || n != 3 {
			t.Errorf("%d versions, %v", n, err)
		}
	})
}
