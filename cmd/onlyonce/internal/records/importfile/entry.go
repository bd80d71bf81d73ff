package importfile

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/defaults"
	"github.com/onlyonce-go/onlyonce/internal/envelope"
	"github.com/onlyonce-go/onlyonce/internal/httpfield"
	"github.com/onlyonce-go/onlyonce/internal/secretname"
)

// longestFingerprint is that of SHA-512, in bytes.
const longestFingerprint = 64

// Settings decide what a line means.
type Settings struct {
	SkipFingerprint bool          // accept lines without a fingerprint, with which any request matches
	AllowHeaders    []string      // names that are accepted although they look like those of credentials
	Keep            time.Duration // of a line without a time; 0: until someone resolves the record
}

// An Entry is a checked line.
type Entry struct {
	Line        int // its number in the file
	ID          onlyonce.ID
	Owner       string // of the claims for the line; see newOwner
	Fingerprint []byte // nil: requests are not compared
	Summary     string
	Settlement  onlyonce.Settlement // without the Keep, for which see KeepAt

	expires time.Time     // zero: keep counts
	keep    time.Duration // from the moment at which the record is written, or onlyonce.KeepForever
}

// Entry checks the line. Its error says what to write instead.
func (l *Line) Entry(set Settings) (Entry, error) {
	e := Entry{Line: l.number, Summary: l.Summary}
	if l.err != nil {
		return e, l.err
	}
	if l.State == onlyonce.StateRemembered {
		return e, errors.New("only the ID is left of the command, which ended, and can't be imported: leave the line out; a repeat then runs the command again")
	}
	for _, check := range []func(*Line, Settings) error{
		e.setID, e.setFingerprint, e.setOutcome, e.setResponse, e.setKeep,
	} {
		if err := check(l, set); err != nil {
			return e, err
		}
	}
	e.Owner = e.newOwner()
	return e, nil
}

func (e *Entry) setID(l *Line, _ Settings) error {
	switch {
	case l.Tenant == nil:
		return errors.New("tenant is missing: write the tenant that the program finds for the request, or an empty one on purpose")
	case l.Operation == nil:
		return errors.New(`operation is missing: write the operation that the program finds for the request, such as "POST /orders"`)
	case l.Key == "":
		return errors.New("key is missing: write the idempotency key")
	case len(l.Summary) > onlyonce.LongestSummary:
		return fmt.Errorf("summary has %d bytes: write at most %d", len(l.Summary), onlyonce.LongestSummary)
	}
	e.ID = onlyonce.ID{Tenant: *l.Tenant, Operation: *l.Operation, Key: l.Key}
	for _, part := range []string{e.ID.Tenant, e.ID.Operation, e.ID.Key} {
		if len(part) > defaults.LongestIDPart {
			return fmt.Errorf("a tenant, operation or key has %d bytes: no program accepts more than %d", len(part), defaults.LongestIDPart)
		}
	}
	return nil
}

func (e *Entry) setFingerprint(l *Line, set Settings) (err error) {
	if l.Fingerprint == "" {
		if !set.SkipFingerprint {
			return errors.New("fingerprint is missing: write the one that the program computes for the request, or pass --skip-fingerprint to accept any request under the key")
		}
		return nil
	}
	e.Fingerprint, err = hex.DecodeString(l.Fingerprint)
	if err != nil || len(e.Fingerprint) > longestFingerprint {
		return fmt.Errorf("fingerprint is not valid: write 2 to %d hexadecimal digits", 2*longestFingerprint)
	}
	return nil
}

