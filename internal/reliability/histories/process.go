//go:build linux

package histories

import (
	"encoding/gob"
	"fmt"
	"io"
	"sync"

	"github.com/onlyonce-go/onlyonce/internal/reliability/faults"
)

// A process runs clients. It is a child process or, for a store in memory, only goroutines.
type process struct {
	number int
	child  *faults.Child // nil: goroutines
	input  io.Closer
	ended  chan struct{} // closed once it sends no more reports

	mu   sync.Mutex
	jobs *gob.Encoder
}

// start starts a process whose reports are passed to receive.
func start(number int, p Place, receive func(*process, report)) (*process, error) {
	child, err := faults.Start(placeVariable, fmt.Sprintf("%s %d %s", p.Store, p.Pool, p.DSN))
	if err != nil {
		return nil, err
	}
	w := &process{number: number, child: child, jobs: gob.NewEncoder(child.In), input: child.In, ended: child.Ended}
	go func() {
		w.listen(child.Out, receive)
		child.Wait()
	}()
	return w, nil
}

// startInProcess starts clients in this process.
func startInProcess(number int, db Database, receive func(*process, report)) *process {
	jobs, in := io.Pipe()
	out, reports := io.Pipe()
	w := &process{number: number, jobs: gob.NewEncoder(in), input: in, ended: make(chan struct{})}
	go func() { _ = reports.CloseWithError(work(db, jobs, reports)) }()
	go func() {
		w.listen(out, receive)
		close(w.ended)
	}()
	return w
}

func (w *process) listen(reports io.Reader, receive func(*process, report)) {
	in := gob.NewDecoder(reports)
	for {
		var r report
		if err := in.Decode(&r); err != nil {
			return
		}
		receive(w, r)
	}
}

// send sends the process a job. A process that has ended does not receive it.
func (w *process) send(job Job) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.jobs.Encode(job)
}

// end makes the process end, and returns when it has.
func (w *process) end() error {
	_ = w.input.Close() // it may be gone
	<-w.ended
	if w.child == nil {
		return nil
	}
	return w.child.Err()
}
