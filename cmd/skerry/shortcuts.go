package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"skerry/fleet"
)

// shortcuts are the commands that people type most, without the group that they are
// of: skerry run for skerry job run.
func shortcuts(o *operator) []*cobra.Command {
	list := []*cobra.Command{
		jobRun(o), jobPlan(o), jobValidate(o), jobStop(o), jobInspect(o), jobInit(o),
		allocLogs(o), allocFS(o), allocExec(o),
	}
	for _, c := range list {
		of := "job"
		if slices.Contains([]string{"logs", "fs", "exec"}, c.Name()) {
			of = "alloc"
		}
		c.Short += fmt.Sprintf(" (as %s %s)", of, c.Name())
	}
	return append(list, status(o))
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

// status lists jobs, or shows whatever an id names.
func status(o *operator) *cobra.Command {
	return &cobra.Command{
		Use: "status [ID]", Short: "List jobs, or show the object of an id or of its prefix", Args: cobra.MaximumNArgs(1),
		Long: "List jobs, or show the job, allocation, node, deployment, evaluation, namespace or node pool that\n" +
			"an id, the beginning of one, or a node's name names. A job of exactly this id comes first.",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return o.listJobs(cmd)
			}
			kind, id, err := o.searchContexts(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			at := contexts[kind]
			show, _, err := cmd.Root().Find(strings.Fields(at.command))
			if err != nil {
				return fmt.Errorf("show %s %s: %w", at.kind, id, err)
			}
			show.SetContext(cmd.Context())
			show.SetOut(cmd.OutOrStdout()) // which --template shapes
			return show.RunE(show, []string{id})
		},
	}
}

// searchContexts finds what a text names: which of contexts, and its id.
func (o *operator) searchContexts(ctx context.Context, text string) (kind int, id string, err error) {
	hub, err := o.hubClient()
	if err != nil {
		return 0, "", err
	}
	answer, err := hub.Search(ctx, text)
	if err != nil {
		return 0, "", err
	}
	if node, err := hub.FindNode(ctx, text); err == nil && node.Name == text {
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
		return 0, "", fleet.Errorf(fleet.CodeNotFound, "nothing begins with %q: no %s", text, kinds())
	case 1:
		return kind, id, nil
	}
	if n := len(found); n > shown {
		found = append(found[:shown], fmt.Sprintf("and %d more", n-shown))
	}
	return 0, "", fleet.Errorf(fleet.CodeConflict, "%q begins the ids of several things: %s", text, strings.Join(found, ", ")).
		WithHint("give more of the id")
}
