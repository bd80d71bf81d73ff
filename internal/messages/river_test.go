package messages_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/inbox"
	"github.com/onlyonce-go/onlyonce/internal/needs"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
	"github.com/onlyonce-go/onlyonce/stores/pgxstore"
)

type ShipArgs struct {
	Order int64 `json:"order"`
}

func (ShipArgs) Kind() string { return "ship" }

func orderRoutes(guard *onlyonce.TxGuard[pgx.Tx], jobs *river.Client[pgx.Tx]) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /orders", httponce.WrapTx(guard, func(w http.ResponseWriter, r *http.Request, tx pgx.Tx) error {
		order, err := insertOrder(r.Context(), tx, r.FormValue("item"))
		if err == nil {
			_, err = jobs.InsertTx(r.Context(), tx, ShipArgs{order}, nil)
		}
		if err != nil {
			return err // there is neither an order nor a job
		}
		w.WriteHeader(http.StatusCreated)
		_, err = fmt.Fprint(w, order)
		return err
	}, httponce.Config{Tenant: accountOf, Required: true}))
	return mux
}

func placeOrder(ctx context.Context, guard *onlyonce.TxGuard[pgx.Tx], jobs *river.Client[pgx.Tx], req onlyonce.Request, item string) (onlyonce.Answer[int64], error) {
	return onlyonce.DoTx(ctx, guard, req, func(ctx context.Context, tx pgx.Tx) (int64, error) {
		order, err := insertOrder(ctx, tx, item)
		if err == nil {
			_, err = jobs.InsertTx(ctx, tx, ShipArgs{order}, nil)
		}
		return order, err
	})
}

type ShipWorker struct {
	river.WorkerDefaults[ShipArgs]
	In   *inbox.Inbox // its Redelivery is the client's RescueStuckJobsAfter
	Ship func(ctx context.Context, key, what string) error
}

func (w *ShipWorker) Work(ctx context.Context, job *river.Job[ShipArgs]) error {
	m := inbox.Message{ID: strconv.FormatInt(job.ID, 10), Payload: job.EncodedArgs}
	_, err := inbox.Handle(ctx, w.In, m, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, w.Ship(ctx, onlyonce.Current(ctx).Key("ship"), fmt.Sprint("order ", job.Args.Order))
	})
	return err // River runs the job again
}

// A ShelfWorker takes what an order needs from the shelf, which is in River's database.
type ShelfWorker struct {
	river.WorkerDefaults[ShipArgs]
	In *inbox.TxInbox[pgx.Tx] // its Redelivery is the client's RescueStuckJobsAfter
}

func (w *ShelfWorker) Work(ctx context.Context, job *river.Job[ShipArgs]) error {
	m := inbox.Message{ID: strconv.FormatInt(job.ID, 10), Payload: job.EncodedArgs}
	_, err := inbox.HandleTx(ctx, w.In, m, func(ctx context.Context, tx pgx.Tx) (struct{}, error) {
		_, err := tx.Exec(ctx, "INSERT INTO shipments (order_id) VALUES ($1)", job.Args.Order)
		return struct{}{}, err
	})
	return err // River runs the job again
}

func insertOrder(ctx context.Context, tx pgx.Tx, item string) (id int64, err error) {
	err = tx.QueryRow(ctx, "INSERT INTO orders (item) VALUES ($1) RETURNING id", item).Scan(&id)
	return id, err
}

// openPostgres returns a pool whose tables are in a schema of its own, with those of Onlyonce and River.
func openPostgres(t *testing.T) *pgxpool.Pool {
	t.Helper()
	ctx := context.Background()
	url := cmp.Or(os.Getenv("ONLYONCE_POSTGRES_URL"), "postgres://postgres@127.0.0.1:5432/postgres?sslmode=disable")
	admin, err := pgx.Connect(ctx, url)
	needs.Service(t, "PostgreSQL", err)
	schema := "onlyonce_" + strings.ToLower(rand.Text())
	if _, err := admin.Exec(ctx, "CREATE SCHEMA "+schema); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := admin.Exec(ctx, "DROP SCHEMA "+schema+" CASCADE"); err != nil {
			t.Error(err)
		}
		_ = admin.Close(ctx)
	})
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	cfg.ConnConfig.RuntimeParams["search_path"] = schema
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if err := pgxstore.Migrate(ctx, pool); err != nil {
		t.Fatal(err)
	}
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	if err == nil {
		_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	}
	if err == nil {
		_, err = pool.Exec(ctx, "CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, item text CHECK (item <> 'bad')); CREATE TABLE shipments (order_id bigint)")
	}
	if err != nil {
		t.Fatal(err)
	}
	return pool
}

// openStore opens the store in the pool's database.
func openStore(t *testing.T, pool *pgxpool.Pool) *pgxstore.Store {
	t.Helper()
	store, err := pgxstore.Open(t.Context(), pool, pgxstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return store
}

// openGuard returns a guard whose store is in the pool's database.
func openGuard(t *testing.T, pool *pgxpool.Pool) *onlyonce.TxGuard[pgx.Tx] {
	t.Helper()
	return onlyonce.NewTx(openStore(t, pool), onlyonce.Config{Observer: onlyonce.DiscardEvents})
}

func wantRows(t *testing.T, pool *pgxpool.Pool, table string, want int) {
	t.Helper()
	var n int
	if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM "+table).Scan(&n); err != nil {
		t.Fatal(err)
	}
	if n != want {
		t.Errorf("there are %d rows in %s, want %d", n, table, want)
	}
}

