// Package promonce exports what a program does with Onlyonce as metrics for Prometheus.
//
//	metrics := promonce.New(promonce.Config{})
//	prometheus.MustRegister(metrics)
//	records := metrics.Store("main")
//	store, err := sqlstore.Open(ctx, db, sqlstore.Config{Observer: records.Purges()})
//	…
//	records.Watch(store)
//	orders := records.API("orders")
//	guard := onlyonce.New(store, onlyonce.Config{Observer: orders.Observe})
//	orders.Watch(guard)
//
// A Guard with an Observer logs nothing by itself. To keep the log, pass
// onlyonce.Tee(orders.Observe, onlyonce.SlogObserver(slog.Default(), nil)).
//
// Every name starts with onlyonce_. The labels are api and store, which are the names that
// the program passes, and operation, outcome and kind. Keys, tenants, requests and
// responses are never in a label, and the number of operations is limited: see
// Config.MaxOperations. docs/metrics.md lists all metrics with their labels.
package promonce
