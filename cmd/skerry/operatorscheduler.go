package main

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"skerry/cmd/console"
	"skerry/fleet"
)

func schedulerGet(o *operator) *cobra.Command {
	return &cobra.Command{
		Use: "get-config", Short: "Show the scheduler configuration", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			hub, err := o.hubClient()
			if err != nil {
				return err
			}
			answer, err := hub.SchedulerConfiguration(cmd.Context())
			if err != nil {
				return err
			}
			if o.json {
				return console.JSON(cmd.OutOrStdout(), answer.SchedulerConfig)
			}
			c := answer.SchedulerConfig
			t := console.Table{}
			t.Add("Scheduler algorithm", c.SchedulerAlgorithm)
			t.Add("Memory oversubscription", c.MemoryOversubscriptionEnabled)
			t.Add("Reject job registration", c.RejectJobRegistration)
			t.Add("Preemption for system jobs", c.PreemptionConfig.SystemSchedulerEnabled)
			t.Add("Preemption for service jobs", c.PreemptionConfig.ServiceSchedulerEnabled)
			t.Add("Preemption for batch jobs", c.PreemptionConfig.BatchSchedulerEnabled)
			t.Add("Preemption for sysbatch jobs", c.PreemptionConfig.SysBatchSchedulerEnabled)
			t.Add("Modify index", answer.Index)
			return t.Write(cmd.OutOrStdout())
		},
	}
}

func schedulerSet(o *operator) *cobra.Command {
	var algorithm string
	var checkIndex uint64
	c := &cobra.Command{
		Use: "set-config", Short: "Change the scheduler configuration", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			hub, err := o.hubClient()
			if err != nil {
				return err
			}
			now, err := hub.SchedulerConfiguration(cmd.Context())
			if err != nil {
				return err
			}
			cfg, index := *now.SchedulerConfig, now.SchedulerConfig.ModifyIndex
			if cmd.Flags().Changed("check-index") {
				index = fleet.Index(checkIndex)
			}
			if algorithm != "" {
				cfg.SchedulerAlgorithm = algorithm
			}
			for name, into := range onOffSettings(&cfg) {
				if f := cmd.Flag(name); f.Changed {
					*into, _ = strconv.ParseBool(f.Value.String()) // the flag has checked it
				}
			}
			// What somebody else changed meanwhile is not undone: the index is checked.
			updated, err := hub.SetSchedulerConfiguration(cmd.Context(), cfg, index)
			if err != nil {
				return err
			}
			if !updated {
				return fleet.Errorf(fleet.CodeConflict, "set the scheduler configuration: its modify index is not %d", index).
					WithHint("somebody has changed it: skerry operator scheduler get-config shows it as it is")
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), "Scheduler configuration updated")
			return err
		},
	}
	c.Flags().StringVar(&algorithm, "scheduler-algorithm", "", "binpack or spread")
	c.Flags().Uint64Var(&checkIndex, "check-index", 0, "only where its modify index is this one")
	for name, what := range map[string]string{
		"memory-oversubscription": "whether memory_max of tasks counts", "reject-job-registration": "whether jobs may not be registered",
		"preempt-service-scheduler": "whether service jobs may evict others", "preempt-batch-scheduler": "whether batch jobs may",
		"preempt-system-scheduler": "whether system jobs may", "preempt-sysbatch-scheduler": "whether sysbatch jobs may",
	} {
		c.Flags().Bool(name, false, what)
	}
	return c
}

// onOffSettings are the settings that are on or off, by their flags.
func onOffSettings(c *fleet.SchedulerConfiguration) map[string]*bool {
	return map[string]*bool{
		"memory-oversubscription": &c.MemoryOversubscriptionEnabled, "reject-job-registration": &c.RejectJobRegistration,
		"preempt-service-scheduler": &c.PreemptionConfig.ServiceSchedulerEnabled, "preempt-batch-scheduler": &c.PreemptionConfig.BatchSchedulerEnabled,
		"preempt-system-scheduler": &c.PreemptionConfig.SystemSchedulerEnabled, "preempt-sysbatch-scheduler": &c.PreemptionConfig.SysBatchSchedulerEnabled,
	}
}
