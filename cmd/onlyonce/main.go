// Command onlyonce runs APIs in which a command sent many times runs once, and
// lets an operator look after the records that make it so.
package main

import (
	"os"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cli"
)

func main() { os.Exit(cli.Run(rootCommand(), os.Args[1:])) }
