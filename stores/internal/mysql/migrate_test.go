package mysql

import (
	"slices"
	"strings"
	"testing"
)

func TestMigrate_AStatementEndsOnlyAtASemicolonOutsideOfCommentsAndQuotes(t *testing.T) {
	got := split(`-- What this is for;
# and this;
--
/* two
lines; */
CREATE TABLE a (
  b INT, -- a note that ends in a semicolon;
  c INT  -- it's another;
) COMMENT = 'one;
two'; SET @a = 'it''s; \';', @b = "x;""y;";
INSERT INTO ` + "`a;b`" + ` VALUES (3 - -1, 4--1);

-- the end;
`)
	want := []string{
		"CREATE TABLE a (\n  b INT, \n  c INT  \n) COMMENT = 'one;\ntwo'",
		`SET @a = 'it''s; \';', @b = "x;""y;"`,
		"INSERT INTO `a;b` VALUES (3 - -1, 4--1)",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the statements are\n%q, want\n%q", got, want)
	}
}

func TestMigrate_EveryMigrationIsSplitAtTheEndsOfItsLines(t *testing.T) {
	for _, m := range Migrations {
		if got, want := len(split(m.SQL)), strings.Count(m.SQL, ";\n"); got != want {
			t.Errorf("version %d has %d statements, want %d", m.Version, got, want)
		}
	}
}
