package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"skerry/chaos/real"
	"skerry/chaos/report"
	"skerry/chaos/schedule"
	"skerry/cmd/jobfile"
	"skerry/fleet"
	"skerry/fleet/jobspec"
)

// rehearseFlags are the flags of `rehearse` and of `run rehearsal`.
type rehearseFlags struct {
	cfg                          rehearsal
	jobs, vars, varFiles         []string
	updates                      []string // FILE@TIME
	fleet                        string
	hubs, edges                  int
	cuts, kills, reboots, powers []string
	html                         string
}

// rehearsalCommands returns `rehearse`.
func rehearsalCommands() []*cobra.Command {
	var r rehearseFlags
	c := &cobra.Command{
		Use: "rehearse", Args: cobra.NoArgs,
		Short: "Say what would happen to your jobs: what keeps running, what is replaced, where, when; what is lost",
		Long: `Say what would happen to your jobs: what keeps running, what is replaced, where, when; what is lost.

A whole fleet is played in virtual time: hours take seconds. Placement, absence rules, restarts
and reschedules are those of production. Tasks are simulated: those of services run until they
are stopped, those of batch jobs for --task-runs.

EDGE@TIME[:DURATION] is such as 3@2h:45m (edge-3 at 2 h for 45 min), 1,2@30m:1h or all@2h:45m.`,
		Example: `  skerry-chaos rehearse --job shop.hcl --edges 5 --cut 3@2h:45m
  skerry-chaos rehearse --job shop.hcl --fleet fleet.yaml --cut all@1h --for 36h --html shop.html
  skerry-chaos rehearse --job shop.hcl --update shop-v2.hcl@1h --edges 5 --cut 3@50m:45m
  skerry-chaos rehearse --job shop.hcl --job stock.hcl --var tills=5 --edges 5 --reboot 2@10m:3m`,
		RunE: func(cmd *cobra.Command, _ []string) error { return r.runRehearsal(cmd) },
	}
	r.addRehearseFlags(c)
	c.Flags().StringVar(&r.html, "html", "", "file for a page with the answer")
	return []*cobra.Command{c}
}

// addRehearseFlags adds the flags that `rehearse` and `run rehearsal` share.
func (r *rehearseFlags) addRehearseFlags(c *cobra.Command) {
	f := c.Flags()
	f.StringArrayVar(&r.jobs, "job", nil, "job file; may be repeated (required)")
	f.StringArrayVar(&r.updates, "update", nil, "FILE@TIME: the job file that replaces the one of the same job at that time; may be repeated")
	f.StringArrayVar(&r.vars, "var", nil, "NAME=VALUE of a variable of the job files; may be repeated")
	f.StringArrayVar(&r.varFiles, "var-file", nil, "file with variables; may be repeated")
	f.IntVar(&r.edges, "edges", 3, "number of edges, all alike")
	f.IntVar(&r.hubs, "hubs", defaultHubs, "number of hubs")
	f.StringVar(&r.fleet, "fleet", "", "file that describes the fleet: lines hubs, edges, pool, meta, attribute")
	f.StringArrayVar(&r.cuts, "cut", nil, "EDGE@TIME[:DURATION]: the link is gone; may be repeated")
	f.StringArrayVar(&r.kills, "kill", nil, "EDGE@TIME[:DURATION]: the agent is killed, its tasks run on; may be repeated")
	f.StringArrayVar(&r.reboots, "reboot", nil, "EDGE@TIME[:DURATION]: the machine goes down in good order; may be repeated")
	f.StringArrayVar(&r.powers, "power-cut", nil, "EDGE@TIME[:DURATION]: the machine is off at once; may be repeated")
	f.DurationVar(&r.cfg.Length, "for", 0, "length (default: long enough for the faults and the jobs' rules)")
	f.DurationVar(&r.cfg.TaskRun, "task-runs", defaultTaskRun, "how long tasks of batch jobs run")
	f.Uint64Var(&r.cfg.Seed, "seed", 1, "draws latencies and what the libraries leave to chance")
	f.DurationVar(&r.cfg.MinTTL, "heartbeat-min-ttl", 0, "the hubs' setting (default: their own)")
	f.DurationVar(&r.cfg.Grace, "heartbeat-grace", 0, "the hubs' setting (default: their own)")
	f.DurationVar(&r.cfg.BackoffCap, "backoff-cap", 0, "the edges' setting (default: their own)")
}

// runRehearsal plays the rehearsal, prints the answer, and writes it as a page if --html is set.
func (r *rehearseFlags) runRehearsal(cmd *cobra.Command) error {
	cfg, err := r.rehearsalConfig(cmd)
	if err != nil {
		return err
	}
	program, err := workerCommandLine()
	if err != nil {
		return err
	}
	answer, err := cfg.playRehearsal(cmd.Context(), program)
	if err != nil {
		return err
	}
	if err := answer.Print(cmd.OutOrStdout()); err != nil || r.html == "" {
		return err
	}
	return writePage(r.html, answer)
}

// workerCommandLine returns the command line with which this program plays one schedule.
func workerCommandLine() ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	return []string{self, workerCommand}, nil
}

// writePage writes the answer of a rehearsal to a file as HTML.
func writePage(path string, r *report.Rehearsal) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return r.WriteHTML(f)
}

