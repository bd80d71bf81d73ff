// Package onlyonce runs a command once, however often it is sent, and gives
// everyone who asks the same answer.
package onlyonce
