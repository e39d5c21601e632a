// Package examples checks the examples in the help of a program's commands. Tests of the programs use it. It starts no
// goroutine, and persists nothing.
package examples

import (
	"fmt"
	"iter"
	"strings"

	"github.com/spf13/cobra"

	"skerry/cmd/console"
)

// Check returns how many examples the commands of a program have, and what is wrong: a command without one, or an
// example that is no command line which its command takes, because a flag does not exist or the arguments do not fit.
func Check(root func() *cobra.Command) (examples int, problems []error) {
	for c := range commandsBelow(root()) {
		if c.Runnable() && c.Example == "" {
			problems = append(problems, fmt.Errorf("%s: its help has no example", c.CommandPath()))
		}
		for line := range strings.Lines(c.Example) {
			examples++
			if err := checkExample(root(), c.Name(), strings.TrimSpace(line)); err != nil {
				problems = append(problems, fmt.Errorf("%s: %q: %w", c.CommandPath(), line, err))
			}
		}
	}
	return examples, problems
}

// checkExample parses the line of an example, and returns an error unless it runs a command of a name.
func checkExample(root *cobra.Command, name, line string) error {
	if own, ok := strings.CutPrefix(line, "skerry-edge "); ok {
		line = "skerry edge " + own
	}
	line, _, _ = strings.Cut(line, " >>")
	words := splitWords(line)
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
