// Package cryptstore encrypts the contents of records before they reach their store. It wraps
// any onlyonce.Store:
//
//	keys, err := cryptstore.KeysFromFile("/run/secrets/onlyonce-keys")
//	…
//	cipher := cryptstore.New(cryptstore.Config{Keys: keys})
//	guard := onlyonce.NewTx(cryptstore.WrapTx(cipher, store), onlyonce.Config{})
//
// Someone who reads the database, a replica or a backup then sees no response. A wrapped store
// has the optional powers and the transactions of the store that it wraps.
//
// # What is encrypted
//
// The package encrypts the header and the body of a result, the error, the summary of the
// request, and the value of each step.
// Everything by which a store decides or searches stays in clear: the ID (tenant, operation and
// key), the state, the status, the ref, the traceparent, the fingerprint, the names of steps,
// the owner, the numbers of the attempt and the fence, and all times. The length of an
// encrypted value shows how long the value is, or, with compression, how long it is when
// compressed. If a response mixes a secret with text that a caller chooses, a caller who can
// see the store's lengths can find out whether the text repeats the secret: set
// Config.NoCompression there.
//
// # What is detected
//
// Every value is bound to its ID and its field, and a result also to the state, the status, the
// ref, the error and the Final with which it was settled. A value that was changed, cut off,
// moved to another record, or replaced makes its record corrupt: the outcome of
// its command is unknown, exactly as if the store could not read the record. A claim that
// retries failures does not take over a record before the wrapper has checked it. Only a summary
// that can't be read, for whatever reason, is replaced by a sentence that says so: nothing
// depends on it.
//
// Someone who can write to the store can still do three things that are not detected: delete a record, put
// back an earlier version of a record or of one of its values, and change the parts that are not
// encrypted, except for those to which a result is bound. Each of them can make a command run again, and
// with another fingerprint, a record is replayed to another request for its ID.
//
// # Keys
//
// A value is encrypted with XAES-256-GCM (C2SP), whose nonces are so long that any number of
// values can be encrypted with one key. The ID of the key is stored with the value. To rotate
// the keys:
//
//  1. Add the new key to the keys of every process, without making it the current one.
//  2. After Config.CacheKeys (10 minutes), make it the current one. New values are encrypted
//     with it.
//  3. Delete the old key once Config.CacheKeys has passed since step 2 and every record that was
//     created by then has expired. When a command that failed runs again, its record keeps the
//     steps that were encrypted before, however late it completes. If Cipher.Rekey is called
//     once Config.CacheKeys has passed since step 2, it encrypts the records again. When it
//     leaves none (see Rekeyed.Left), their expiry need not be awaited, which for records with
//     KeepForever would be forever.
//
// A record whose key is missing is not corrupt, and neither is one that is not encrypted (see
// Config.AcceptPlaintext). Every call that has to read such a record returns an error that is
// onlyonce.ErrUnavailable and ErrUnknownKey or ErrNotEncrypted. Its command does not run, and a
// list ends at it. A Guard whose store is not wrapped returns onlyonce.ErrUnavailable for an encrypted record. A
// claim on any command returns an error, and nothing runs, if the current key can't be fetched.
// An attempt that has begun still stores its result, with the last key that was fetched.
//
// # Costs
//
// A claim that takes over a record makes one more call of the store, because the record must be
// decrypted first. Values are compressed with zstd first, if that makes them shorter, unless
// they have more than 64 MiB. An encrypted value has at most 110 bytes more than its plaintext,
// and the text of an error is then a third longer. A value that is larger than the store accepts is an
// onlyonce.ErrTooLarge, as without encryption.
package cryptstore
