package onlyonce

import "context"

// These name the required arguments in the text of a panic.
const (
	needGuard    = "a Guard: use what New returns, not a nil or zero Guard"
	needTxGuard  = "a TxGuard: use what NewTx returns, not a nil or zero TxGuard"
	needContext  = "a context: pass the caller's, or context.Background()"
	needFunction = "a function: pass the one that does the work"
	needAttempt  = "an Attempt: use what Guard.Begin returned, or Current, which returns nil unless its context comes from that of a command's function"
)

// need panics before anything is claimed if a call lacks an argument.
func need(verb string, there bool, what string) {
	if !there {
		panic("onlyonce: " + verb + " without " + what)
	}
}

func (g *Guard) need(verb string, ctx context.Context) {
	need(verb, g != nil && g.store != nil, needGuard)
	need(verb, ctx != nil, needContext)
}

func (g *TxGuard[TX]) need(verb string, ctx context.Context) {
	need(verb, g != nil && g.store != nil, needTxGuard)
	need(verb, ctx != nil, needContext)
}

func (a *Attempt) need(verb string) { need(verb, a != nil, needAttempt) }
