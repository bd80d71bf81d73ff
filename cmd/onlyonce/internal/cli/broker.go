package cli

import (
	"regexp"
	"slices"
	"strings"
)

var brokerNames = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// CheckBroker returns an error unless address is the URL of a broker or empty, and
// name is a valid name of a stream or exchange. The error does not repeat the URL,
// which may contain a password.
func CheckBroker(address, name string) error {
	scheme, rest, _ := strings.Cut(address, "://")
	switch {
	case address != "" && (!slices.Contains([]string{"nats", "tls", "amqp", "amqps"}, scheme) || rest == ""):
		return Usagef("--broker (%s) is not the URL of a broker: write nats://HOST:4222 or amqp://USER:PASSWORD@HOST:5672", EnvName("broker"))
	case !brokerNames.MatchString(name):
		return Usagef("--broker-name (%s) is %q: write 1 to 64 characters from a-z A-Z 0-9 _ -", EnvName("broker-name"), name)
	}
	return nil
}
