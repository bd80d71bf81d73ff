// Package outboxcmd is the command "onlyonce outbox": it shows the unpublished
// messages in a store's outbox, and requeues or discards parked ones.
package outboxcmd

import (
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cli"
	"github.com/onlyonce-go/onlyonce/outbox"
	"github.com/spf13/cobra"
)

// Command returns the command "onlyonce outbox".
func Command() *cobra.Command {
	return cli.Group(&cobra.Command{
		Use:   "outbox",
		Short: "Show a store's unpublished messages, and requeue or discard parked ones",
		Long: `Reads the messages that a store's transactions have appended and that are not yet
published, whether the servers of the store are running or not.

A message that failed too often, or that can no longer be decoded, is parked with
its error until someone requeues or discards it. Until then, the later messages of
its ordering key wait.`,
		Example: `  onlyonce outbox ls sqlite:onlyonce-data/onlyonce.db
  onlyonce outbox requeue sqlite:onlyonce-data/onlyonce.db 17 --reason "ticket 4711: the broker accepts it now"
  onlyonce outbox audit sqlite:onlyonce-data/onlyonce.db`,
	}, outboxLsCommand(),
		parkedCommand("requeue", "Publish parked messages again, counting their attempts from zero", outbox.Auditor.RequeueAudited),
		parkedCommand("discard", "Delete parked messages without publishing them", outbox.Auditor.DiscardAudited),
		auditCommand())
}