func (e *Entry) setOutcome(l *Line, _ Settings) error {
	e.Settlement = onlyonce.Settlement{State: onlyonce.StateCompleted, Error: l.Error}
	switch {
	case l.Corrupt:
		return errors.New("the record could not be read when it was exported: leave the line out, and resolve the record in the store that it came from")
	case len(l.Error) > defaults.LongestErrorText:
		return fmt.Errorf("error has %d bytes: write at most %d", len(l.Error), defaults.LongestErrorText)
	case l.State == "" || l.State == onlyonce.StateCompleted:
		return nil
	case l.State != onlyonce.StateFailed && l.State != onlyonce.StateUnknown:
		return fmt.Errorf("the state %q can't be imported: write completed, or unknown if nobody knows whether the command took effect", l.State)
	case len(l.Steps) > 0:
		return errors.New("the command has finished steps, which can't be imported, and a retry without a record runs them again: let it end, or resolve the record, in the store that it came from, and export it again")
	case l.State == onlyonce.StateFailed && l.Final:
		return errors.New("the command failed for good, and a retry without a record runs it: write the state completed, with the response that a retry must get")
	case l.State == onlyonce.StateFailed:
		return errors.New("the command failed, and a retry runs it again without a record, too: leave the line out, or write the state completed if its response must be replayed")
	}
	e.Settlement.State = onlyonce.StateUnknown
	if e.Settlement.Error == "" {
		e.Settlement.Error = "the command ran before it was imported, and its outcome is not known"
	}
	return nil
}

func (e *Entry) setResponse(l *Line, set Settings) (err error) {
	r := onlyonce.Result{Ref: l.Ref}
	switch {
	case l.Body != nil && l.BodyEncoded != nil:
		return errors.New("there are both body and body_base64: leave one out")
	case l.Body != nil && *l.Body != "":
		r.Body = []byte(*l.Body)
	case l.BodyEncoded != nil:
		if r.Body, err = base64.StdEncoding.DecodeString(*l.BodyEncoded); err != nil {
			return errors.New("body_base64 is not valid: write base64 with the standard alphabet and with padding")
		}
	}
	if l.StatusCode != nil {
		r.Status = *l.StatusCode
	}
	if r.Header, err = responseHeader(l.Header, len(r.Body), set.AllowHeaders); err != nil {
		return err
	}
	if len(r.Header) == 0 && envelope.Is(r.Body) {
		return errors.New("the response is encrypted: export the records again with --encryption-keys-file")
	}
	switch unknown := e.Settlement.State == onlyonce.StateUnknown; {
	case unknown && (r.Status != 0 || len(r.Header) > 0 || len(r.Body) > 0):
		return errors.New("a command whose outcome is unknown has no response: leave out status_code, header and body")
	case unknown:
	case l.StatusCode == nil:
		return errors.New("status_code is missing: write the HTTP status of the response, or 0 for a call of Do")
	case r.Status != 0 && (r.Status < 200 || r.Status > 599):
		return fmt.Errorf("status_code is %d: write 200 to 599, or 0 for a call of Do", r.Status)
	case r.Status == 0 && !json.Valid(r.Body):
		return errors.New("the status_code 0 is that of a call of Do, whose body is the JSON of its value, such as null: write it, or the HTTP status of the response")
	}
	e.Settlement.Result = r
	return nil
}

// isNeverReplayed reports whether a header belongs to one response, so that a stored response does
// not have it.
func isNeverReplayed(name string) bool {
	switch name {
	case "Trailer", "Date", "Set-Cookie":
		return true
	}
	return httpfield.OfConnection(name) || httpfield.OfResponse(name)
}

// looksSecret reports whether a header, by its canonical name, looks like that of a credential, so
// that programs do not store it by default.
func looksSecret(name string) bool {
	return name != "Idempotency-Key" && name != "Surrogate-Key" && secretname.OfCredential(name)
}

