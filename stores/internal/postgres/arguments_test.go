package postgres

import (
	"maps"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
	"github.com/onlyonce-go/onlyonce/stores/internal/server"
	"github.com/onlyonce-go/onlyonce/stores/internal/sqltest"
)

func TestArguments_AreAsManyAsTheParametersOfEveryStatement(t *testing.T) {
	var (
		claim   server.ClaimArgs
		hold    server.HoldArgs
		settled server.SettledArgs
		seen    server.SeenArgs
		records RecordArgs
		audit   server.AuditArgs
	)
	_, list := unidentified.List(onlyonce.Filter{}, new(record.Page))
	_, listByID := unidentified.List(onlyonce.Filter{IDPrefix: "3f"}, new(record.Page))
	claims := ClaimColumns(nil, func(struct{}) (*[32]byte, *onlyonce.Claim) { return nil, nil })
	settles := SettleColumns(nil, func(struct{}) (*[32]byte, *onlyonce.Hold, *onlyonce.Settlement) { return nil, nil, nil })
	sent := map[string]int{
		"claim":             len(claim.List()),
		"claims":            len(claims),
		"raise in":          len(hold.List()),
		"settles":           len(settles),
		"resolve":           len(Decision(server.SettledArgs{State: "completed"}, seen, nil)),
		"remove":            len(Decision(settled, seen, nil)),
		"resolve and audit": len(Decision(server.SettledArgs{State: "completed"}, seen, nil)) + len(audit.List()),
		"remove and audit":  len(Decision(settled, seen, nil)) + len(audit.List()),
		"record":            len(records.List()),
		"look":              2, // the hash of the ID and the lock of a token
		"lookups":           2, // the hashes, and the longest body
		"lock":              3, // the locks
		"ended":             1, // the lock of a token
		"list":              len(list),
		"list processing":   len(list),
		"list unresolved":   len(list),
		"list by id":        len(listByID),
		"lapse":             1, // a limit
		"forget":            1,
		"due":               1,
		"purge":             2, // a limit and the floor
		"arrays":            1,
	}
	maps.Copy(sent, sqltest.Server())
	maps.Copy(sent, sqltest.Outbox())
	sqltest.CheckArguments(t, Text, sent)
}
