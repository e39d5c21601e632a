package operator

import (
	"strconv"

	"github.com/spf13/cobra"

	"skerry/api"
	"skerry/cmd/console"
	"skerry/cmd/skerry/command"
	"skerry/fleet"
)

func getConfigCommand(s *command.Session) *cobra.Command {
	return &cobra.Command{
		Use: "get-config", Short: "Show the scheduler configuration", Args: cobra.NoArgs,
		Example: `  skerry operator scheduler get-config`,
		Long: "Show the scheduler configuration: the algorithm, which jobs may preempt others, and whether jobs can be\n" +
			"registered.",
		RunE: s.Run(func(c *command.Call) error {
			answer, err := c.Hub.SchedulerConfiguration(c.Context())
			if err == nil {
				c.Out.Show(answer.SchedulerConfig, func() { writeConfig(c.Out, answer) })
			}
			return err
		}),
	}
}

func writeConfig(out *console.Output, answer api.SchedulerConfigurationResponse) {
	c := answer.SchedulerConfig
	t := console.NewTable()
	t.Add("Scheduler algorithm", c.SchedulerAlgorithm)
	t.Add("Memory oversubscription", c.MemoryOversubscriptionEnabled)
	t.Add("Reject job registration", c.RejectJobRegistration)
	t.Add("Preemption for system jobs", c.PreemptionConfig.SystemSchedulerEnabled)
	t.Add("Preemption for service jobs", c.PreemptionConfig.ServiceSchedulerEnabled)
	t.Add("Preemption for batch jobs", c.PreemptionConfig.BatchSchedulerEnabled)
	t.Add("Preemption for sysbatch jobs", c.PreemptionConfig.SysBatchSchedulerEnabled)
	t.Add("Modify index", answer.Index)
	out.Table(t)
}

// switches are the flags for the parts of the configuration that are on or off.
var switches = []struct {
	flag, what string
	value      func(*fleet.SchedulerConfiguration) *bool
}{
	{"memory-oversubscription", "tasks may use memory up to their memory_max",
		func(c *fleet.SchedulerConfiguration) *bool { return &c.MemoryOversubscriptionEnabled }},
	{"reject-job-registration", "refuse every registration of a job",
		func(c *fleet.SchedulerConfiguration) *bool { return &c.RejectJobRegistration }},
	{"preempt-service-scheduler", "service jobs may evict allocations of lower priority",
		func(c *fleet.SchedulerConfiguration) *bool { return &c.PreemptionConfig.ServiceSchedulerEnabled }},
	{"preempt-batch-scheduler", "batch jobs may evict allocations of lower priority",
		func(c *fleet.SchedulerConfiguration) *bool { return &c.PreemptionConfig.BatchSchedulerEnabled }},
	{"preempt-system-scheduler", "system jobs may evict allocations of lower priority",
		func(c *fleet.SchedulerConfiguration) *bool { return &c.PreemptionConfig.SystemSchedulerEnabled }},
	{"preempt-sysbatch-scheduler", "sysbatch jobs may evict allocations of lower priority",
		func(c *fleet.SchedulerConfiguration) *bool { return &c.PreemptionConfig.SysBatchSchedulerEnabled }},
}

func setConfigCommand(s *command.Session) *cobra.Command {
	var algorithm string
	var checkIndex uint64
	c := &cobra.Command{
		Use: "set-config", Short: "Change the scheduler configuration", Args: cobra.NoArgs,
		Example: `  skerry operator scheduler set-config --scheduler-algorithm spread`,
		Long: "Change the scheduler configuration. Values without a flag stay as they are. A flag with =false switches a value\n" +
			"off, for example --preempt-batch-scheduler=false.",
		RunE: s.Run(func(c *command.Call) error {
			now, err := c.Hub.SchedulerConfiguration(c.Context())
			if err != nil {
				return err
			}
			cfg, index := *now.SchedulerConfig, now.SchedulerConfig.ModifyIndex
			if c.Changed("check-index") {
				index = fleet.Index(checkIndex)
			}
			if algorithm != "" {
				cfg.SchedulerAlgorithm = algorithm
			}
			for _, one := range switches {
				if f := c.Flag(one.flag); f.Changed {
					*one.value(&cfg), _ = strconv.ParseBool(f.Value.String()) // the flag has checked it
				}
			}
			// The index is checked, so that a change which another operator made meanwhile is kept.
			updated, err := c.Hub.SetSchedulerConfiguration(c.Context(), cfg, index)
			if err != nil {
				return err
			}
			if !updated {
				return fleet.Errorf(fleet.CodeConflict, "set the scheduler configuration: its modify index is not %d", index).
					WithHint("somebody has changed it: skerry operator scheduler get-config shows its current value")
			}
			c.Out.Line("Scheduler configuration updated")
			return nil
		}),
	}
	c.Flags().StringVar(&algorithm, "scheduler-algorithm", "", "scheduler algorithm: binpack or spread")
	c.Flags().Uint64Var(&checkIndex, "check-index", 0, "change the configuration only if its modify index, as get-config shows it, is this one")
	for _, one := range switches {
		c.Flags().Bool(one.flag, false, one.what)
	}
	return c
}