// rehearsalConfig returns the rehearsal that the flags describe. It reads the job files and the fleet
// file, and returns an error for anything that is invalid.
func (r *rehearseFlags) rehearsalConfig(cmd *cobra.Command) (rehearsal, error) {
	cfg := r.cfg
	if len(r.jobs) == 0 {
		return cfg, errors.New("rehearse what? Name a job file: --job FILE")
	}
	var names []string
	undeclared := map[string]int{} // by --var, the number of job files that do not declare it
	for _, path := range r.jobs {
		job, err := r.readRehearsedJob(path, undeclared)
		if err != nil {
			return cfg, err
		}
		cfg.Jobs, names = append(cfg.Jobs, job), append(names, string(job.ID))
	}
	for _, text := range r.updates {
		u, err := r.parseUpdate(text, undeclared)
		if err != nil {
			return cfg, err
		}
		cfg.Updates = append(cfg.Updates, u)
	}
	cfg.Name, cfg.Repeat = strings.Join(names, ", "), "skerry-chaos "+strings.Join(os.Args[1:], " ")
	cfg.Dir = memoryFolder()
	var err error
	if cfg.Fleet, err = r.fleetDescription(cmd); err != nil {
		return cfg, err
	}
	for _, of := range []struct {
		kind  schedule.Kind
		texts []string
	}{
		{schedule.LinkCut, r.cuts}, {schedule.EdgeKill, r.kills}, {schedule.EdgeReboot, r.reboots}, {schedule.PowerCut, r.powers},
	} {
		for _, text := range of.texts {
			f, err := schedule.ParseFault(of.kind, text)
			if err != nil {
				return cfg, err
			}
			cfg.Faults = append(cfg.Faults, f)
		}
	}
	_, err = cfg.buildSchedule() // reports all mistakes before the rehearsal starts
	return cfg, err
}

// fleetDescription returns the fleet of the file in --fleet, or one of --hubs and --edges.
func (r *rehearseFlags) fleetDescription(cmd *cobra.Command) (rehearsedFleet, error) {
	if r.fleet == "" {
		if r.edges < 1 || r.edges > schedule.MaxEdges || r.hubs < 1 || r.hubs > schedule.MaxHubs {
			return rehearsedFleet{}, fmt.Errorf("a fleet has 1 to %d hubs and 1 to %d edges", schedule.MaxHubs, schedule.MaxEdges)
		}
		return rehearsedFleet{Topology: schedule.NewTopology(r.hubs, r.edges)}, nil
	}
	for _, flag := range []string{"edges", "hubs"} {
		if cmd.Flags().Changed(flag) {
			return rehearsedFleet{}, fmt.Errorf("--%s and --fleet exclude each other: the file says how many there are", flag)
		}
	}
	text, err := jobfile.ReadFile(r.fleet)
	if err != nil {
		return rehearsedFleet{}, err
	}
	return parseFleet(r.fleet, text)
}

// parseUpdate parses FILE@TIME and reads the job file.
func (r *rehearseFlags) parseUpdate(text string, undeclared map[string]int) (jobUpdate, error) {
	i := strings.LastIndexByte(text, '@')
	if i < 0 {
		return jobUpdate{}, fmt.Errorf("read the update %q: it has no @TIME, such as %s@1h", text, text)
	}
	at, err := time.ParseDuration(text[i+1:])
	if err != nil || at <= 0 {
		return jobUpdate{}, fmt.Errorf("read the update %q: %q is not a time after the start, such as 1h", text, text[i+1:])
	}
	job, err := r.readRehearsedJob(text[:i], undeclared)
	return jobUpdate{Job: job, At: at}, err
}

// readRehearsedJob reads a job file with the --var values that it declares. undeclared counts, for each
// value, the files that do not declare it. A value that no file declares is an error in the last one.
func (r *rehearseFlags) readRehearsedJob(path string, undeclared map[string]int) (*fleet.Job, error) {
	opts := jobspec.Options{Now: time.Now(), Environ: os.Environ()}
	for _, file := range r.varFiles {
		src, err := jobfile.ReadFile(file)
		if err != nil {
			return nil, err
		}
		opts.VarFiles = append(opts.VarFiles, jobspec.File{Name: file, Src: src})
	}
	opts.Files = jobfile.FolderOf(path)
	src, err := jobfile.ReadFile(path)
	if err != nil {
		return nil, err
	}
	for _, assignment := range r.vars {
		name, _, _ := strings.Cut(assignment, "=")
		if !declares(src, name) {
			if undeclared[assignment]++; undeclared[assignment] < len(r.jobs)+len(r.updates) {
				continue
			}
		}
		opts.Vars = append(opts.Vars, assignment)
	}
	return jobspec.Parse(path, src, opts)
}

// declares reports whether the text of a job file seems to declare a variable.
func declares(src []byte, name string) bool {
	words := strings.Fields(string(src))
	for i, w := range words {
		if w == "variable" && i+1 < len(words) && words[i+1] == strconv.Quote(name) || w == "variables" && strings.Contains(string(src), name) {
			return true
		}
	}
	return false
}

// runRehearsalCommand returns `run rehearsal`, which rehearses jobs in virtual time, runs them on real
// processes, and compares the results.
func runRehearsalCommand(s *runFlags) *cobra.Command {
	var r rehearseFlags
	var tolerance time.Duration
	c := s.groundCommand("rehearsal", "Rehearse jobs in virtual time, run them on real processes that suffer the same, and compare", nil)
	c.RunE = s.groundCommand("", "", func(ctx context.Context, g real.Ground) error {
		cfg, err := r.rehearsalConfig(c)
		if err != nil {
			return err
		}
		program, err := workerCommandLine()
		if err != nil {
			return err
		}
		return cfg.compareWithReal(ctx, program, g, tolerance)
	}).RunE
	c.Example = `  skerry-chaos run rehearsal --job examples/shop.hcl --fleet examples/fleet.yaml --cut 3@20s:40s --for 75s --heartbeat-min-ttl 5s --heartbeat-grace 5s --tolerance 15s`
	r.addRehearseFlags(c)
	c.Flags().DurationVar(&tolerance, "tolerance", defaultTolerance, "how far apart times may be")
	return c
}
