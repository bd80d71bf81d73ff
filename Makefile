# The tools' versions; `make tools` installs them into .tools.
GOFUMPT     = mvdan.cc/gofumpt@v0.12.0
STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.8.2
TOOLS       = $(CURDIR)/.tools
ROOT        = github.com/onlyonce-go/onlyonce
MODULES     = adapters/caddyonce adapters/connectonce adapters/echo5once adapters/echoonce adapters/fiber2once adapters/fiberonce adapters/ginonce adapters/grpconce adapters/jetstreamonce adapters/kafkaonce adapters/kafkaonce/kfaketest adapters/lambdaonce adapters/mcponce adapters/otelonce adapters/otelonce/sdktest adapters/promonce adapters/watermillonce stores/cryptstore stores/dynamostore stores/etcdstore stores/etcdstore/servertest stores/natsstore stores/natsstore/servertest stores/pgxstore stores/redisstore services docs/examples/go internal/clients internal/frameworks internal/integration internal/league/servers internal/messages internal/migrating internal/reliability internal/storeurl cmd/onlyonce
FUZZTIME    = 5m
CALLS       = 1700000
KILLS       = 5000
RACE_SKIP   = ^$$
ROUNDS      = 20

.PHONY: help check test race lint caddy deploy docs tools tidy fuzz bench league costs histories ledger

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-9s %s\n", $$1, $$2}' Makefile

check: test race lint caddy deploy ## everything that CI runs: every test, the race detector, the linters, the Caddy module, the deployment

test: ## every test of every module
	go test work

# By default, a program with the race detector waits for a second before it ends.
race: ## the same under the race detector, except tests in which it would find little, and packages that match RACE_SKIP
	GORACE=atexit_sleep_ms=0 go test -race -short -timeout 40m $$(go list work | grep -vE '$(RACE_SKIP)')

# Caddy has a go.work of its own, so that it does not raise the versions of the other modules.
caddy: tools ## tests of adapters/caddyonce, which is outside go.work
	cd adapters/caddyonce && go vet ./... && $(TOOLS)/staticcheck ./... && go test ./...

# A module outside go.work: Helm, Kubernetes and Prometheus must not raise the versions
# of the modules that onlyonce is built from.
deploy: tools ## tests of the Dockerfile, the chart, the units, the alerts: everything under deploy
	cd deploy/deploytest && GOWORK=off go vet . && GOWORK=off $(TOOLS)/staticcheck . && GOWORK=off go test -count=1 .

lint: tools ## go vet, staticcheck, gofumpt, go.mod files without replace
	go vet work
	$(TOOLS)/staticcheck work
	@unformatted=$$($(TOOLS)/gofumpt -l .); if [ -n "$$unformatted" ]; then echo "run $(TOOLS)/gofumpt -w ."; echo "$$unformatted"; exit 1; fi
	@if grep -n '^replace\|=>' go.mod $(MODULES:%=%/go.mod); then echo 'run make tidy: replaces belong in go.work'; exit 1; fi

docs: ## the documentation as a website, in .site; onlyonce docs serves it
	rm -rf .site
	go run ./cmd/onlyonce docs --output .site

tools:
	@test -x $(TOOLS)/gofumpt || GOBIN=$(TOOLS) GOWORK=off go install $(GOFUMPT)
	@test -x $(TOOLS)/staticcheck || GOBIN=$(TOOLS) GOWORK=off go install $(STATICCHECK)

tidy: ## go mod tidy in every module, with replaces that it adds and drops again
	go mod tidy
	cd deploy/deploytest && GOWORK=off go mod tidy
	@for m in $(MODULES); do ( set -e; cd $$m; up=$$(realpath --relative-to=. $(CURDIR)); \
	  go mod edit -replace $(ROOT)=$$up $(foreach m,$(MODULES),-replace $(ROOT)/$(m)=$$up/$(m)); \
	  go mod tidy; \
	  go mod edit -dropreplace $(ROOT) $(foreach m,$(MODULES),-dropreplace $(ROOT)/$(m)) ) || exit 1; done

fuzz: ## each fuzz target for FUZZTIME (default 5m)
	@go list -f '{{.Dir}}' work | while read -r dir; do \
	  grep -ho '^func Fuzz[A-Za-z0-9]*' $$dir/*_test.go 2>/dev/null | sed 's/^func //' | while read -r target; do \
	    echo "$$target in $$dir"; ( cd $$dir && go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) . ) || exit 1; done || exit 1; done

histories: ## CALLS calls of all stores, with faults, checked for linearizability; the table of docs/reliability.md
	cd internal/reliability/histories && go test -run 'Histories|Planted' -count=1 -timeout 2h -table -calls $(CALLS)

ledger: ## commands under KILLS kills of processes and ROUNDS of servers, responses compared with effects; the tables of docs/reliability.md
	cd internal/reliability/ledger && go test -count=1 -timeout 2h -table -kills $(KILLS)
	cd internal/reliability/rounds && go test -count=1 -timeout 2h -table -rounds $(ROUNDS)

costs: ## the costs of a request on each store, and a queueing model; the tables of docs/scale.md and docs/benchmarks.md
	cd internal/reliability/costs && go test -run Costs -count=1 -timeout 1h -table

bench: ## Onlyonce and its counterparts, in about an hour: the table and the chart of docs/benchmarks.md
	go run ./internal/benchtable -svg docs/img/benchmarks.svg

# Its servers in Go are outside go.work, so that the implementations do not raise the versions of
# other modules.
league: tools ## onlyonce check against other implementations and Onlyonce, in their own recommended configurations: docs/league.md
	cd internal/league/servers && go vet ./... && $(TOOLS)/staticcheck ./...
	go run ./internal/league
