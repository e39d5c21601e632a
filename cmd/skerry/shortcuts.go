package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"skerry/cmd/skerry/alloc"
	"skerry/cmd/skerry/command"
	"skerry/cmd/skerry/job"
	"skerry/fleet"
)

// shortcuts are the commands that people type most, without their group: skerry run for skerry job run.
func shortcuts(s *command.Session) []*cobra.Command {
	var list []*cobra.Command
	for _, group := range []struct {
		name     string
		commands []*cobra.Command
	}{{"job", job.Shortcuts(s)}, {"alloc", alloc.Shortcuts(s)}} {
		for _, c := range group.commands {
			c.Short += fmt.Sprintf(" (as %s %s)", group.name, c.Name())
			c.Example = strings.ReplaceAll(c.Example, "skerry "+group.name+" ", "skerry ")
			list = append(list, c)
		}
	}
	return append(list, statusCommand(s))
}

// contexts are what status looks for, by the names that a search has for them, and
// the commands that show them.
var contexts = []struct{ context, kind, command string }{
	{"jobs", "job", "job status"},
	{"allocs", "allocation", "alloc status"},
	{"nodes", "node", "node status"},
	{"deployment", "deployment", "deployment status"},
	{"evals", "evaluation", "eval status"},
	{"namespaces", "namespace", "namespace status"},
	{"node_pools", "node pool", "node pool info"},
}

// kinds are what status looks for, in words.
func kinds() string {
	var names []string
	for _, at := range contexts {
		names = append(names, at.kind)
	}
	return strings.Join(names, ", ")
}

// statusCommand lists jobs, or shows the object of an id.
func statusCommand(s *command.Session) *cobra.Command {
	return &cobra.Command{
		Use: "status [ID]", Short: "List jobs, or show the object of an id or of its prefix", Args: cobra.MaximumNArgs(1),
		Example: `  skerry status
  skerry status shop
  skerry status 811e24ed`,
		Long: "List jobs, or show one object: the job, allocation, node, deployment, evaluation, namespace or node pool\n" +
			"with this id, whose id begins with it, or the node with this name. A job with exactly this id comes first.",
		RunE: s.Run(func(c *command.Call) error {
			at := contexts[0]
			if len(c.Args) > 0 {
				kind, id, err := searchContexts(c, c.Args[0])
				if err != nil {
					return err
				}
				at, c.Args = contexts[kind], []string{id}
			}
			show, _, err := c.Root().Find(strings.Fields(at.command))
			if err != nil {
				return fmt.Errorf("show %s %s: %w", at.kind, c.Args, err)
			}
			show.SetContext(c.Context())
			return show.RunE(show, c.Args)
		}),
	}
}

// searchContexts finds what a text names: which of contexts, and its id.
func searchContexts(c *command.Call, text string) (kind int, id string, err error) {
	answer, err := c.Hub.Search(c.Context(), text)
	if err != nil {
		return 0, "", err
	}
	if node, err := c.FindNode(text); err == nil && node.Name == text {
		answer.Matches["nodes"] = []string{string(node.ID)}
	}
	var found []string
	for i, at := range contexts {
		for _, match := range answer.Matches[at.context] {
			if match == text {
				return i, match, nil
			}
			kind, id = i, match
			found = append(found, fmt.Sprintf("%s %s", at.kind, match))
		}
	}
	const shown = 5
	switch len(found) {
	case 0:
		return 0, "", fleet.Errorf(fleet.CodeNotFound, "no id begins with %q: no %s", text, kinds())
	case 1:
		return kind, id, nil
	}
	if n := len(found); n > shown {
		found = append(found[:shown], fmt.Sprintf("and %d more", n-shown))
	}
	return 0, "", fleet.Errorf(fleet.CodeConflict, "%q begins the ids of several objects: %s", text, strings.Join(found, ", ")).
		WithHint("give more of the id")
}
