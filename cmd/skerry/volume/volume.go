// Package volume has the commands of skerry volume. It starts no goroutine, and persists nothing.
package volume

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"skerry/api"
	"skerry/client"
	"skerry/cmd/console"
	"skerry/cmd/skerry/command"
	"skerry/cmd/skerry/spec"
	"skerry/fleet"
)

// Command is skerry volume.
func Command(s *command.Session) *cobra.Command {
	return command.Group("volume", "Show, create and delete dynamic host volumes",
		statusCommand(s), createCommand(s), registerCommand(s), deleteCommand(s), initCommand(s))
}

// addType adds --type, which scripts for Nomad give.
func addType(c *cobra.Command, kind *string) {
	c.Flags().StringVar(kind, "type", fleet.VolumeHost, "type of the volumes; host is the only one")
}

// statusQuery has the flags of status.
type statusQuery struct{ kind, node, pool string }

func statusCommand(s *command.Session) *cobra.Command {
	var q statusQuery
	c := &cobra.Command{
		Use: "status [ID]", Short: "List dynamic host volumes, or show one", Args: cobra.MaximumNArgs(1),
		Example: `  skerry volume status
  skerry volume status 8f2c`,
		Long: "List dynamic host volumes, or show the one whose id begins with ID. Folders of the flag --host-volume of a\n" +
			"node are not listed.",
		RunE: s.Run(func(c *command.Call) error {
			if err := checkType(q.kind); err != nil {
				return err
			}
			if len(c.Args) > 0 {
				return showVolume(c, c.Args[0])
			}
			return listVolumes(c, q)
		}),
	}
	addType(c, &q.kind)
	c.Flags().StringVar(&q.node, "node", "", "list only volumes of the node with this id or name")
	c.Flags().StringVar(&q.pool, "node-pool", "", "list only volumes of this node pool")
	return c
}

func listVolumes(c *command.Call, q statusQuery) error {
	var node fleet.NodeID
	if q.node != "" {
		n, err := c.FindNode(q.node)
		if err != nil {
			return err
		}
		node = n.ID
	}
	list, err := c.Hub.Volumes(c.Context(), client.List{}, node, q.pool)
	if err != nil {
		return err
	}
	c.Out.Show(list, func() {
		console.List[api.VolumeStub]{
			None: "There are no such volumes.", Heads: []string{"ID", "NAME", "PLUGIN", "NODE", "NODE POOL", "STATE"},
			Namespace: func(v api.VolumeStub) string { return v.Namespace },
			Row: func(v api.VolumeStub) []any {
				return []any{console.ID(v.ID), v.Name, v.PluginID, console.ID(v.NodeID), v.NodePool, console.WithReason(v.State, v.StateDescription)}
			},
		}.Write(c.Out, list)
	})
	return nil
}

func showVolume(c *command.Call, id string) error {
	stub, err := c.Hub.FindVolume(c.Context(), id)
	if err != nil {
		return err
	}
	v, err := c.Hub.In(stub.Namespace).Volume(c.Context(), stub.ID)
	if err != nil {
		return err
	}
	c.Out.Show(v, func() { writeVolume(c.Out, v) })
	return nil
}

func writeVolume(out *console.Output, v api.Volume) {
	t := console.NewTable()
	t.Add("ID", v.ID)
	t.Add("Name", v.Name)
	t.Add("Namespace", v.Namespace)
	t.AddSet("Plugin", v.PluginID)
	t.Add("Node", console.ID(v.NodeID))
	t.Add("Node pool", v.NodePool)
	t.Add("State", console.WithReason(v.State, v.StateDescription))
	t.AddSet("Host path", v.HostPath)
	for _, c := range v.RequestedCapabilities {
		t.Add("Capability", c.AccessMode+", "+c.AttachmentMode)
	}
	for _, c := range v.Constraints {
		t.Add("Constraint", c.String())
	}
	t.AddMap("Parameter ", v.Parameters)
	t.Add("Created", console.SinceNano(v.CreateTime))
	out.Table(t)
	if len(v.Allocations) == 0 {
		return
	}
	out.Line("")
	console.List[api.AllocStub]{
		Heads: []string{"ALLOC", "JOB", "GROUP", "VERSION", "STATUS"},
		Row: func(a api.AllocStub) []any {
			return []any{console.ID(a.ID), a.JobID, a.TaskGroup, a.JobVersion, a.ClientStatus}
		},
	}.Write(out, v.Allocations)
}

// storeFlags are the flags of create and register.
type storeFlags struct {
	id             string
	detach, policy bool
}

