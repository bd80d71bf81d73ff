package postgres

import (
	"slices"
	"strings"
	"testing"
)

func TestIdentity_EveryStatementAboutWhatAStoreHoldsIsForThatStoreOnly(t *testing.T) {
	const identity = Identity("onlyonce_now_0123456789abcdef")
	others := []string{
		"arrays", "begin", "commit", "rollback", "group begin", "server version", "settings", // about no store
		"tables", "version", "migrate alone", "lock records", "lock outbox", "sequence", "identity", // sent before the identity is known
		"lock", "mark", "outbox brief", "outbox alone", // followed by others of their transaction
		"outbox crowd", "outbox held back", "outbox looked at", // decide what "outbox move" moves
	}
	for name, text := range identity.In(Text) {
		if is := strings.Contains(text, string(identity)+"()"); is == slices.Contains(others, name) {
			t.Errorf("%q names the store: %v\n%s", name, is, text)
		}
		if strings.Contains(text, clock+"()") {
			t.Errorf("%q names the clock of no store\n%s", name, text)
		}
	}
}
