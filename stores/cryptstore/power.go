package cryptstore

import (
	"context"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// An unresolver counts the records of unknown outcome. It counts them by the state in which
// they are stored: a record whose contents turn out to be corrupt is not among them.
type unresolver interface {
	Unresolved(ctx context.Context) (n int, oldest time.Duration, err error)
}

// The optional powers of a store, as bits.
const (
	isPurger = 1 << iota
	isLister
	isWaiter
	isResolver
	isDiagnoser
	isUnresolver
	isAuditor // and a Resolver, without isResolver
)

// A powers has the optional powers of a sealed store. A power that the wrapped store does not
// have is nil.
type powers struct {
	purger     onlyonce.Purger
	lister     onlyonce.Lister
	waiter     onlyonce.Waiter
	resolver   onlyonce.Resolver
	diagnoser  onlyonce.Diagnoser
	unresolver unresolver
	auditor    onlyonce.Auditor
}

// powers returns the powers of the wrapped store, and which bits they are. Those whose results
// have contents of records decrypt them.
func (s *sealed) powers() (p powers, bits int) {
	var ok bool
	if p.purger, ok = s.store.(onlyonce.Purger); ok {
		bits |= isPurger
	}
	if _, ok = s.store.(onlyonce.Lister); ok {
		p.lister = listing{s}
		bits |= isLister
	}
	if p.waiter, ok = s.store.(onlyonce.Waiter); ok {
		bits |= isWaiter
	}
	if _, ok = s.store.(onlyonce.Auditor); ok {
		p.auditor = auditing{resolving{s}}
		bits |= isAuditor
	} else if _, ok = s.store.(onlyonce.Resolver); ok {
		p.resolver = resolving{s}
		bits |= isResolver
	}
	if p.diagnoser, ok = s.store.(onlyonce.Diagnoser); ok {
		bits |= isDiagnoser
	}
	if p.unresolver, ok = s.store.(unresolver); ok {
		bits |= isUnresolver
	}
	return p, bits
}
