package pgxstore

import (
	"maps"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/group"
	"github.com/onlyonce-go/onlyonce/stores/internal/postgres"
	"github.com/onlyonce-go/onlyonce/stores/internal/server"
	"github.com/onlyonce-go/onlyonce/stores/internal/sqltest"
)

func TestArguments_AreAsManyAsTheParametersOfEveryStatement(t *testing.T) {
	var (
		end     endArgs
		settled server.SettledArgs
		records postgres.RecordArgs
	)
	own := maps.Clone(sqlText)
	maps.DeleteFunc(own, func(name, _ string) bool { return postgres.Text[name] != "" })
	sqltest.CheckArguments(t, own, map[string]int{
		"record new or fail": len(recordNew(&records)),
		"record or fail":     len(records.List()),
		"settle or fail":     len(end.settle(settled)),
		"release or fail":    len(end.release()),
		"notify":             2, // the channel and the names
		"is listening":       1, // the listeners' lock, here and below
		"listening":          1,
	})
}

func TestStatement_OthersDoNotWaitForAResultWhoseHeaderIsLong(t *testing.T) {
	for size, long := range map[int]bool{group.LongestShared / 2: false, group.LongestShared: true} {
		header := map[string][]string{"A": {string(make([]byte, size))}}
		s := &statement{query: settleQuery, settlement: &onlyonce.Settlement{Result: onlyonce.Result{Header: header}}}
		if s.isLong() != long {
			t.Errorf("a header of %d bytes: long is %v", size, !long)
		}
	}
}
