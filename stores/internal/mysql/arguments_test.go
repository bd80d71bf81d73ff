package mysql

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
		claims  server.ClaimArgs
		settled server.SettledArgs
		seen    server.SeenArgs
		records recordArgs
	)
	_, list := (&dialect{texts: texts}).List(onlyonce.Filter{}, new(record.Page))
	sent := map[string]int{
		"claim":           len(claim(claims, 0)),
		"resolve":         len(decision(server.SettledArgs{State: "completed"}, seen, nil)),
		"remove":          len(decision(settled, seen, nil)),
		"record":          len(records.list()),
		"record again":    len(records.again(seen, nil)),
		"audit":           1 + len(server.AuditArgs{}.List()), // the hash of the ID comes first
		"look":            1,                                  // the hash of the ID, here and below
		"lookup current":  1,
		"list":            len(list),
		"list processing": len(list),
		"list unresolved": len(list),
		"list by id":      2 + len(list), // the first and the last
		"lapsed":          2,             // the clock and a limit
		"forgettable":     2,
		"due":             2,
		"lapse":           1, // the clock; the hashes take the place of {ids}
		"forget":          1,
		"purge":           2, // the clock and the highest fence
		"free":            1, // the database
		"describe":        1, // a name
	}
	maps.Copy(sent, sqltest.Server())
	maps.Copy(sent, sqltest.Outbox())
	maps.Copy(sent, map[string]int{ // the parameters of a row
		"claims":  len((&claimRow{}).appendTo(nil)),
		"settles": len((&settleRow{}).appendTo(nil)),
		"owners":  1, // the hash of an ID
	})
	sqltest.CheckArguments(t, texts, sent)
}
