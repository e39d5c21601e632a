package main

import (
	"fmt"
	"iter"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"skerry/cmd/console"
)

// TestExamples checks that the help of each command has an example, and that each example is a
// command line which this program takes: its flags exist, and its arguments are as many as fit.
func TestExamples(t *testing.T) {
	lines := 0
	for c := range commandsBelow(rootCommand()) {
		if c.Runnable() && c.Example == "" {
			t.Errorf("%s: its help has no example", c.CommandPath())
		}
		for line := range strings.Lines(c.Example) {
			lines++
			if err := checkExample(c.Name(), strings.TrimSpace(line)); err != nil {
				t.Errorf("%s: %q: %v", c.CommandPath(), line, err)
			}
		}
	}
	if lines < 200 {
		t.Errorf("only %d examples were read", lines)
	}
}

// checkExample parses the line of an example, and returns an error unless it runs a command of a name.
func checkExample(name, line string) error {
	if own, ok := strings.CutPrefix(line, "skerry-edge "); ok {
		line = "skerry edge " + own
	}
	line, _, _ = strings.Cut(line, " >>")
	root, words := rootCommand(), splitWords(line)
	console.Prepare(root, words[1:])
	c, rest, err := root.Find(words[1:])
	if err != nil {
		return err
	}
	if words[0] != root.Name() || c.Name() != name || !c.Runnable() {
		return fmt.Errorf("it runs %s", c.CommandPath())
	}
	if err := c.ParseFlags(rest); err != nil {
		return err
	}
	return c.ValidateArgs(c.Flags().Args())
}

// commandsBelow iterates over a command and all below it.
func commandsBelow(c *cobra.Command) iter.Seq[*cobra.Command] {
	return func(yield func(*cobra.Command) bool) {
		if !yield(c) {
			return
		}
		for _, sub := range c.Commands() {
			for each := range commandsBelow(sub) {
				if !yield(each) {
					return
				}
			}
		}
	}
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
