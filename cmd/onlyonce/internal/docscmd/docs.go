// Package docscmd is the command "onlyonce docs": it serves the documentation, or writes it to
// a directory.
package docscmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cli"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/docsite"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/server"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/version"
	"github.com/onlyonce-go/onlyonce/docs"
	"github.com/spf13/cobra"
)

// Command returns the command "onlyonce docs".
func Command() *cobra.Command {
	var listen, output string
	cmd := &cobra.Command{
		Use:   "docs",
		Short: "Serve the documentation of this version",
		Long: `Serves the documentation of this version as a website with a search, until SIGINT or
SIGTERM. It needs no connection to the internet.

With --output, the files of the website are written to a directory instead. Any web
server can serve them, and a browser can open index.html there without a server.`,
		Example: `  onlyonce docs
  onlyonce docs --output site`,
		Args: cli.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			listens := cmd.Flags().Changed("listen") // the environment's address is for all commands with a server
			if err := cli.SetFromEnv(cmd); err != nil {
				return err
			}
			if listens && output != "" {
				return cli.Usagef("--output writes files and starts no server: leave out --listen, or --output")
			}
			site, err := docsite.Build(docs.Files)
			switch {
			case err != nil:
				return fmt.Errorf("build the documentation: %w", err)
			case output != "":
				return write(site, output, cmd.OutOrStdout())
			}
			return serve(cmd.Context(), site, listen, cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&listen, "listen", "127.0.0.1:8000", "`address` to listen on; port 0 takes a free one")
	f.StringVar(&output, "output", "", "`directory` to write the website to, instead of serving it; existing files are replaced")
	cli.DocumentEnv(cmd)
	return cmd
}

func write(site docsite.Site, dir string, out io.Writer) error {
	if err := site.Write(dir); err != nil {
		return fmt.Errorf("write the documentation: %w", err)
	}
	_, err := fmt.Fprintf(out, "The documentation is in %s\n", filepath.Join(dir, "index.html"))
	return err
}

func serve(ctx context.Context, site docsite.Site, address string, out io.Writer) error {
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("%w; name another address with --listen", err)
	}
	signals, release := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer release()
	where := server.Where("http://"+server.Reachable(ln.Addr()), ln.Addr())
	if _, err := fmt.Fprintf(out, "The documentation server of Onlyonce %s listens on %s\nSIGINT (Ctrl-C) or SIGTERM ends the server.\n", version.Program(), where); err != nil {
		return errors.Join(fmt.Errorf("print the address: %w", err), ln.Close())
	}
	s := server.New(site.Handler(), 0, slog.Default())
	stop := context.AfterFunc(signals, func() { _ = s.Close() }) // Serve returns why it ended
	defer stop()
	if err := s.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the documentation: %w", err)
	}
	return nil
}