func TestRiver_ARequestThatIsRepeatedInsertsOneJob(t *testing.T) {
	pool := openPostgres(t)
	jobs, err := river.NewClient(riverpgxv5.New(pool), &river.Config{})
	if err != nil {
		t.Fatal(err)
	}
	h := orderRoutes(openGuard(t, pool), jobs)
	var all sync.WaitGroup
	for range 5 { // at the same time: those that come too early get 409
		all.Go(func() { send(h, "/orders?item=lamp", "k", "") })
	}
	all.Wait()
	for range 2 {
		if status, body := send(h, "/orders?item=lamp", "k", ""); status != 201 || body != "1" {
			t.Errorf("got %d %s", status, body)
		}
	}
	wantRows(t, pool, "orders", 1)
	wantRows(t, pool, "river_job", 1)
	if status, body := send(h, "/orders?item=bad", "l", ""); status != 500 {
		t.Errorf("got %d %s", status, body)
	}
	wantRows(t, pool, "river_job", 1)
}

func TestRiver_ACommandThatIsRepeatedInsertsOneJob(t *testing.T) {
	pool := openPostgres(t)
	jobs, err := river.NewClient(riverpgxv5.New(pool), &river.Config{})
	if err != nil {
		t.Fatal(err)
	}
	guard := openGuard(t, pool)
	req := onlyonce.Request{ID: onlyonce.ID{Tenant: "acme", Operation: "order", Key: "k"}, Fingerprint: onlyonce.Fingerprint([]byte("lamp"))}
	for repeat := range 3 {
		answer, err := placeOrder(t.Context(), guard, jobs, req, "lamp")
		if err != nil || answer.Value != 1 || answer.Replayed != (repeat > 0) {
			t.Errorf("got %+v, %v", answer, err)
		}
	}
	wantRows(t, pool, "orders", 1)
	wantRows(t, pool, "river_job", 1)
}

func TestRiver_AJobThatRunsAgainShipsOnce(t *testing.T) {
	pool := openPostgres(t)
	const rescueAfter = time.Hour
	c := new(carrier)
	workers := river.NewWorkers()
	river.AddWorker(workers, &ShipWorker{
		In:   inbox.New(memstore.New(memstore.Config{}), inbox.Config{Consumer: "shipping", Redelivery: rescueAfter}),
		Ship: c.ship,
	})
	jobs, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		RescueStuckJobsAfter: rescueAfter, Workers: workers, Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 2}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if status, body := send(orderRoutes(openGuard(t, pool), jobs), "/orders?item=lamp", "k", ""); status != 201 {
		t.Fatalf("got %d %s", status, body)
	}
	done, cancel := jobs.Subscribe(river.EventKindJobCompleted)
	defer cancel()
	if err := jobs.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := jobs.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	for range 3 {
		e := <-done
		if _, err := jobs.JobRetry(t.Context(), e.Job.ID); err != nil {
			t.Fatal(err)
		}
	}
	c.wantShipped(t, 1)
}

// A hangingWorker hangs in the first attempt, for as long as a process that is frozen.
type hangingWorker struct {
	river.WorkerDefaults[ShipArgs]
	work    func(context.Context, *river.Job[ShipArgs]) error
	started chan int // the numbers of the attempts
	thaw    chan struct{}
	ended   chan error // the errors of the attempts
}

func (w *hangingWorker) Work(ctx context.Context, job *river.Job[ShipArgs]) error {
	w.started <- job.Attempt
	if job.Attempt == 1 {
		<-w.thaw
	}
	err := w.work(ctx, job)
	w.ended <- err
	return err
}

func TestRiver_AJobThatIsRescuedFromAProcessThatHangsHasItsRowsOnce(t *testing.T) {
	pool := openPostgres(t)
	const rescueAfter = time.Hour
	shelf := &ShelfWorker{In: inbox.NewTx(openStore(t, pool), inbox.Config{Consumer: "shelf", Redelivery: rescueAfter})}
	w := &hangingWorker{work: shelf.Work, started: make(chan int), thaw: make(chan struct{}), ended: make(chan error)}
	workers := river.NewWorkers()
	river.AddWorker(workers, w)
	jobs, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		RescueStuckJobsAfter: rescueAfter, Workers: workers, Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 2}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := jobs.Insert(t.Context(), ShipArgs{7}, nil); err != nil {
		t.Fatal(err)
	}
	if err := jobs.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := jobs.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if n := <-w.started; n != 1 {
		t.Fatalf("attempt %d is the first", n)
	}
	if _, err := pool.Exec(t.Context(), "UPDATE river_job SET state = 'available', scheduled_at = now()"); err != nil { // as River's rescuer does in the end
		t.Fatal(err)
	}
	if n := <-w.started; n != 2 {
		t.Fatalf("attempt %d is the second", n)
	}
	if err := <-w.ended; err != nil {
		t.Error(err)
	}
	close(w.thaw)
	if err := <-w.ended; err != nil {
		t.Error(err)
	}
	wantRows(t, pool, "shipments", 1)
}
