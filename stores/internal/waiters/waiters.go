// Package waiters wakes the callers in this process that wait until a command with a
// name has ended, for stores that notify of that.
package waiters

// Waiters are the channels of waiting callers, by the name that they wait for. The caller locks
// them.
type Waiters map[string]map[chan struct{}]bool

// Add adds a waiter for the name. Its channel has room for one value.
func (w Waiters) Add(name string, woken chan struct{}) {
	if w[name] == nil {
		w[name] = make(map[chan struct{}]bool)
	}
	w[name][woken] = true
}

// Remove removes a waiter for the name.
func (w Waiters) Remove(name string, woken chan struct{}) {
	delete(w[name], woken)
	if len(w[name]) == 0 {
		delete(w, name)
	}
}

// Wake wakes the waiters for the name.
func (w Waiters) Wake(name string) {
	for woken := range w[name] {
		select {
		case woken <- struct{}{}:
		default:
		}
	}
}

// WakeAll wakes everyone.
func (w Waiters) WakeAll() {
	for name := range w {
		w.Wake(name)
	}
}
