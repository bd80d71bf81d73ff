package record

import (
	"maps"
	"testing"
)

func TestBlocks_StatementsHoldThePartsThatTheyName(t *testing.T) {
	got := Blocks(`
-- What this file is.

-- part: own
owner = $1 AND {alive}

-- part: alive
-- By the clock now.
lease > 0

-- name: renew
-- Renews.
UPDATE t SET lease = 1
WHERE {own};

-- part: at least
score >= $n AND $n > 0

-- name: best
SELECT 1 WHERE {at least $2} OR {at least $10};

-- part: settings
SET $n jit = off

-- name: settings of a transaction
{settings LOCAL}; {SETTINGS};

-- name: renew or fail
WITH put AS ({renew}) SELECT '{filter}', {now_once};
`)
	want := map[string]string{
		"renew":                     "UPDATE t SET lease = 1\nWHERE owner = $1 AND lease > 0",
		"best":                      "SELECT 1 WHERE score >= $2 AND $2 > 0 OR score >= $10 AND $10 > 0",
		"settings of a transaction": "SET LOCAL jit = off; {SETTINGS}",
		"renew or fail":             "WITH put AS (UPDATE t SET lease = 1\nWHERE owner = $1 AND lease > 0) SELECT '{filter}', {now_once}",
	}
	if !maps.Equal(got, want) {
		t.Errorf("the statements are %q", got)
	}
}

func TestBlocks_AMistakeInAFileOfStatementsPanics(t *testing.T) {
	for what, file := range map[string]string{
		"a name that is there twice": "-- name: a\n1;\n-- name: a\n2;\n",
		"a part that nobody uses":    "-- part: a\n1\n-- name: b\n2;\n",
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s is no mistake", what)
				}
			}()
			Blocks(file)
		}()
	}
}