// storeCommand makes create or register, which store sends to a hub.
func storeCommand(s *command.Session, c *cobra.Command, done string, store func(*client.Client, context.Context, fleet.Volume) (api.VolumeAnswer, error)) *cobra.Command {
	var f storeFlags
	c.Args = cobra.ExactArgs(1)
	c.RunE = s.Run(func(c *command.Call) error {
		src, err := spec.Read(c.InOrStdin(), c.Args[0])
		if err != nil {
			return err
		}
		v, err := parseVolume(c.Args[0], src)
		if err != nil {
			return err
		}
		if f.id != "" {
			v.ID = fleet.VolumeID(f.id)
		}
		answer, err := store(c.Hub, c.Context(), v)
		if err != nil {
			return err
		}
		if !f.detach && answer.Warnings == "" {
			if *answer.Volume, err = awaitReady(c, answer.Volume); err != nil {
				return err
			}
		}
		c.Out.Show(answer, func() {
			c.Out.Line("Volume %q %s with the ID %s: it is %s.", answer.Volume.Name, done, answer.Volume.ID,
				console.WithReason(answer.Volume.State, answer.Volume.StateDescription))
		})
		if answer.Warnings != "" {
			c.Warn(strings.Split(answer.Warnings, "\n"))
		}
		return nil
	})
	command.AddDetach(c, &f.detach)
	c.Flags().StringVar(&f.id, "id", "", "complete id of the volume to change, in place of the id in the file")
	c.Flags().BoolVar(&f.policy, "policy-override", false, "accepted for scripts for Nomad: there are no policies to override")
	return c
}

// awaitReady waits until the edge has made a volume. It returns an error when the edge reports a failure, although the
// edge tries again.
func awaitReady(c *command.Call, v *fleet.Volume) (fleet.Volume, error) {
	hub := c.Hub.In(v.Namespace)
	waiting, index := v.StateDescription, fleet.Index(0)
	for {
		now, err := hub.Watch(&index).Volume(c.Context(), v.ID)
		switch {
		case err != nil:
			return *v, c.Interrupted(err)
		case now.State == fleet.VolumePending && now.StateDescription != waiting:
			return *v, fleet.Errorf(fleet.CodeUnavailable, "create volume %s: %s", console.ID(v.ID), now.StateDescription).
				WithHint("the node tries again: skerry volume status %s", console.ID(v.ID))
		case now.State != fleet.VolumePending:
			return now.Volume, nil
		}
	}
}

func createCommand(s *command.Session) *cobra.Command {
	return storeCommand(s, &cobra.Command{
		Use: "create FILE", Short: "Create a volume on a node, and wait until it is ready",
		Example: `  skerry volume create volume.host.hcl
  skerry volume create --detach volume.host.hcl`,
		Long: "Create the volume that the file describes, in HCL or in JSON; - is the standard input.\n" +
			"Without a node_id the hub chooses a suitable node. With the id of an existing volume, its capabilities,\n" +
			"capacity and constraints change. On a disconnected node the volume is pending until the node is back.",
	}, "is created", (*client.Client).CreateVolume)
}

func registerCommand(s *command.Session) *cobra.Command {
	return storeCommand(s, &cobra.Command{
		Use: "register FILE", Short: "Register an existing folder of a node as a volume",
		Example: `  skerry volume register volume.host.hcl`,
		Long: "Register an existing folder of a node as a volume. The file names the folder (host_path) and the node\n" +
			"(node_id). Skerry never deletes the folder.",
	}, "is registered", (*client.Client).RegisterVolume)
}

func deleteCommand(s *command.Session) *cobra.Command {
	var kind string
	var force bool
	c := &cobra.Command{
		Use: "delete ID", Short: "Delete a volume that no allocation uses, with its files", Args: cobra.ExactArgs(1),
		Example: `  skerry volume delete 8f2c
  skerry volume delete --force 8f2c`,
		Long: "Delete a volume that no allocation uses. Its node deletes the folder with all files; a disconnected node does so\n" +
			"when it is back. The folder of a registered volume stays.",
		RunE: command.Do(s, func(c *command.Call) (string, error) {
			if err := checkType(kind); err != nil {
				return "", err
			}
			stub, err := c.Hub.FindVolume(c.Context(), c.Args[0])
			if err != nil {
				return "", err
			}
			done := fmt.Sprintf("Volume %q is deleted as soon as its node has deleted its folder.", stub.Name)
			if force {
				done = fmt.Sprintf("Volume %q is removed from the hubs' state. Its folder on the node stays.", stub.Name)
			}
			return done, c.Hub.In(stub.Namespace).DeleteVolume(c.Context(), stub.ID, force)
		}),
	}
	addType(c, &kind)
	c.Flags().BoolVar(&force, "force", false, "remove the volume at once, for a node that never comes back; its folder stays")
	return c
}

func initCommand(s *command.Session) *cobra.Command {
	var kind string
	c := &cobra.Command{
		Use: "init [FILE]", Short: "Write an example volume file", Args: cobra.MaximumNArgs(1),
		Example: `  skerry volume init`,
		Long:    "Write an example volume file to FILE (default: volume.host.hcl), which must not exist yet.",
		RunE: s.RunOffline(func(c *command.Call) error {
			if err := checkType(kind); err != nil {
				return err
			}
			name := "volume.host.hcl"
			if len(c.Args) > 0 {
				name = c.Args[0]
			}
			if err := command.WriteNewFile(name, exampleFile); err != nil {
				return err
			}
			c.Out.Line("%s is written.", name)
			c.Out.Hint("to create the volume: skerry volume create %s", name)
			return nil
		}),
	}
	addType(c, &kind)
	return c
}
