package main

import (
	_ "embed"
	"strings"

	"github.com/spf13/cobra"
)

// examplesText has one command line a line, as a person types it. A command's help shows the
// lines that run it. TestExamples checks each line against the flags and arguments.
//
//go:embed examples.txt
var examplesText string

// addExamples gives each command the lines of examples.txt that run it.
func addExamples(root *cobra.Command) {
	for line := range strings.Lines(examplesText) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		c, _, err := root.Find(words[1:])
		if err != nil {
			panic("examples.txt: " + strings.TrimSpace(line) + ": " + err.Error()) // a test finds it first
		}
		c.Example = strings.TrimPrefix(c.Example+"\n  "+strings.TrimSpace(line), "\n")
	}
}
