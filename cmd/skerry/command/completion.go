package command

import (
	"context"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"skerry/api"
	"skerry/client"
	"skerry/cmd/console"
	"skerry/fleet"
)

// Bounds of a completion: a shell waits for it.
const (
	completionWait = 2 * time.Second
	completionSize = 100
)

// lister gives the ids that begin with a text, each with a tab and what helps to tell
// it from others.
type lister func(ctx context.Context, hub *client.Client, begin string) ([]string, error)

// completions are what the first argument of a group's commands is.
var completions = map[string]lister{
	"job": completeJobs, "alloc": completeAllocs, "node": completeNodes, "deployment": completeDeployments,
	"eval": completeEvals, "namespace": completeNamespaces, "node pool": completePools, "service": completeServices,
}

// shortcutsComplete are those of commands that stand without their group.
var shortcutsComplete = map[string]lister{
	"stop": completeJobs, "inspect": completeJobs, "status": completeJobs,
	"logs": completeAllocs, "fs": completeAllocs, "exec": completeAllocs,
}

// AddCompletions lets shells ask the hub for what a command's first argument may be. Where that
// is a file they know themselves.
func (s *Session) AddCompletions(cmd *cobra.Command, group string) {
	for _, child := range cmd.Commands() {
		s.AddCompletions(child, strings.TrimSpace(group+" "+child.Name()))
	}
	if f := cmd.PersistentFlags().Lookup("namespace"); f != nil {
		s.completeFlag(cmd, "namespace", completeNamespaces)
	}
	if f := cmd.Flags().Lookup("job"); f != nil && f.Value.Type() == "string" {
		s.completeFlag(cmd, "job", completeJobs)
	}
	list := completionLister(group)
	what := ""
	if words := strings.Fields(cmd.Use); len(words) > 1 {
		what = strings.Trim(words[1], "[]")
	}
	if list == nil || cmd.HasSubCommands() || what != "ID" && what != "NAME" {
		return
	}
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, begin string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveDefault
		}
		if f := cmd.Flags().Lookup("job"); f != nil && f.Value.String() == "true" {
			return s.completionsFromHub(cmd, completeJobs, begin) // anyAllocFlags says what the id is
		}
		return s.completionsFromHub(cmd, list, begin)
	}
}

func (s *Session) completeFlag(cmd *cobra.Command, flag string, list lister) {
	err := cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, _ []string, begin string) ([]string, cobra.ShellCompDirective) {
		return s.completionsFromHub(cmd, list, begin)
	})
	if err != nil {
		panic(err) // the command has the flag
	}
}

// completionLister is what the first argument of a command is: what its innermost group is about.
func completionLister(path string) lister {
	if !strings.Contains(path, " ") {
		return shortcutsComplete[path]
	}
	for i := strings.LastIndex(path, " "); i > 0; i = strings.LastIndex(path, " ") {
		path = path[:i]
		if list := completions[path]; list != nil {
			return list
		}
	}
	return nil
}

// completionsFromHub asks the hub. Where it does not answer there is nothing to offer.
func (s *Session) completionsFromHub(cmd *cobra.Command, list lister, begin string) ([]string, cobra.ShellCompDirective) {
	none := cobra.ShellCompDirectiveNoFileComp
	if err := console.CompleteFlags(cmd.Flags(), os.Environ()); err != nil {
		return nil, none
	}
	hub, err := s.hubClient()
	if err != nil {
		return nil, none
	}
	ctx, cancel := context.WithTimeout(context.Background(), completionWait)
	defer cancel()
	found, err := list(ctx, hub, begin)
	if err != nil {
		cobra.CompDebugln(err.Error(), false)
	}
	return found, none
}

// offer is a lister of names: it reads a list, of many objects the newest.
func offer[T any](list func(*client.Client, context.Context, client.List) ([]T, error), of func(T) (name, note string)) lister {
	return func(ctx context.Context, hub *client.Client, begin string) ([]string, error) {
		items, err := list(hub, ctx, client.List{Prefix: begin, PerPage: completionSize, Reverse: true})
		var found []string
		for _, t := range items {
			if name, note := of(t); strings.HasPrefix(name, begin) {
				found = append(found, name+"\t"+note)
			}
		}
		return found, err
	}
}

// offerIDs is a lister of ids. It offers the beginning of each, or all of it where more than that is typed.
func offerIDs[T any](list func(*client.Client, context.Context, client.List) ([]T, error), of func(T) (id, note string)) lister {
	return func(ctx context.Context, hub *client.Client, begin string) ([]string, error) {
		return offer(list, func(t T) (string, string) {
			id, note := of(t)
			if len(begin) <= fleet.ShortIDLength {
				id = fleet.Short(id)
			}
			return id, note
		})(ctx, hub, begin)
	}
}

var (
	completeJobs = offer((*client.Client).Jobs, func(j api.JobStub) (name, note string) {
		return string(j.ID), j.Type + " " + j.Status
	})
	completeAllocs = offerIDs((*client.Client).Allocs, func(a api.AllocStub) (id, note string) {
		return string(a.ID), a.Name + " on " + a.NodeName + " " + a.ClientStatus
	})
	completeDeployments = offerIDs((*client.Client).Deployments, func(d fleet.Deployment) (id, note string) {
		return string(d.ID), string(d.JobID) + " " + d.Status
	})
	completeEvals = offerIDs((*client.Client).Evals, func(e fleet.Evaluation) (id, note string) {
		return string(e.ID), string(e.JobID) + " " + e.Status
	})
	completeNamespaces = offer((*client.Client).Namespaces, func(n fleet.Namespace) (name, note string) {
		return n.Name, n.Description
	})
	completePools   = offer((*client.Client).NodePools, func(p fleet.Pool) (name, note string) { return p.Name, p.Description })
	completeNodeIDs = offerIDs((*client.Client).Nodes, func(n api.NodeStub) (id, note string) {
		return string(n.ID), n.Name + " " + string(n.Status)
	})
)

// completeNodes offers names, and ids where no name begins so. A hub looks for prefixes of ids alone.
func completeNodes(ctx context.Context, hub *client.Client, begin string) ([]string, error) {
	list, err := hub.Nodes(ctx, client.List{PerPage: completionSize, Reverse: true})
	var found []string
	for _, n := range list {
		if strings.HasPrefix(n.Name, begin) {
			found = append(found, n.Name+"\t"+string(n.Status))
		}
	}
	if err != nil || len(found) > 0 {
		return found, err
	}
	return completeNodeIDs(ctx, hub, begin)
}

// completeServices offers the names of services of all namespaces that are listed.
func completeServices(ctx context.Context, hub *client.Client, begin string) ([]string, error) {
	list, err := hub.Services(ctx)
	var found []string
	for _, ns := range list {
		for _, s := range ns.Services {
			if strings.HasPrefix(s.ServiceName, begin) {
				found = append(found, s.ServiceName)
			}
		}
	}
	return found, err
}
