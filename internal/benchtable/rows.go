package main

import "slices"

// A metric is a figure of a benchmark.
type metric struct {
	benchmark string // its name without "Benchmark" and the number of processors
	unit      string // such as "op/s"
}

// A kind is how the result of a row is computed from its metrics.
type kind int

const (
	ratio      kind = iota // of divided by to
	difference             // of minus to
	amount                 // of alone
)

// A row is one figure of a package's benchmarks, or compares two.
type row struct {
	subject string // such as "PostgreSQL"
	work    string
	than    string // the baseline; empty if there is none
	dir     string // of the package with the benchmarks, from the top of the repository
	pattern string // of the benchmarks, as go test takes it
	time    string // how long each of them runs, as go test takes it
	slow    bool   // it takes minutes
	kind    kind
	of, to  metric
	unit    string // of a result that is no ratio
	goal    float64
	least   bool // the result is to be at least the goal, otherwise at most

	// missing is why the row can't be measured at all; it has no benchmark then.
	missing string
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

// added returns a row that is reached if a metric is at most goal units more than another one.
func added(r row, of, to metric, goal float64, unit string) row {
	r.kind, r.of, r.to, r.goal, r.unit = difference, of, to, goal, unit
	return r
}

// most returns a row that is reached if a metric is at most goal units.
func most(r row, of metric, goal float64, unit string) row {
	r.kind, r.of, r.goal, r.unit = amount, of, goal, unit
	return r
}

// lasting returns a row whose benchmarks take minutes.
func lasting(r row) row {
	r.slow = true
	return r
}

// Packages with benchmarks, from the top of the repository.
const (
	dirRoot        = "."
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

func mariaDB(work string) row {
	return integration("MariaDB", work, "two statements, pool of 64", "^BenchmarkMySQL$", "1s")
}

// batched is a row of a file that has no records at first; batched1M is one of a file with a
// million, which takes minutes to fill.
func batched(work string) row {
	return integration("SQLite", work, "batched writer in C", "^BenchmarkSQLiteBatched$/^empty$", "20000x")
}

func batched1M(work string) row {
	return lasting(integration("SQLite", work, "batched writer in C", "^BenchmarkSQLiteBatched$/^1M$", "20000x"))
}

func purge(subject string) row {
	return lasting(integration(subject, "purge of 1M records, p99 of others", "without the purge", "^BenchmarkPurge$", "1x"))
}

func wrap(work string) row {
	return row{subject: "Wrap", work: work, than: "minimal middleware", dir: dirHTTP, pattern: "^BenchmarkWrap$/^(bare|minimal|first|replay)$", time: "50000x"}
}

func wrap100KiB(work string) row {
	return row{subject: "Wrap", work: work, than: "minimal middleware", dir: dirHTTP, pattern: "^BenchmarkWrap$/^100KiB$", time: "5000x"}
}

func throughProxy(work string) row {
	return row{subject: "Proxy", work: work, than: "ReverseProxy with a BufferPool", dir: dirProxy, pattern: "^BenchmarkProxy$", time: "4x"}
}

func guard(work, pattern, time string) row {
	return row{subject: "Guard", work: work, dir: dirRoot, pattern: pattern, time: time}
}

const (
	claims   = "^BenchmarkClaimAndSettle$"
	replays  = "^BenchmarkReplay$"
	runTx    = "^BenchmarkRunTx$"
	sqlite   = "^BenchmarkSQLite$"
	sqliteTx = "^BenchmarkSQLiteDoTx$"
	redis    = "^BenchmarkRedis$"
	nats     = "^BenchmarkNATS$"
	etcd     = "^Benchmark(ClaimAndSettle|Bare)$"
	proxied  = "Proxy"
	mySQL    = "MySQL/claim+settle/"
	inRedis  = "Redis/claim+settle/"
)

// rows are those of the table, in its order.
var rows = []row{
	throughput(postgres("256 callers", "pgbench in pipelines, one commit per batch", claims), "ClaimAndSettle/group/256", "ClaimAndSettle/pgbench/one-commit/256", 1.1),
	throughput(postgres("256 callers", "plain pgx, pool of 4", claims), "ClaimAndSettle/group/256", "ClaimAndSettle/naive/256", 10),
	throughput(postgres("256 callers", "plain pgx, pool of 64", claims), "ClaimAndSettle/group/256", "ClaimAndSettle/naive64/256", 6),
	{
		subject: "PostgreSQL", work: "256 callers", than: "idemlease, pool of 64", goal: 6, least: true,
		missing: "github.com/repenguin22/idemlease could not be downloaded",
	},
	throughput(postgres("16 callers", "pgbench in pipelines, two commits per batch", claims), "ClaimAndSettle/group/16", "ClaimAndSettle/pgbench/two-commits/16", 0.8),
	cost(postgres("1 caller, latency", "plain pgx", claims), metric{"ClaimAndSettle/group/1", "ns/op"}, metric{"ClaimAndSettle/naive/1", "ns/op"}, 1.05),
	most(postgres("256 callers, processor time of the server per command", "", claims), metric{"ClaimAndSettle/server/256", "server-µs/op"}, 28, "µs"),
	throughput(postgres("RunTx, 1 caller", "BEGIN, INSERT, COMMIT", runTx), "RunTx/once/1", "RunTx/insert/1", 0.75),
	throughput(postgres("RunTx, 16 callers", "BEGIN, INSERT, COMMIT", runTx), "RunTx/once/16", "RunTx/insert/16", 0.6),
	throughput(postgres("RunTx, 64 callers", "BEGIN, INSERT, COMMIT", runTx), "RunTx/once/64", "RunTx/insert/64", 0.55),
	throughput(postgres("replays, 256 callers", "a SELECT each, pool of 64", replays), "Replay/group/256", "Replay/naive64/256", 4),
	cost(purge("PostgreSQL"), metric{"Purge/PostgreSQL", "purging-p99-ms"}, metric{"Purge/PostgreSQL", "alone-p99-ms"}, 1.25),
	throughput(mariaDB("1 caller"), mySQL+"group/1", mySQL+"naive/1", 0.95),
	throughput(mariaDB("16 callers"), mySQL+"group/16", mySQL+"naive/16", 1),
	throughput(mariaDB("256 callers"), mySQL+"group/256", mySQL+"naive/256", 5),
	throughput(batched("16 callers, new file"), "SQLiteBatched/empty/store/16", "SQLiteBatched/empty/writer/16", 0.7),
	throughput(batched("256 callers, new file"), "SQLiteBatched/empty/store/256", "SQLiteBatched/empty/writer/256", 0.75),
	throughput(batched1M("256 callers, 1M records"), "SQLiteBatched/1M/store/256", "SQLiteBatched/1M/writer/256", 0.8),
	cost(integration("SQLite", "1 caller, latency", "one row at a time", sqlite, "20000x"), metric{"SQLite/claim+settle/group/1", "ns/op"}, metric{"SQLite/claim+settle/naive/1", "ns/op"}, 1.15),
	throughput(integration("SQLite", "256 callers", "one row at a time", sqlite, "20000x"), "SQLite/claim+settle/group/256", "SQLite/claim+settle/naive/256", 15),
	throughput(integration("SQLite", "DoTx, 64 callers", "one transaction per call", sqliteTx, "20000x"), "SQLiteDoTx/group/64", "SQLiteDoTx/naive/64", 5),
	cost(purge("SQLite"), metric{"Purge/SQLite", "purging-p99-ms"}, metric{"Purge/SQLite", "alone-p99-ms"}, 2),
	cost(lasting(integration("SQLite", "serve, 3,000 items/s, p99 of minute 7", "minute 1", "^BenchmarkServe$", "1x")),
		metric{"Serve", "last-p99-ms"}, metric{"Serve", "first-p99-ms"}, 1.3),
	cost(integration("Redis", "1 caller, latency", "two scripts on go-redis", redis, "8000x"), metric{inRedis + "store/1", "ns/op"}, metric{inRedis + "naive/1", "ns/op"}, 1.05),
	throughput(integration("Redis", "256 callers", "two scripts on go-redis", redis, "8000x"), inRedis+"store/256", inRedis+"naive/256", 3),
	throughput(integration("Redis", "256 callers", "two SETs, redis-benchmark -P 32", redis, "8000x"), inRedis+"store/256", "Redis/two-sets", 0.7),
	throughput(integration("NATS", "256 callers", "Create and Update", nats, "4000x"), "NATS/claim+settle/store/256", "NATS/claim+settle/naive/256", 0.7),
	throughput(row{subject: "etcd", work: "256 callers", than: "two bare transactions", dir: dirEtcd, pattern: etcd, time: "2000x"}, "ClaimAndSettle/callers=256", "Bare/callers=256", 0.7),
	cost(wrap("first, processor time"), metric{"Wrap/first", "cpu-ns/op"}, metric{"Wrap/minimal/first", "cpu-ns/op"}, 2.5),
	cost(wrap("replay, processor time"), metric{"Wrap/replay", "cpu-ns/op"}, metric{"Wrap/minimal/replay", "cpu-ns/op"}, 1.8),
	added(wrap("first, allocations").over("the bare handler"), metric{"Wrap/first", "allocs/op"}, metric{"Wrap/bare", "allocs/op"}, 9, "more"),
	added(wrap("replay, allocations").over("the bare handler"), metric{"Wrap/replay", "allocs/op"}, metric{"Wrap/bare", "allocs/op"}, 1, "more"),
	cost(wrap100KiB("first, 100 KiB, processor time"), metric{"Wrap/100KiB/first", "cpu-ns/op"}, metric{"Wrap/100KiB/minimal/first", "cpu-ns/op"}, 1.2),
	cost(wrap100KiB("replay, 100 KiB, processor time"), metric{"Wrap/100KiB/replay", "cpu-ns/op"}, metric{"Wrap/100KiB/minimal/replay", "cpu-ns/op"}, 1.2),
	cost(throughProxy("no key, processor time"), metric{proxied, "unkeyed-cpu-µs"}, metric{proxied, "pooled-cpu-µs"}, 0.6),
	cost(throughProxy("new key, processor time"), metric{proxied, "new-cpu-µs"}, metric{proxied, "pooled-cpu-µs"}, 0.8),
	cost(throughProxy("replay, processor time"), metric{proxied, "replay-cpu-µs"}, metric{proxied, "pooled-cpu-µs"}, 0.35),
	most(guard("replay from its memory", "^BenchmarkReplay$/^cache$", "100000x"), metric{"Replay/cache", "ns/op"}, 1000, "ns"),
	most(guard("replay from its memory, allocations", "^BenchmarkReplay$/^cache$", "100000x"), metric{"Replay/cache", "allocs/op"}, 3, ""),
	most(guard("10,000 callers wait, processor time per second", "^BenchmarkWaiters$", "1x"), metric{"Waiters", "cpu-ms/s"}, 20, "ms"),
}

// over returns the row with another baseline.
func (r row) over(than string) row {
	r.than = than
	return r
}

// A group is a set of benchmarks that run together.
type group struct {
	pattern, time string
	slow          bool
}

// groups returns those of the rows of a package, in their order.
func groups(dir string, chosen []row) (all []group) {
	for _, r := range chosen {
		if g := (group{r.pattern, r.time, r.slow}); r.dir == dir && r.missing == "" && !slices.Contains(all, g) {
			all = append(all, g)
		}
	}
	return all
}
