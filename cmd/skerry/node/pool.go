package node

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"skerry/api"
	"skerry/client"
	"skerry/cmd/console"
	"skerry/cmd/skerry/command"
	"skerry/cmd/skerry/spec"
	"skerry/fleet"
	"skerry/fleet/admission"
)

func poolCommand(s *command.Session) *cobra.Command {
	return command.Group("pool", "Show, create and delete node pools",
		poolListCommand(s), poolInfoCommand(s), poolNodesCommand(s), poolJobsCommand(s), poolApplyCommand(s), poolInitCommand(s),
		poolDeleteCommand(s))
}

func poolListCommand(s *command.Session) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List node pools", Args: cobra.NoArgs,
		Example: `  skerry node pool list`,
		RunE: command.Show(s, command.Listed((*client.Client).NodePools, &client.List{}), console.List[fleet.Pool]{
			Heads: []string{"NAME", "DESCRIPTION"},
			Row:   func(p fleet.Pool) []any { return []any{p.Name, p.Description} },
		}.Write),
	}
}

func poolInfoCommand(s *command.Session) *cobra.Command {
	return &cobra.Command{
		Use: "info NAME", Short: "Show a node pool and its rules", Args: cobra.ExactArgs(1),
		Example: `  skerry node pool info ships`,
		RunE:    command.Show(s, command.Named((*client.Client).NodePool), writePool),
	}
}

func writePool(out *console.Output, p fleet.Pool) {
	t := console.NewTable()
	t.Add("Name", p.Name)
	t.Add("Description", p.Description)
	absent := p.DefaultDisconnect
	if absent == "" {
		absent = fleet.DisconnectKeep
	}
	t.Add("Without a disconnect block", absent)
	t.AddSet("Heartbeat TTL", p.HeartbeatTTL)
	if s := p.SchedulerConfiguration; s != nil {
		t.AddSet("Scheduler algorithm", s.SchedulerAlgorithm)
		if s.MemoryOversubscriptionEnabled != nil {
			t.Add("Memory oversubscription", *s.MemoryOversubscriptionEnabled)
		}
	}
	t.AddMap("Meta ", p.Meta)
	out.Table(t)
}

func poolNodesCommand(s *command.Session) *cobra.Command {
	return &cobra.Command{
		Use: "nodes NAME", Short: "List the nodes of a pool", Args: cobra.ExactArgs(1),
		Example: `  skerry node pool nodes ships`,
		RunE: command.Show(s, command.Named((*client.Client).NodePoolNodes), console.List[api.NodeStub]{
			Heads: []string{"ID", "NAME", "DATACENTER", "CLASS", "ELIGIBLE", "STATUS"},
			Row: func(n api.NodeStub) []any {
				return []any{console.ID(n.ID), n.Name, n.Datacenter, n.NodeClass, n.SchedulingEligibility != fleet.NodeIneligible, n.Status}
			},
		}.Write),
	}
}

func poolJobsCommand(s *command.Session) *cobra.Command {
	return &cobra.Command{
		Use: "jobs NAME", Short: "List the jobs of a pool", Args: cobra.ExactArgs(1),
		Example: `  skerry node pool jobs ships`,
		RunE: command.Show(s, command.Named((*client.Client).NodePoolJobs), console.List[api.JobStub]{
			Heads:     []string{"ID", "TYPE", "PRIORITY", "STATUS"},
			Namespace: func(j api.JobStub) string { return j.Namespace },
			Row:       func(j api.JobStub) []any { return []any{j.ID, j.Type, j.Priority, j.Status} },
		}.Write),
	}
}

// poolFlags are the rules of a pool that is named on the command line.
type poolFlags struct {
	description, disconnect, algorithm string
	ttl                                time.Duration
}

var poolFlagNames = []string{"description", "default-disconnect", "scheduler-algorithm", "heartbeat-ttl"}

func (f *poolFlags) addPoolFlags(flags *pflag.FlagSet) {
	flags.StringVar(&f.description, "description", "", "purpose of the node pool")
	flags.StringVar(&f.disconnect, "default-disconnect", "", "what happens to allocations without a disconnect block while their node is away: keep or nomad")
	flags.StringVar(&f.algorithm, "scheduler-algorithm", "", "scheduler algorithm: binpack or spread")
	flags.DurationVar(&f.ttl, "heartbeat-ttl", 0, "heartbeat interval of its nodes; 0: chosen by the size of the fleet")
}

