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
		take    server.TakeArgs
		hold    server.HoldArgs
		settled server.SettledArgs
		seen    server.SeenArgs
		fence   server.KeepFenceArgs
		records recordArgs
	)
	_, list := dialect{}.List(onlyonce.Filter{}, record.Top)
	claims := ClaimColumns(nil, func(struct{}) (*[32]byte, *onlyonce.Claim) { return nil, nil })
	settles := SettleColumns(nil, func(struct{}) (*[32]byte, *onlyonce.Hold, *onlyonce.Settlement) { return nil, nil, nil })
	sent := map[string]int{
		"claim":             len(claim.List()),
		"claim in":          len(claim.List()),
		"claims":            len(claims),
		"take":              len(take.List()),
		"raise":             len(hold.List()),
		"raise in":          len(hold.List()),
		"renew":             len(hold.Renew(0)),
		"step":              len(hold.Step(0, nil, nil)),
		"settle":            len(settled.Settle(&hold)),
		"settle with rows":  len(settled.SettleWithRows(nil, &hold)),
		"settles":           len(settles),
		"release":           len(hold.List()),
		"release with rows": len(hold.ReleaseWithRows(nil)),
		"resolve":           len(decision(&settled, &seen, nil)),
		"remove":            len(decision(nil, &seen, nil)),
		"record":            len(records.list(&settled)),
		"keep fence":        len(fence.List()),
		"raise floor":       1, // the fence
		"look":              2, // the hash of the ID and the lock of a token
		"lookup":            1, // the hash of the ID, here and below
		"lookups":           1,
		"trace":             1,
		"lock":              3, // the locks
		"ended":             1, // the lock of a token
		"list":              len(list),
		"lapse":             1, // a limit
		"due":               1,
		"purge":             2, // a limit and the floor
		"arrays":            1,
	}
	maps.Copy(sent, sqltest.Outbox())
	sqltest.CheckArguments(t, Text, sent)
}
