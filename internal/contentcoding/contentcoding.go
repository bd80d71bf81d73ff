// Package contentcoding reads the Content-Encoding of messages.
package contentcoding

import "strings"

// Has reports whether the values of a Content-Encoding header name a coding
// (RFC 9110, section 8.4). The coding identity is none.
func Has(values []string) bool {
	for _, list := range values {
		for coding := range strings.SplitSeq(list, ",") {
			if coding = strings.Trim(coding, " \t"); coding != "" && !strings.EqualFold(coding, "identity") {
				return true
			}
		}
	}
	return false
}
