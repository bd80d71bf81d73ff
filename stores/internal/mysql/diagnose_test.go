package mysql

import (
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce/stores/internal/engine"
)

// The variables as MariaDB and MySQL 5.7 name them, and as MySQL 8.0.26 and newer do.
func TestDiagnose_SemiSynchronousReplicationThatDoesNotWaitIsFound(t *testing.T) {
	for prefix, replica := range map[string]string{"rpl_semi_sync_master": "slave", "rpl_semi_sync_source": "replica"} {
		safe := map[string]string{"_enabled": "ON", "_timeout": "4294967295", "_wait_no_" + replica: "ON", "_status": "ON"}
		for _, c := range []struct{ name, value, problem string }{
			{"_enabled", "ON", ""},
			{"_timeout", "10000", prefix + "_timeout is 10000 ms"},
			{"_timeout", "86399999", prefix + "_timeout is 86399999 ms"},
			{"_timeout", "86400000", ""},
			{"_timeout", "18446744073709551615", ""},
			{"_wait_no_" + replica, "OFF", prefix + "_wait_no_" + replica + " is OFF"},
			{"_status", "OFF", prefix + "_status is OFF"},
		} {
			has := make(map[string]string)
			for name, value := range safe {
				has[prefix+name] = value
			}
			has[prefix+c.name] = c.value
			found := semiSync(has, prefix, replica)
			if len(found) > 1 || (len(found) == 1) != (c.problem != "") || c.problem != "" && (!strings.HasPrefix(found[0].Problem, c.problem) || found[0].Name != riskSync) {
				t.Errorf("%s = %s: found %v", c.name, c.value, found)
			}
			has[prefix+"_enabled"] = "OFF"
			if found := semiSync(has, prefix, replica); found != nil {
				t.Errorf("%s = %s, but it is not enabled: found %v", c.name, c.value, found)
			}
		}
	}
}

func TestDiagnose_VariablesThatUndoWhatASessionWritesAreFound(t *testing.T) {
	for _, c := range []struct {
		finding string
		has     map[string]string
	}{
		{"", map[string]string{"tx_isolation": "READ-COMMITTED", "completion_type": "NO_CHAIN", "log_bin": "ON", "binlog_format": "ROW"}},
		{"", map[string]string{"transaction_isolation": "SERIALIZABLE", "completion_type": "RELEASE", "log_bin": "ON", "binlog_format": "MIXED"}},
		{"", map[string]string{"log_bin": "OFF", "binlog_format": "STATEMENT"}},
		{riskDirty, map[string]string{"tx_isolation": "READ-UNCOMMITTED"}},
		{riskDirty, map[string]string{"transaction_isolation": "READ-UNCOMMITTED"}},
		{riskDirty, map[string]string{"tx_isolation": "READ-UNCOMMITTED", "transaction_isolation": "READ-UNCOMMITTED"}},
		{engine.RiskReplica, map[string]string{"tx_read_only": "ON"}},
		{engine.RiskReplica, map[string]string{"tx_read_only": "ON", "transaction_read_only": "ON"}},
		{"", map[string]string{"tx_read_only": "OFF", "transaction_read_only": "OFF"}},
		{riskChain, map[string]string{"completion_type": "CHAIN"}},
		{riskCharset, map[string]string{"character_set_connection": "utf16le"}},
		{"", map[string]string{"character_set_connection": "utf8mb4"}},
		{"", map[string]string{"character_set_connection": "latin1"}},
		{riskFormat, map[string]string{"log_bin": "ON", "binlog_format": "STATEMENT"}},
	} {
		found := unusableSession(c.has)
		if len(found) > 1 || (len(found) == 1) != (c.finding != "") || c.finding != "" && found[0].Name != c.finding {
			t.Errorf("%v: found %v, want %q", c.has, found, c.finding)
		}
	}
}
