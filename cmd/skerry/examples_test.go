package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"skerry/cmd/console"
)

// TestExamples checks that the help of each command has an example, and that each example is a
// command line which this program takes: its flags exist, and its arguments are as many as fit.
func TestExamples(t *testing.T) {
	for line := range strings.Lines(examplesText) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		root := rootCommand()
		args := splitWords(line)[1:]
		console.Prepare(root, args)
		c, rest, err := root.Find(args)
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		if err := c.ParseFlags(rest); err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		if err := c.ValidateArgs(c.Flags().Args()); err != nil || !c.Runnable() {
			t.Errorf("%s: %v", line, err)
		}
	}
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Runnable() && c.Example == "" {
			t.Errorf("%s: its help has no example", c.CommandPath())
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(rootCommand())
}

// splitWords splits a line at spaces that are outside of double quotes.
func splitWords(line string) []string {
	var words []string
	for i, part := range strings.Split(line, `"`) {
		if i%2 == 1 {
			words[len(words)-1] += part
			continue
		}
		fields := strings.Fields(part)
		if strings.HasSuffix(part, " ") {
			fields = append(fields, "")
		}
		words = append(words, fields...)
	}
	return words
}
