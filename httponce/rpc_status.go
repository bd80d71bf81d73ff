package httponce

import (
	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce/internal/rpcstatus"
)

// RPCStatus is the default of Config.StatusOf for responses of gRPC, gRPC-Web (binary or
// base64) and streams of the Connect protocol, such as those of connect-go and grpc-go. A
// function of your own can call it for all other codes than its own. These protocols send most
// errors with the HTTP status 200; the outcome of a call is in grpc-status or
// at the end of the body. An error counts as the HTTP status that the Connect
// protocol assigns to its code. Internal, unknown, data_loss, unavailable,
// deadline_exceeded and unimplemented count as 500 or more: the command failed
// and may run again. Unauthenticated, permission_denied and resource_exhausted
// count as 401, 403 and 429, which are not stored by default. All others count
// as 400, 404 or 409, which are replayed, unless the error has a google.rpc.RetryInfo, which asks
// for a retry: then it counts as 425, which is not stored by default. Canceled counts as 499: the
// command failed, because a caller cannot cancel it, unless Config.UnknownStatus says otherwise.
//
// Any other response counts as its own status. So does a response whose end
// can't be read because its body is too long to be stored, has a Content-Encoding, or
// is compressed with anything but gzip.
func RPCStatus(response onlyonce.Result) int {
	return rpcstatus.Of(response.Status, response.Header, response.Body)
}

// RPCCode returns the code of the error with which an RPC call is rejected because of the problem: its
// number in gRPC, and its name in the Connect protocol and in Twirp.
func (p Problem) RPCCode() (number uint32, name string) {
	switch p.Code {
	case CodeKeyMissing, CodeKeyInvalid, CodeBodyTooLarge, CodeBodyEncoded:
		return 3, "invalid_argument"
	case CodeTooManyRequests:
		return 8, "resource_exhausted"
	case CodeKeyReused, CodeKeyExpired, CodeResponseOmitted, CodeOutcomeUnknown:
		return 9, "failed_precondition"
	case CodeInProgress:
		return 10, "aborted"
	case CodeStoreUnavailable, CodeOverloaded, CodeBodyUnreadable:
		return 14, "unavailable"
	case CodeTenantMissing:
		return 16, "unauthenticated"
	}
	return 13, "internal"
}
