package records

import "github.com/spf13/cobra"

func rmCommand() *cobra.Command {
	c := change{done: "deleted", question: "Delete %s? The next repeat runs the command as new."}
	cmd := &cobra.Command{
		Use:   selectionUse("rm"),
		Short: "Delete records, so that their commands can run again",
		Long: `Deletes records: the next request with the key of one runs the command again as
new, with all its steps, even if it has already taken effect. The records are shown
first, and each is read again before it is deleted: it stays if an attempt has begun
or ended in between, if someone else has resolved it, or while an attempt holds the
command. To keep the steps that have finished, use onlyonce records resolve --rerun.

A store in a SQL database records who deleted a record, when and why, in its audit
trail. Without a terminal, --yes is required.`,
		Example: `  onlyonce records rm sqlite:onlyonce-data/onlyonce.db 3f1c7a50 --reason "ticket 4711: a test"
  onlyonce records rm sqlite:onlyonce-data/onlyonce.db --key order-17 --reason "ticket 4711: not charged" --yes
  onlyonce records rm sqlite:onlyonce-data/onlyonce.db --state unknown --older-than 24h --reason "reconciled on Monday"`,
		Args: c.args,
		RunE: func(cmd *cobra.Command, args []string) error { return c.run(cmd, args[0]) },
	}
	c.addFlags(cmd)
	c.selection.filter.addRef(cmd)
	return cmd
}
