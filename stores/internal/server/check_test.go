package server_test

import (
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce/stores/internal/mysql"
	"github.com/onlyonce-go/onlyonce/stores/internal/postgres"
	"github.com/onlyonce-go/onlyonce/stores/internal/server"
)

// The versions are those that the databases report.
func TestUnsupported_DatabasesThatOnlySpeakTheProtocolAreRejectedByName(t *testing.T) {
	for version, name := range map[string]string{
		"CockroachDB CCL v24.1.0 (x86_64-pc-linux-gnu, built 2024/05/15 21:28:29, go1.22.2 X:nocoverageredesign)":                                               "CockroachDB",
		"PostgreSQL 15.12-YB-2025.1.0.0-b0 on x86_64-pc-linux-gnu, compiled by clang version 17.0.6, 64-bit":                                                    "YugabyteDB",
		"PostgreSQL 11.2-YB-2.18.0.0-b0 on x86_64-pc-linux-gnu, compiled by clang version 15.0.3 (https://github.com/yugabyte/llvm-project.git 0b8d1183745fd3)": "YugabyteDB",
		"8.0.11-TiDB-v7.5.0":           "TiDB",
		"5.7.25-TiDB-v6.1.0":           "TiDB",
		"8.0.30-Vitess":                "Vitess",
		"5.7.25-OceanBase_CE-v4.2.1.0": "OceanBase",
	} {
		if postgres.Is(version) || mysql.Is(version) {
			t.Errorf("%s is taken for PostgreSQL or MySQL", version)
		}
		if err := server.Unsupported("PostgreSQL is supported", version); !strings.Contains(err.Error(), "PostgreSQL is supported; this database is "+name+", which") {
			t.Errorf("%s: %v", version, err)
		}
	}
	if err := server.Unsupported("PostgreSQL is supported", "Quux 1"); err.Error() != "PostgreSQL is supported; this database is Quux 1" {
		t.Error(err)
	}
	for version, is := range map[string]func(string) bool{
		"PostgreSQL 15.19 (Debian 15.19-0+deb12u1) on x86_64-pc-linux-gnu, compiled by gcc (Debian 12.2.0-14+deb12u1) 12.2.0, 64-bit": postgres.Is,
		"10.11.19-MariaDB-0+deb12u1-log": mysql.Is,
		"8.0.36":                         mysql.Is,
		"8.0.36-0ubuntu0.22.04.1":        mysql.Is,
	} {
		if !is(version) || server.Other(version) != "" {
			t.Errorf("%s is not supported", version)
		}
	}
}
