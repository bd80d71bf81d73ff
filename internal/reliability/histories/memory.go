//go:build linux

package histories

import "github.com/onlyonce-go/onlyonce/stores/memstore"

// Memory returns the plan for the store in memory.
func Memory(seed uint64, calls int) Plan {
	return inMemory(seed, calls, memstore.New(memstore.Config{}))
}

// inMemory returns a plan for a store whose clients are all in this process.
func inMemory(seed uint64, calls int, s Store) Plan {
	return Plan{
		Name: "memory", Seed: seed, Calls: calls, Processes: 2, Clients: 2, CallsPerClient: 9, Keys: 256, Slack: clockSlack, InMemory: true,
		Open: func() (Database, error) { return memory{s}, nil },
	}
}
