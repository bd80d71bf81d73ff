package transact

import "encoding/hex"

// SavepointName returns the name of a savepoint of the store.
func SavepointName(token []byte) string { return "onlyonce_" + hex.EncodeToString(token) }
