package transact

import "errors"

// ErrEnded is the error of a function whose transaction has ended before it returned.
var ErrEnded = errors.New("the transaction ended before the function did: the function, or the database because of an error, ended it (setting another search_path looks the same)")
