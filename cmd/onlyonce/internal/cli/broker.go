package cli

import (
	"github.com/onlyonce-go/onlyonce/services/orders"
	"github.com/spf13/cobra"
)

// A Broker has the values of the flags for the broker of the orders API's events.
type Broker struct {
	URL         string // empty: none
	Name        string // of the stream or the exchange
	MaxAttempts int    // number of failures after which an event is parked
}

// AddFlags declares the flags. whatFor, which may be empty, follows the forms of the URL
// in the help.
func (b *Broker) AddFlags(cmd *cobra.Command, whatFor string) {
	f := cmd.Flags()
	f.StringVar(&b.URL, "broker", "", "`URL` of the broker, "+orders.BrokerForms+whatFor)
	f.StringVar(&b.Name, "broker-name", orders.DefaultBrokerName, "`name` of the broker's stream or exchange; each store needs its own")
	f.IntVar(&b.MaxAttempts, "orders-max-attempts", orders.DefaultMaxAttempts, "number of failures after which an event is parked; see onlyonce outbox")
}

// Check returns an error unless the values are valid. It does not repeat the URL, which
// may contain a password.
func (b *Broker) Check() error {
	if b.MaxAttempts < 1 {
		return Usagef("--orders-max-attempts (%s) is %d: write at least 1", EnvName("orders-max-attempts"), b.MaxAttempts)
	}
	if err := orders.CheckBroker(b.URL); err != nil {
		return Usagef("--broker (%s): %w", EnvName("broker"), err)
	}
	if text := NameMistake(b.Name); text != "" {
		return Usagef("--broker-name (%s): %s", EnvName("broker-name"), text)
	}
	return nil
}
