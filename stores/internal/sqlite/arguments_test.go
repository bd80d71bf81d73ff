package sqlite

import (
	"maps"
	"testing"

	"github.com/onlyonce-go/onlyonce/stores/internal/sqltest"
)

func TestArguments_AreAsManyAsTheParametersOfEveryStatement(t *testing.T) {
	var (
		claim     claimArgs
		take      takeArgs
		hold      holdArgs
		completed completedArgs
		settled   settledArgs
		record    recordArgs
		audit     auditArgs
		key       keyArgs
		floor     floorArgs
		due       dueArgs
	)
	sent := map[string]int{
		"claim":            len(claim.list().claim(0)),
		"insert":           len(claim.list().insert(0, 0, 0)),
		"take":             len(take.list()),
		"release":          len(hold.release()),
		"renew":            len(hold.renew(nil, 0)),
		"settle completed": len(completed.list().at(0, nil)),
		"settle":           len(settled.settle(&hold)),
		"resolve":          len(settled.resolve(false, false, nil, 0, nil)),
		"record":           len(settled.record(&record)),
		"audit":            len(audit.list()),
		"audit trail":      len(key.list()),
		"lookup":           len(key.list()),
		"known":            len(key.list()),
		"trace":            len(key.list()),
		"delete":           len(key.delete(0)),
		"step":             len(key.step(nil)),
		"token":            len(key.token(nil)),
		"floor":            len(floor.list()),
		"highest due":      len(due.list()),
		"purge":            len(due.list()),
		"forget":           len(due.list()),
		"lapsed":           len(due.list()),
		"list":             len((&listArgs{}).list(nil, nil)),
		"list processing":  len((&listArgs{}).list(nil, nil)),
		"list unresolved":  len((&listArgs{}).list(nil, nil)),
		"list by id":       len((&listArgs{}).list(make([][]byte, 2), nil)),
	}
	maps.Copy(sent, sqltest.Outbox())
	sqltest.CheckArguments(t, statements, sent)
}
