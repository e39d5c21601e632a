// Package operator has the commands of skerry operator, skerry system, skerry token and skerry monitor: they
// look after the hubs. It starts no goroutine; snapshots are the only files that it writes.
package operator

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"skerry/api"
	"skerry/client"
	"skerry/cmd/console"
	"skerry/cmd/skerry/command"
)

// Command is skerry operator. The command recover comes from outside: it needs the hub itself.
func Command(s *command.Session, recover *cobra.Command) *cobra.Command {
	return command.Group("operator", "Manage the hubs",
		command.Group("raft", "Show and change the Raft configuration",
			listPeersCommand(s), transferCommand(s), removePeerCommand(s), recover),
		command.Group("autopilot", "Show the health of the hubs", healthCommand(s)),
		command.Group("scheduler", "Show and change the scheduler configuration", getConfigCommand(s), setConfigCommand(s)),
		command.Group("root", "Manage the root of the cluster's encryption",
			command.Group("keyring", "Show and change the keys that encrypt variables", listKeysCommand(s), rotateKeyCommand(s), removeKeyCommand(s))),
		command.Group("ca", "Replace the certificate authority of the cluster", rotateCACommand(s), caStatusCommand(s)),
		command.Group("state-key", "Replace the key of the hubs that encrypts secrets in the state",
			rotateStateKeyCommand(s), stateKeyStatusCommand(s), forgetStateKeyCommand(s)),
		command.Group("snapshot", "Save, inspect and restore snapshots of the cluster's state",
			saveCommand(s), restoreCommand(s), inspectCommand(s)))
}

func listPeersCommand(s *command.Session) *cobra.Command {
	return &cobra.Command{
		Use: "list-peers", Short: "List the hubs of the Raft configuration", Args: cobra.NoArgs,
		Example: `  skerry operator raft list-peers`,
		RunE: command.Show(s, command.All((*client.Client).RaftConfiguration), func(out *console.Output, answer api.RaftConfiguration) {
			t := console.NewTable("NODE", "ADDRESS", "STATE", "VOTER")
			for _, s := range answer.Servers {
				role := "follower"
				if s.Leader {
					role = "leader"
				}
				t.Add(s.Node, s.Address, role, s.Voter)
			}
			out.Table(t)
		}),
	}
}

func transferCommand(s *command.Session) *cobra.Command {
	var peer client.HubRef
	c := &cobra.Command{
		Use: "transfer-leadership", Short: "Transfer leadership to another hub", Args: cobra.NoArgs,
		Example: `  skerry operator raft transfer-leadership --peer-id hub2`,
		RunE: command.Do(s, func(c *command.Call) (string, error) {
			done, err := c.Hub.TransferLeadership(c.Context(), peer)
			to := "another hub"
			if done.To != "" {
				to = "hub " + string(done.To)
			}
			return fmt.Sprintf("Hub %s transfers the leadership to %s", done.From, to), err
		}),
	}
	addHubFlags(c, &peer)
	return c
}

func removePeerCommand(s *command.Session) *cobra.Command {
	var peer client.HubRef
	c := &cobra.Command{
		Use: "remove-peer", Short: "Remove a hub that is gone for good from the Raft configuration", Args: cobra.NoArgs,
		Example: `  skerry operator raft remove-peer --peer-id hub3`,
		Long:    "Remove a hub that is gone for good from the Raft configuration. Stop the hub first: it joins again when it starts.",
		RunE: command.Do(s, func(c *command.Call) (string, error) {
			return fmt.Sprintf("Hub %s%s is removed", peer.ID, peer.Address), c.Hub.RemoveRaftPeer(c.Context(), peer)
		}),
	}
	addHubFlags(c, &peer)
	return c
}

// addHubFlags adds the flags that name a hub.
func addHubFlags(c *cobra.Command, hub *client.HubRef) {
	c.Flags().StringVar(&hub.ID, "peer-id", "", "`id` of the hub")
	c.Flags().StringVar(&hub.Address, "peer-address", "", "`address` of the hub instead, as list-peers shows it")
}

func healthCommand(s *command.Session) *cobra.Command {
	return &cobra.Command{
		Use: "health", Short: "Show the health of each hub, and how many may fail", Args: cobra.NoArgs,
		Example: `  skerry operator autopilot health`,
		RunE: command.Show(s, command.All((*client.Client).AutopilotHealth), func(out *console.Output, h api.HealthAnswer) {
			out.Line("Healthy            %t\nFailure tolerance  %d\nLeader             %s\n", h.Healthy, h.FailureTolerance, h.Leader)
			t := console.NewTable("NAME", "ADDRESS", "GOSSIP", "ANSWERS IN", "TERM", "INDEX", "VOTER", "HEALTHY")
			for _, s := range h.Servers {
				t.Add(s.Name, s.Address, s.SerfStatus, s.LastContact, s.LastTerm, s.LastIndex, s.Voter, s.Healthy)
			}
			out.Table(t)
		}),
	}
}

// SystemCommand is skerry system.
func SystemCommand(s *command.Session) *cobra.Command {
	return command.Group("system", "Maintain the state of the hubs", &cobra.Command{
		Use: "gc", Short: "Run garbage collection now", Args: cobra.NoArgs,
		Example: `  skerry system gc`,
		Long: "Remove all jobs, evaluations, allocations, deployments and nodes that have ended from the hubs' state now,\n" +
			"whatever their age.",
		RunE: command.Do(s, func(c *command.Call) (string, error) {
			return "All ended objects are removed from the hubs' state.", c.Hub.CollectGarbage(c.Context())
		}),
	})
}

// MonitorCommand is skerry monitor.
func MonitorCommand(s *command.Session) *cobra.Command {
	var q client.MonitorQuery
	var node string
	c := &cobra.Command{
		Use: "monitor", Short: "Stream the logs of a hub or a node", Args: cobra.NoArgs,
		Example: `  skerry monitor
  skerry monitor --node-id shop-17 --log-level debug`,
		RunE: s.Run(func(c *command.Call) error {
			q.JSON = c.Out.IsJSON()
			if node != "" {
				n, err := c.FindNode(node)
				if err != nil {
					return err
				}
				q.Node = n.ID
			}
			lines, err := c.Hub.Monitor(c.Context(), q)
			if err != nil {
				return err
			}
			defer lines.Close()
			if _, err = io.Copy(c.Out, lines); errors.Is(err, context.Canceled) {
				return nil // it was interrupted
			}
			return err
		}),
	}
	c.Flags().StringVar(&q.Level, "log-level", "info", "lowest level to show: debug, info, warn or error")
	c.Flags().StringVar(&node, "node-id", "", "node whose logs are shown: its name, or the beginning of its id")
	c.Flags().StringVar(&q.Hub, "server-id", "", "name of the hub at --addr, for commands written for Nomad; the logs of another hub need its own --addr")
	return c
}
