package mysql

import (
	"slices"
	"strings"
	"testing"
)

func TestIdentity_EveryStatementAboutWhatAStoreHoldsIsForThatStoreOnly(t *testing.T) {
	const store = identity("onlyonce_store_0123456789abcdef")
	others := []string{
		"begin", "end", "end with locks", "release token", "savepoint", "release savepoint", "session", "isolation", "topics", // about no store
		"server version", "server name", "settings", "session variables", "semi-sync variables", "semi-sync status",
		"tables", "version", "migrate alone", "migrated", "identity", "describe", "probe", // sent before the store is open
		"lock", "lock uncompared", "outbox limit", "outbox unlimited", "outbox alone", "audit", // together with others of their transaction
		"outbox crowd", "outbox held back", "outbox looked at", // decide what "outbox move" moves
	}
	for name, text := range textsIn("shop", store, "0", "tx_read_only") {
		if is := strings.Contains(text, string(store)); is == slices.Contains(others, name) {
			t.Errorf("%q names the store: %v\n%s", name, is, text)
		}
		if column.MatchString(text) {
			t.Errorf("%q names the column of no store\n%s", name, text)
		}
	}
}
