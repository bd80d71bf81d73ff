// Package console is the web console of an operator: it shows what a store's commands
// are doing, finds records, shows a record's whole life, and lets a person decide
// about a command whose outcome is unknown.
//
// New returns an http.Handler. It is for operators and belongs on an address that
// callers of the service do not reach, such as the one for health and metrics:
//
//	meter := console.NewMeter()
//	guard := onlyonce.New(store, onlyonce.Config{Observer: meter.Observe})
//	tokens, err := console.ParseTokens(file)
//	// check err, here and below
//	h, err := console.New(console.Config{Store: store, Tokens: tokens, Meter: meter})
//	admin.Handle(console.DefaultPath, h)
//
// A person logs in with a token. A reader sees everything that the console shows; a
// writer also decides. Every decision needs a reason, and is recorded in the audit trail
// of a store that is an onlyonce.Auditor, with the name of the token.
//
// Responses may contain personal data. The console shows a part of them to every reader,
// and hides the values that Config.Redact and its own list of names select.
//
// Every page works without JavaScript, and loads nothing from other servers. Pages show
// times in UTC. Sessions are in memory: they end with the process, and several processes
// do not share them.
package console
