package main

import (
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/bench"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/check"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cli"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/docscmd"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/doctor"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/migrate"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/outboxcmd"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/poison"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/proxycmd"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/records"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/relay"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/serve"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/storeflags"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/version"
	"github.com/spf13/cobra"
)

func rootCommand() *cobra.Command {
	root := cli.Group(&cobra.Command{
		Use:   "onlyonce",
		Short: "Run a command once, however often it is sent",
		Long: `Onlyonce makes retries safe: a command that is sent many times runs once, and
every caller gets the same response.

A store URL is one of these:
  sqlite:PATH
  postgres://USER:PASSWORD@HOST/DATABASE
  mysql://USER:PASSWORD@HOST/DATABASE
  redis://USER:PASSWORD@HOST:PORT/0           or rediss:// for TLS
  redis://HOST1:PORT,HOST2:PORT               a cluster
  redis://HOST1,HOST2?master_set=NAME         the Sentinels that watch NAME
  nats://USER:PASSWORD@HOST:PORT/STREAM       or nats://TOKEN@…; or tls:// for TLS
  nats://HOST1,HOST2,HOST3/STREAM?replicas=3  a cluster
  etcd://USER:PASSWORD@HOST:PORT/PREFIX       or etcds:// for TLS
  etcd://HOST1,HOST2,HOST3/PREFIX?members=3   a cluster
  dynamodb://REGION/TABLE                     the AWS SDK finds the credentials
The path of a SQLite file is used as written: it has no options and needs no
escaping, except for the shell. A redis://, nats://, etcd:// or dynamodb:// URL may
end with the settings of its store, such as
?prefix=shop&replicas=1&replica_timeout=500ms&accept_risks=persistence.

If the URL of a store is left out, a command reads it from ONLYONCE_STORE, or from
the file that ONLYONCE_STORE_FILE names. Pass a URL that contains a password this
way, because every user of the machine can read command lines.

Exit codes: 0 success; 1 failure, or doctor or check found something; 2 the command
line or the environment is invalid, or doctor or check could not examine its target.`,
		Example: `  onlyonce serve
  onlyonce records ls sqlite:onlyonce-data/onlyonce.db
  onlyonce doctor sqlite:onlyonce-data/onlyonce.db`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}, serve.Command(), proxycmd.Command(), relay.Command(), storeflags.FromEnv(records.Command()), storeflags.FromEnv(outboxcmd.Command()), storeflags.FromEnv(poison.Command()), check.Command(), storeflags.FromEnv(doctor.Command()), storeflags.FromEnv(migrate.Command()), bench.Command(), docscmd.Command(), version.Command())
	root.Version = version.Program()
	root.SetVersionTemplate(version.All())
	cli.AddHelp(root)
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() == "completion" {
			cli.Group(cmd)
		}
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return cli.Usagef("%w", err) })
	return root
}
