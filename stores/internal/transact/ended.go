package transact

import "errors"

// ErrEnded is the error of a transaction that is not the one any more in which a
// function was called.
var ErrEnded = errors.New("the transaction ended before the function did: the function, or the database because of an error, ended it (to set another search_path looks the same)")
