//go:build linux

package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// children returns the processes that a process has started.
func children(parent int) (pids []int) {
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, process := range processes {
		pid, _ := strconv.Atoi(filepath.Base(process))
		if _, of := processStat(pid); of == parent {
			pids = append(pids, pid)
		}
	}
	return pids
}

// DescendantsCPU returns the processor time that the descendants of a process have used.
func DescendantsCPU(pid int) (used time.Duration) {
	const tick = 10 * time.Millisecond // USER_HZ is 100 on Linux
	for _, child := range children(pid) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", child))
		if err != nil {
			continue // it has ended, and its time counts as its parent's
		}
		_, after, _ := strings.Cut(string(text), ") ")
		fields := strings.Fields(after)
		for _, field := range fields[11:15] { // utime, stime, and those of children that ended
			ticks, _ := strconv.Atoi(field)
			used += time.Duration(ticks) * tick
		}
		used += DescendantsCPU(child)
	}
	return used
}

func stateOf(pid int) string {
	state, _ := processStat(pid)
	return state
}

// processStat returns a process's state, as ps shows it, and its parent. Both are empty if
// there is no such process.
func processStat(pid int) (state string, parent int) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", 0
	}
	_, after, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(after)
	parent, _ = strconv.Atoi(fields[1])
	return fields[0], parent
}
