package onlyonce

import (
	"fmt"
	"time"

	"github.com/onlyonce-go/onlyonce/internal/defaults"
)

// A State is the state of a command. In a Settlement, the zero State releases
// the command, as if it had never been claimed.
type State string

// A lapsed lease is not a separate state: the record is StateProcessing, and
// its LeaseLeft is not positive.
const (
	StateProcessing State = "processing" // an attempt holds the command, or held it when its process died
	StateCompleted  State = "completed"  // it ran; the result is replayed until Keep ends
	StateFailed     State = "failed"     // it failed; the next claim runs it again, unless the failure is final
	StateUnknown    State = "unknown"    // it is unknown whether it took effect
	StateRemembered State = "remembered" // it completed, or failed for good; its result is gone, and only its ID is remembered: see Config.Remember
)

// A Result is the result of the attempt that ran a command.
type Result struct {
	Status int                 // an HTTP status, or 0
	Header map[string][]string // the order and number of the values of a name are kept
	Body   []byte
	Ref    string // the application's identifier of the object that the command created, such as an order number

	// Traceparent is the trace context of the attempt that settled the record, as in W3C
	// Trace Context, or empty: see Config.Traceparent.
	Traceparent string

	// Keep is how long the result stays if its record stays for longer; the record then becomes
	// one in StateRemembered. 0: the result stays as long as the record. An Attempt sets it: see
	// Config.Remember. In a Record, it is how long the result still stays.
	Keep time.Duration
}

// A Record is a store's record of one command. Times and durations are measured
// by the store's clock.
type Record struct {
	ID          ID
	State       State
	Fingerprint []byte
	Summary     string // of the request, for operators; empty unless Request.Summary was set
	Owner       string // the claim that holds the command or settled it; replaced when a person resolves the command
	Attempt     int    // 1 for the first
	Fence       int64
	Result      Result
	Error       string            // the text of the last failure, for operators
	Final       bool              // the failure is replayed, and the command never runs again
	Corrupt     bool              // the stored record can't be decoded; State is StateUnknown
	Steps       map[string][]byte // results of the finished steps, by name
	CreatedAt   time.Time
	SettledAt   time.Time     // zero while the command is processing
	LeaseLeft   time.Duration // while the command is processing; not positive: the lease has lapsed
	KeepLeft    time.Duration // once the command is settled; 0: it stays until someone resolves it
}

// Unresolved reports whether nobody knows the outcome of the command: its state is
// StateUnknown, or its lease has lapsed.
func (r Record) Unresolved() bool {
	return r.State == StateUnknown || r.State == StateProcessing && r.LeaseLeft <= 0
}

// KeepForever is a Keep without an end: the record stays until someone resolves it.
const KeepForever time.Duration = -1

// checkKeep rejects a negative Keep other than KeepForever.
func checkKeep(of string, keep time.Duration) error {
	if keep < 0 && keep != KeepForever {
		return fmt.Errorf("%s.Keep is %v: set it to a positive duration or to KeepForever, or leave it 0 for the default", of, keep)
	}
	return nil
}

// checkRemember rejects a Remember that would forget the ID before the result. 0 means the Keep.
func checkRemember(of string, remember, keep time.Duration) error {
	switch valid := remember >= 0 || remember == KeepForever; {
	case valid && !defaults.RememberTooShort(remember, keep):
		return nil
	case keep == KeepForever:
		return fmt.Errorf("%s.Remember is %v, but the record is kept forever: leave it 0, or set Keep to a shorter time", of, remember)
	}
	return fmt.Errorf("%s.Remember is %v, and the Keep is %v: set it to a time that is not shorter than the Keep or to KeepForever, or leave it 0 for the Keep", of, remember, keep)
}

// A Settlement is how an attempt ends. The zero Settlement releases the command.
type Settlement struct {
	State  State // StateCompleted, StateFailed or StateUnknown; empty: the command is released
	Result Result
	Error  string
	Final  bool // with StateFailed: replay the failure, and never run the command again

	// Keep is how long the record stays, or KeepForever. 0 means a default: in a
	// settlement of an Attempt, the Keep of its Request or its Guard; in one that is
	// passed to a Store, KeepForever. If the Remember of the Request or the Guard is longer, an
	// Attempt keeps the result for this time, and its ID for that one.
	Keep time.Duration
}

// storable reports whether every store can keep the status: it must fit into 32 bits.
func storable(status int) bool { return int(int32(status)) == status }

// Check returns an error unless the settlement's state is one in which an
// attempt can end: completed, failed, unknown, or empty, which releases the
// command. Unless it releases the command, its Result's Status must fit into 32
// bits, its Keep must not be negative unless it is KeepForever, and its Result's Keep must
// be 0 unless the settlement is final: completed, or failed and Final. Every function
// that takes a settlement, including those of stores, calls Check before it changes
// anything.
func (s Settlement) Check() error {
	switch status := s.Result.Status; {
	case s.State == "":
		return nil
	case !s.State.known(), s.State == StateProcessing, s.State == StateRemembered:
	case !storable(status):
		return fmt.Errorf("an attempt can't end with the status %d: set the Result's Status to an HTTP status, or to 0", status)
	case s.Result.Keep < 0:
		return fmt.Errorf("the Result's Keep is %v: set it to a positive duration, or leave it 0 to keep the result as long as the record", s.Result.Keep)
	case s.Result.Keep > 0 && !isFinal(s.State, s.Final):
		return fmt.Errorf("the Result's Keep is %v, and the state %q is not final: leave it 0 unless the command has completed, or has failed and Final is set", s.Result.Keep, s.State)
	default:
		return checkKeep("Settlement", s.Keep)
	}
	return fmt.Errorf("an attempt can't end in the state %q: set the Settlement's State to StateCompleted, StateFailed or StateUnknown, or leave it empty to release the command", s.State)
}

func (s State) known() bool {
	switch s {
	case StateProcessing, StateCompleted, StateFailed, StateUnknown, StateRemembered:
		return true
	}
	return false
}