// responseHeader returns a header with canonical names.
func responseHeader(given map[string][]string, bodySize int, allowed []string) (map[string][]string, error) {
	isAllowed := func(name string) bool {
		return slices.ContainsFunc(allowed, func(a string) bool { return strings.EqualFold(a, name) })
	}
	if len(given) == 0 {
		return nil, nil
	}
	h := make(http.Header, len(given))
	for _, name := range slices.Sorted(maps.Keys(given)) {
		canonical := http.CanonicalHeaderKey(name)
		switch {
		case !httpfield.IsToken(name):
			return nil, fmt.Errorf("header has the name %q, which no HTTP header can have", name)
		case h[canonical] != nil:
			return nil, fmt.Errorf("header has %s twice: write one list with all values", canonical)
		case isNeverReplayed(canonical):
			return nil, fmt.Errorf("header has %s, which is not replayed: leave it out", canonical)
		case looksSecret(canonical) && !isAllowed(canonical):
			return nil, fmt.Errorf("header has %s, whose name looks like that of a credential, which programs do not store by default: leave it out, or pass --allow-header %s if it is to be replayed", canonical, canonical)
		}
		for _, value := range given[name] {
			if !httpfield.IsText(value) {
				return nil, fmt.Errorf("header has a control character in the value of %s", canonical)
			}
			if canonical == "Content-Length" && value != strconv.Itoa(bodySize) {
				return nil, fmt.Errorf("header has the Content-Length %s, and the body has %d bytes: leave the header out, or complete the body", value, bodySize)
			}
		}
		h[canonical] = given[name]
	}
	return h, nil
}

func (e *Entry) setKeep(l *Line, set Settings) error {
	switch {
	case l.ExpiresAt != nil && l.KeepLeft.given:
		return errors.New("there are both expires_at and keep_left_seconds: leave one out")
	case l.ExpiresAt != nil:
		e.expires = l.ExpiresAt.Time
	case l.KeepLeft.given:
		e.keep = l.KeepLeft.keep
	case set.Keep == 0 || e.Settlement.State == onlyonce.StateUnknown:
		e.keep = onlyonce.KeepForever
	case l.CreatedAt != nil:
		e.expires = l.CreatedAt.Add(set.Keep)
	default:
		e.keep = set.Keep
	}
	if l.ResultLeft.given && l.ResultLeft.keep > 0 {
		if e.Settlement.State == onlyonce.StateUnknown {
			return errors.New("a command whose outcome is unknown has no response: leave out result_keep_left_seconds")
		}
		e.Settlement.Result.Keep = l.ResultLeft.keep
	}
	if e.expires.After(time.Now().Add(longestKeep)) {
		return fmt.Errorf("the key would be kept until %s: write a time within ten years", e.expires.Format(time.DateOnly))
	}
	return nil
}

// KeepAt returns how long a record that is written now is kept, or 0 if it has expired.
func (e *Entry) KeepAt(now time.Time) time.Duration {
	if e.expires.IsZero() {
		return e.keep
	}
	return max(e.expires.Sub(now), 0)
}

// newOwner returns the owner of the claims for this line. It is not random, but the same in
// every import of the line: the store then recognizes a claim that an earlier, interrupted
// import made for it, and grants it again. A line with another content has another owner.
func (e *Entry) newOwner() string {
	r := e.Settlement.Result
	parts := [][]byte{
		[]byte("onlyonce records import"), []byte(e.ID.Tenant), []byte(e.ID.Operation), []byte(e.ID.Key), e.Fingerprint, []byte(e.Summary),
		[]byte(e.Settlement.State), []byte(e.Settlement.Error), []byte(strconv.Itoa(r.Status)), []byte(r.Ref), r.Body,
	}
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		parts = append(parts, []byte(name), []byte(strconv.Itoa(len(r.Header[name]))))
		for _, value := range r.Header[name] {
			parts = append(parts, []byte(value))
		}
	}
	return string(onlyonce.Fingerprint(parts...)[:16])
}

// IsHeldFor reports whether r is a record that an import of this line has claimed and not
// completed.
func (e *Entry) IsHeldFor(r onlyonce.Record) bool {
	return r.Owner == e.Owner && r.State == onlyonce.StateProcessing
}
