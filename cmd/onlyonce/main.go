// Command onlyonce runs APIs in which a command sent many times runs once, and
// lets an operator look after the records that make it so.
package main

import "os"

func main() { os.Exit(run(os.Args[1:])) }
