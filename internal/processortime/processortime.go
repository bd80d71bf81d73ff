// Package processortime returns how much processor time processes have used. Benchmarks compare
// it, because other work on the machine changes it less than it changes elapsed time.
package processortime

import (
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// Of returns the processor time that the processes have used so far, without that of threads
// that have ended. It returns an error if one of them does not run on this machine, or if the
// system has no /proc.
func Of(pids ...int) (used time.Duration, err error) {
	for _, pid := range pids {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
		if err != nil {
			return 0, err
		}
		if len(threads) == 0 {
			return 0, fmt.Errorf("process %d: there is no /proc/%[1]d/task/*/schedstat on this machine", pid)
		}
		for _, name := range threads {
			stat, err := os.ReadFile(name)
			if os.IsNotExist(err) {
				continue // the thread has ended
			}
			if err != nil {
				return 0, err
			}
			var ns time.Duration
			if _, err := fmt.Sscan(string(stat), &ns); err != nil {
				return 0, fmt.Errorf("%s: %w", name, err)
			}
			used += ns
		}
	}
	return used, nil
}
