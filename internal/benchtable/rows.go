package main

import "slices"

// A metric is a figure of a benchmark.
type metric struct {
	benchmark string // its name without "Benchmark" and the number of processors
	unit      string // such as "op/s"
}

// A row compares two metrics of one package: the ratio is that of the first to the second.
type row struct {
	subject string // such as "PostgreSQL"
	work    string
	than    string // the baseline
	dir     string // of the package with the benchmarks, from the top of the repository
	pattern string // of the benchmarks, as go test takes it
	time    string // how long each of them runs, as go test takes it
	of, to  metric
	goal    float64
	least   bool // the ratio is to be at least the goal, otherwise at most
}

func (r row) String() string { return r.subject + ", " + r.work }

// throughput returns a row that is reached if of does at least goal times as many
// operations per second as to.
func throughput(r row, of, to string, goal float64) row {
	r.of, r.to, r.goal, r.least = metric{of, "op/s"}, metric{to, "op/s"}, goal, true
	return r
}

// cost returns a row that is reached if a metric is at most goal times another one.
func cost(r row, of, to metric, goal float64) row {
	r.of, r.to, r.goal = of, to, goal
	return r
}

// Packages with benchmarks, from the top of the repository.
const (
	dirPGX         = "stores/pgxstore"
	dirEtcd        = "stores/etcdstore/servertest"
	dirIntegration = "internal/integration"
	dirHTTP        = "httponce"
	dirProxy       = "proxy"
)

func postgres(work, than, pattern string) row {
	return row{subject: "PostgreSQL", work: work, than: than, dir: dirPGX, pattern: pattern, time: "1s"}
}

func integration(subject, work, than, pattern, time string) row {
	return row{subject: subject, work: work, than: than, dir: dirIntegration, pattern: pattern, time: time}
}

func wrap(work string) row {
	return row{subject: "Wrap", work: work, than: "minimal middleware", dir: dirHTTP, pattern: "^BenchmarkWrap$", time: "20000x"}
}

func throughProxy(work string) row {
	return row{subject: "Proxy", work: work, than: "ReverseProxy with a BufferPool", dir: dirProxy, pattern: "^BenchmarkProxy$", time: "4x"}
}

const (
	claims   = "^BenchmarkClaimAndSettle$"
	replays  = "^BenchmarkReplay$"
	runTx    = "^BenchmarkRunTx$"
	sqlite   = "^BenchmarkSQLite$"
	sqliteTx = "^BenchmarkSQLiteDoTx$"
	mariaDB  = "^BenchmarkMySQL$"
	redis    = "^BenchmarkRedis$"
	nats     = "^BenchmarkNATS$"
	etcd     = "^Benchmark(ClaimAndSettle|Bare)$"
	proxied  = "Proxy"
)

// rows are those of the table, in its order.
var rows = []row{
	cost(postgres("1 caller, latency", "plain pgx", claims), metric{"ClaimAndSettle/group/1", "ns/op"}, metric{"ClaimAndSettle/naive/1", "ns/op"}, 1.05),
	throughput(postgres("256 callers", "plain pgx, pool of 4", claims), "ClaimAndSettle/group/256", "ClaimAndSettle/naive/256", 10),
	throughput(postgres("replays, 256 callers", "a SELECT each", replays), "Replay/group/256", "Replay/naive/256", 4),
	throughput(postgres("RunTx, 1 caller", "BEGIN, INSERT, COMMIT", runTx), "RunTx/once/1", "RunTx/insert/1", 0.75),
	throughput(postgres("RunTx, 16 callers", "BEGIN, INSERT, COMMIT", runTx), "RunTx/once/16", "RunTx/insert/16", 0.6),
	throughput(postgres("RunTx, 64 callers", "BEGIN, INSERT, COMMIT", runTx), "RunTx/once/64", "RunTx/insert/64", 0.55),
	throughput(integration("MariaDB", "1 caller", "two statements", mariaDB, "1s"), "MySQL/claim+settle/group/1", "MySQL/claim+settle/naive/1", 0.95),
	throughput(integration("MariaDB", "16 callers", "two statements", mariaDB, "1s"), "MySQL/claim+settle/group/16", "MySQL/claim+settle/naive/16", 1),
	throughput(integration("MariaDB", "256 callers", "two statements", mariaDB, "1s"), "MySQL/claim+settle/group/256", "MySQL/claim+settle/naive/256", 5),
	cost(integration("SQLite", "1 caller, latency", "one row at a time", sqlite, "20000x"), metric{"SQLite/claim+settle/group/1", "ns/op"}, metric{"SQLite/claim+settle/naive/1", "ns/op"}, 1.15),
	throughput(integration("SQLite", "256 callers", "one row at a time", sqlite, "20000x"), "SQLite/claim+settle/group/256", "SQLite/claim+settle/naive/256", 15),
	throughput(integration("SQLite", "DoTx, 64 callers", "one transaction per call", sqliteTx, "20000x"), "SQLiteDoTx/group/64", "SQLiteDoTx/naive/64", 5),
	cost(integration("Redis", "1 caller, latency", "two scripts on go-redis", redis, "8000x"), metric{"Redis/claim+settle/store/1", "ns/op"}, metric{"Redis/claim+settle/naive/1", "ns/op"}, 1.05),
	throughput(integration("Redis", "256 callers", "two scripts on go-redis", redis, "8000x"), "Redis/claim+settle/store/256", "Redis/claim+settle/naive/256", 3),
	throughput(integration("Redis", "256 callers", "two SETs, redis-benchmark -P 32", redis, "8000x"), "Redis/claim+settle/store/256", "Redis/two-sets", 0.7),
	throughput(integration("NATS", "256 callers", "Create and Update", nats, "4000x"), "NATS/claim+settle/store/256", "NATS/claim+settle/naive/256", 0.7),
	throughput(row{subject: "etcd", work: "256 callers", than: "two bare transactions", dir: dirEtcd, pattern: etcd, time: "2000x"}, "ClaimAndSettle/callers=256", "Bare/callers=256", 0.7),
	cost(wrap("first"), metric{"Wrap/first", "ns/op"}, metric{"Wrap/minimal/first", "ns/op"}, 2.5),
	cost(wrap("replay"), metric{"Wrap/replay", "ns/op"}, metric{"Wrap/minimal/replay", "ns/op"}, 1.8),
	cost(wrap("first, 100 KiB"), metric{"Wrap/100KiB/first", "ns/op"}, metric{"Wrap/100KiB/minimal/first", "ns/op"}, 1.2),
	cost(wrap("replay, 100 KiB"), metric{"Wrap/100KiB/replay", "ns/op"}, metric{"Wrap/100KiB/minimal/replay", "ns/op"}, 1.2),
	cost(throughProxy("no key, processor time"), metric{proxied, "unkeyed-cpu-µs"}, metric{proxied, "pooled-cpu-µs"}, 0.6),
	cost(throughProxy("new key, processor time"), metric{proxied, "new-cpu-µs"}, metric{proxied, "pooled-cpu-µs"}, 0.8),
	cost(throughProxy("replay, processor time"), metric{proxied, "replay-cpu-µs"}, metric{proxied, "pooled-cpu-µs"}, 0.35),
}

// A group is a set of benchmarks that run together.
type group struct{ pattern, time string }

// groups returns those of the rows of a package, in their order.
func groups(dir string, chosen []row) (all []group) {
	for _, r := range chosen {
		if g := (group{r.pattern, r.time}); r.dir == dir && !slices.Contains(all, g) {
			all = append(all, g)
		}
	}
	return all
}
