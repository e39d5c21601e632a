package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"skerry/client"
	"skerry/fleet"
	"skerry/fleet/validate"
)

// poolFlags are the rules of a pool that is named on the command line.
type poolFlags struct {
	description, disconnect, algorithm string
	ttl                                time.Duration
}

var poolFlagNames = []string{"description", "default-disconnect", "scheduler-algorithm", "heartbeat-ttl"}

func (f *poolFlags) addPoolFlags(flags *pflag.FlagSet) {
	flags.StringVar(&f.description, "description", "", "what it is for")
	flags.StringVar(&f.disconnect, "default-disconnect", "", "what absence of a disconnect block means: keep or nomad")
	flags.StringVar(&f.algorithm, "scheduler-algorithm", "", "binpack or spread")
	flags.DurationVar(&f.ttl, "heartbeat-ttl", 0, "time between two beats; 0: by the size of the fleet")
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

func poolApply(o *operator) *cobra.Command {
	var rules poolFlags
	c := &cobra.Command{
		Use: "apply NAME|FILE", Short: "Create or update a node pool", Args: cobra.ExactArgs(1),
		Long: "Create or update a node pool. What is named is a file in HCL (a block node_pool, as init\n" +
			"writes one) or in JSON, as info --json shows it; - is the standard input. The pool gets the rules\n" +
			"of the file and no others. Where there is no such file, it is the pool itself that is named: then\n" +
			"it gets the rules that are given as flags, and keeps those that are not.",
		RunE: func(cmd *cobra.Command, args []string) error {
			hub, err := o.hubClient()
			if err != nil {
				return err
			}
			src, err := readSpec(cmd, args[0])
			var p fleet.Pool
			switch {
			case fleet.CodeOf(err) == fleet.CodeNotFound:
				p, err = poolWithRules(cmd, hub, args[0], rules)
			case err != nil:
			default:
				p, err = poolOf(cmd, args[0], src)
			}
			if err != nil {
				return err
			}
			if err := hub.ApplyNodePool(cmd.Context(), p); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "Node pool %q applied\n", p.Name)
			return err
		},
	}
	rules.addPoolFlags(c.Flags())
	return c
}

// poolOf is the pool of a file, which says all of it: no flag does.
func poolOf(cmd *cobra.Command, name string, src []byte) (fleet.Pool, error) {
	for _, flag := range poolFlagNames {
		if cmd.Flags().Changed(flag) {
			return fleet.Pool{}, fleet.Errorf(fleet.CodeInvalid, "apply %s: --%s is given beside a file", name, flag).
				WithHint("write it into the file")
		}
	}
	return parsePool(name, src)
}

// poolWithRules is a pool as it is, or a new one, with the rules that the command line has.
func poolWithRules(cmd *cobra.Command, hub *client.Client, name string, rules poolFlags) (fleet.Pool, error) {
	p := fleet.Pool{Name: name}
	if err := validate.Pool(&p); err != nil {
		return p, fleet.AsError(err).WithHint("there is no file of that name either")
	}
	stored, err := hub.NodePool(cmd.Context(), name)
	switch {
	case err == nil:
		p = stored
	case fleet.CodeOf(err) != fleet.CodeNotFound:
		return p, err
	}
	rules.applyToPool(&p, cmd.Flags())
	return p, nil
}