// applyToPool gives a pool the rules that the command line has.
func (f *poolFlags) applyToPool(p *fleet.Pool, flags *pflag.FlagSet) {
	if flags.Changed("description") {
		p.Description = f.description
	}
	if flags.Changed("default-disconnect") {
		p.DefaultDisconnect = f.disconnect
	}
	if flags.Changed("heartbeat-ttl") {
		p.HeartbeatTTL = f.ttl
	}
	if flags.Changed("scheduler-algorithm") {
		s := fleet.PoolScheduling{}
		if p.SchedulerConfiguration != nil {
			s = *p.SchedulerConfiguration
		}
		s.SchedulerAlgorithm = f.algorithm
		p.SchedulerConfiguration = &s
	}
}

func poolApplyCommand(s *command.Session) *cobra.Command {
	var rules poolFlags
	c := &cobra.Command{
		Use: "apply NAME|FILE", Short: "Create or update a node pool", Args: cobra.ExactArgs(1),
		Example: `  skerry node pool apply ships.pool.hcl
  skerry node pool apply --default-disconnect keep --heartbeat-ttl 15m ships`,
		Long: "Create or update a node pool. The argument is a file in HCL (a block node_pool, as init writes it) or in\n" +
			"JSON (as info --json shows it); - is the standard input. The pool then has the rules of the file and no\n" +
			"others. If there is no such file, the argument is the name of the pool: it gets the rules of the flags, and\n" +
			"keeps its other rules.",
		RunE: command.Do(s, func(c *command.Call) (string, error) {
			src, err := spec.Read(c.InOrStdin(), c.Args[0])
			var p fleet.Pool
			switch {
			case fleet.CodeOf(err) == fleet.CodeNotFound:
				p, err = poolWithRules(c, rules)
			case err == nil:
				p, err = poolOfFile(c, src)
			}
			if err != nil {
				return "", err
			}
			return fmt.Sprintf("Node pool %q applied", p.Name), c.Hub.ApplyNodePool(c.Context(), p)
		}),
	}
	rules.addPoolFlags(c.Flags())
	return c
}

// poolOfFile is the pool of a file, which has all of its rules: flags beside it are refused.
func poolOfFile(c *command.Call, src []byte) (fleet.Pool, error) {
	for _, flag := range poolFlagNames {
		if c.Changed(flag) {
			return fleet.Pool{}, fleet.Errorf(fleet.CodeInvalid, "apply %s: --%s cannot be combined with a file", c.Args[0], flag).
				WithHint("write it into the file")
		}
	}
	return parsePool(c.Args[0], src)
}

// poolWithRules is a pool as it is, or a new one, with the rules that the command line has.
func poolWithRules(c *command.Call, rules poolFlags) (fleet.Pool, error) {
	p := fleet.Pool{Name: c.Args[0]}
	if err := admission.CheckPool(&p); err != nil {
		return p, fleet.AsError(err).WithHint("no file has that name")
	}
	stored, err := c.Hub.NodePool(c.Context(), p.Name)
	switch {
	case err == nil:
		p = stored
	case fleet.CodeOf(err) != fleet.CodeNotFound:
		return p, err
	}
	rules.applyToPool(&p, c.Flags())
	return p, nil
}

func poolInitCommand(s *command.Session) *cobra.Command {
	return &cobra.Command{
		Use: "init [FILE]", Short: "Write an example node pool file", Args: cobra.MaximumNArgs(1),
		Example: `  skerry node pool init ships.pool.hcl`,
		Long: "Write an example node pool file to FILE (default: pool.hcl, or pool.json with --json), which must not exist\n" +
			"yet.",
		RunE: s.RunOffline(func(c *command.Call) error {
			name, text := "pool.hcl", examplePoolHCL
			if c.Out.IsJSON() {
				name, text = "pool.json", examplePoolJSON
			}
			if len(c.Args) > 0 {
				name = c.Args[0]
			}
			if err := command.WriteNewFile(name, text); err != nil {
				return err
			}
			c.Out.Line("%s is written.", name)
			c.Out.Hint("to make the pool: skerry node pool apply %s", name)
			return nil
		}),
	}
}

func poolDeleteCommand(s *command.Session) *cobra.Command {
	return &cobra.Command{
		Use: "delete NAME", Short: "Delete a node pool without nodes", Args: cobra.ExactArgs(1),
		Example: `  skerry node pool delete ships`,
		RunE: command.Do(s, func(c *command.Call) (string, error) {
			return fmt.Sprintf("Node pool %q deleted", c.Args[0]), c.Hub.DeleteNodePool(c.Context(), c.Args[0])
		}),
	}
}
