package transact

import "encoding/hex"

// SavepointName is what a savepoint of the store is called.
func SavepointName(token []byte) string { return "onlyonce_" + hex.EncodeToString(token) }
