// Package service has the commands of skerry service. It starts no goroutine, and persists nothing.
package service

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"skerry/api"
	"skerry/client"
	"skerry/cmd/console"
	"skerry/cmd/skerry/command"
	"skerry/fleet"
)

// Command is skerry service.
func Command(s *command.Session) *cobra.Command {
	return command.Group("service", "Show registered services", listCommand(s), infoCommand(s), deleteCommand(s))
}

// listedService is a service in a namespace.
type listedService struct {
	namespace, name string
	tags            []string
}

func listCommand(s *command.Session) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the reachable services", Args: cobra.NoArgs,
		Example: `  skerry service list`,
		Long:    "List the services that a running allocation on a connected node has registered.",
		RunE: command.Show(s, command.All((*client.Client).Services), func(out *console.Output, list []api.ServiceList) {
			var all []listedService
			for _, ns := range list {
				for _, s := range ns.Services {
					all = append(all, listedService{ns.Namespace, s.ServiceName, s.Tags})
				}
			}
			console.List[listedService]{
				None: "There are no services that can be reached.", Heads: []string{"SERVICE", "TAGS"},
				Namespace: func(s listedService) string { return s.namespace },
				Row:       func(s listedService) []any { return []any{s.name, tagList(s.tags)} },
			}.Write(out, all)
		}),
	}
}

func tagList(tags []string) string { return "[" + strings.Join(tags, ",") + "]" }

func infoCommand(s *command.Session) *cobra.Command {
	return &cobra.Command{
		Use: "info NAME", Short: "Show the registrations of a service, also unreachable ones", Args: cobra.ExactArgs(1),
		Example: `  skerry service info till`,
		RunE: command.Show(s, readRegistrations, console.List[fleet.ServiceRegistration]{
			Heads: []string{"JOB", "ADDRESS", "STATUS", "TAGS", "NODE", "ALLOC"},
			Row: func(s fleet.ServiceRegistration) []any {
				address := s.Address
				if s.Port > 0 {
					address = net.JoinHostPort(s.Address, strconv.Itoa(s.Port))
				}
				return []any{s.JobID, address, s.Status, tagList(s.Tags), console.ID(s.NodeID), console.ID(s.AllocID)}
			},
		}.Write),
	}
}

func readRegistrations(c *command.Call) ([]fleet.ServiceRegistration, error) {
	list, err := c.Hub.Service(c.Context(), c.Args[0])
	if err == nil && len(list) == 0 {
		err = fleet.Errorf(fleet.CodeNotFound, "show service %q: no running allocation provides it", c.Args[0])
	}
	return list, err
}

func deleteCommand(s *command.Session) *cobra.Command {
	return &cobra.Command{
		Use: "delete NAME ID", Short: "Delete a stale registration of a service (there is never one)", Args: cobra.ExactArgs(2),
		Example: `  skerry service delete till 1d697ed5`,
		Long: "This command exists for scripts for Nomad, and deletes nothing. A service is registered as long as its\n" +
			"allocation runs, so no registration is stale. For one that exists, the command fails and names the\n" +
			"allocation to stop instead.",
		RunE: command.Do(s, func(c *command.Call) (string, error) {
			return fmt.Sprintf("Registration %s is deleted.", c.Args[1]), c.Hub.DeleteService(c.Context(), c.Args[0], c.Args[1])
		}),
	}
}
