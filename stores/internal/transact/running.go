package transact

import (
	"sync"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
)

// RunningTx tracks the commands that are in RunTx in this process.
type RunningTx struct {
	mu       sync.Mutex
	commands map[[32]byte]onlyonce.Record
}

// Enter adds the claim's command, or returns the record of the call that is running it.
func (in *RunningTx) Enter(k *record.Key, c *onlyonce.Claim) (onlyonce.Record, bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if r, there := in.commands[k.Hash]; there {
		return r, false
	}
	if in.commands == nil {
		in.commands = make(map[[32]byte]onlyonce.Record)
	}
	in.commands[k.Hash] = RunningRecord(c)
	return onlyonce.Record{}, true
}

// RunningRecord is the record of a command in RunTx, which has no row.
func RunningRecord(c *onlyonce.Claim) onlyonce.Record {
	return Running(c, &View{Now: time.Now().UnixMicro()})
}

// Exit undoes Enter.
func (in *RunningTx) Exit(k *record.Key) {
	in.mu.Lock()
	defer in.mu.Unlock()
	delete(in.commands, k.Hash)
}
