package real

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"skerry/chaos/check"
	"skerry/chaos/cluster"
	"skerry/chaos/proc"
	"skerry/client"
	"skerry/edge/swarm"
	"skerry/fleet"
)

// Phases at whose end the hubs are looked at.
const (
	phaseEmpty    = "empty"
	phaseSettled  = "settled"
	phaseCut      = "cut off"
	phaseKilled   = "killed" // the leader alone, just before
	phaseReplayed = "replayed"
)

// rejoinFigures are what a rejoin measures.
type rejoinFigures struct {
	out     Ground
	record  *rejoinRecord
	load    string                        // of the machine, before
	looks   map[string]map[string]hubLook // by phase and hub
	samples []sample

	edgesBefore, edgesSettled, edgesReplayed int64 // resident memory of this process, bytes
	goroutines                               int
	cpuHealed, cpuReplayed                   time.Duration // of this process

	healed, killed time.Time
	victim         string
	due, got       uint64 // rows to come when the links healed; and had at the kill
	whole, part    int    // edges all of whose rows, some of whose rows were had at the kill
	before, after  fleet.Index

	mu           sync.Mutex
	returns      []time.Duration // from the heal to each edge's first session
	early, later uint64          // rows applied up to index before, and from index after on
}

// sample is where a rejoin stood.
type sample struct {
	at           time.Duration // since the heal
	connected    int
	acknowledged uint64
}

// hubLook is what a hub said, and its peak memory in bytes.
type hubLook struct {
	client.Metrics
	peak int64
}

func newRejoinFigures(out Ground, record *rejoinRecord) *rejoinFigures {
	load, _ := os.ReadFile("/proc/loadavg") // for people: without it the line is empty
	return &rejoinFigures{out: out, record: record, load: strings.TrimSpace(string(load)), looks: map[string]map[string]hubLook{}}
}

// reportDuration says how long something took.
func (f *rejoinFigures) reportDuration(what string, d time.Duration) {
	f.reportFigure("%s", durationLine(what, d))
}

// durationLine is a line of a table of durations.
func durationLine(what string, d time.Duration) string {
	return fmt.Sprintf("%-44s %9s", what, d.Round(time.Millisecond))
}

// reportFigure tells people, and whoever reads the report.
func (f *rejoinFigures) reportFigure(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	f.out.printLine("  %s", text)
	f.record.Note("", text)
}

// cpu is the processor time that this process has used, 0 where it is not to be had.
func cpu() time.Duration {
	d, err := proc.CPU(os.Getpid())
	if err != nil {
		return 0
	}
	return d
}

// memory is this process's resident memory in bytes, 0 where it is not to be had.
func memory() int64 {
	n, err := proc.Resident(os.Getpid())
	if err != nil {
		return 0
	}
	return n
}

// sampleHubMetrics looks at the hubs that run.
func (f *rejoinFigures) sampleHubMetrics(ctx context.Context, phase string, hubs ...*cluster.Hub) error {
	f.looks[phase] = map[string]hubLook{}
	for _, h := range hubs {
		if !h.Running() {
			continue
		}
		m, err := h.Metrics(ctx)
		if err != nil {
			return err
		}
		peak, err := proc.Peak(h.Pid())
		if err != nil {
			return err
		}
		f.looks[phase][h.Name] = hubLook{m, peak}
	}
	return nil
}

// killLeaderMidReplay kills the leader, and notes how much of the history it had brought in.
func (f *rejoinFigures) killLeaderMidReplay(ctx context.Context, leader *cluster.Hub, s *swarm.Swarm, before map[string]fleet.Seq) error {
	if err := f.sampleHubMetrics(ctx, phaseKilled, leader); err != nil {
		return err
	}
	f.before = fleet.Index(f.looks[phaseKilled][leader.Name].Metrics[metricApplied])
	leader.Kill()
	f.killed, f.victim = time.Now(), leader.Name
	for _, e := range s.Edges() {
		st := e.SyncStatus()
		had := st.Acknowledged - before[e.Name()]
		f.got += uint64(had)
		switch {
		case st.Connected && st.Acknowledged == st.Last:
			f.whole++
		case had > 0:
			f.part++
		}
	}
	return nil
}

// sampleEvery is how often a rejoin is sampled.
const sampleEvery = time.Second

// sampleSwarm samples until ctx ends; the channel is closed then.
func (f *rejoinFigures) sampleSwarm(ctx context.Context, s *swarm.Swarm) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(sampleEvery)
		defer tick.Stop()
		for began := time.Now(); ; {
			t := s.Totals()
			f.samples = append(f.samples, sample{time.Since(began), t.Connected, t.Acknowledged})
			f.record.writeEdgeStates(s)
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	return done
}

// addEdgeReturn takes from an edge's picture when it was back, and under which leader its
// rows were applied.
func (f *rejoinFigures) addEdgeReturn(p check.FleetSnapshot) {
	f.mu.Lock()
	defer f.mu.Unlock()
	healed := f.healed.UnixNano()
	for _, row := range p.Edges[0].Rows {
		if row.Kind == fleet.TransitionReconnect && row.Wall >= healed {
			f.returns = append(f.returns, time.Duration(row.Wall-healed))
			break
		}
	}
	healedAt := fleet.Index(f.looks[phaseCut][f.victim].Metrics[metricApplied])
	for _, entries := range p.Hubs[0].AllocHistory {
		for _, e := range entries {
			switch {
			case e.Side != fleet.SideEdge || e.Index <= healedAt:
			case e.Index <= f.before:
				f.early++
			case e.Index >= f.after:
				f.later++
			}
		}
	}
}

// proveMiddle fails where the leader was not killed in the middle of the replay.
func (f *rejoinFigures) proveMiddle() error {
	if f.early == 0 || f.later == 0 {
		return fmt.Errorf("%w: %d rows were applied before the leader was killed, and %d under its successor", ErrVoid, f.early, f.later)
	}
	return nil
}

// percentile of sorted durations.
func percentile(sorted []time.Duration, p int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[(len(sorted)-1)*p/100].Round(time.Millisecond)
}

// Names of hubs' metrics.
const (
	metricApplied = "skerry_raft_applied_index"
	metricEntries = "skerry_raft_entries_total"
	metricBytes   = "skerry_raft_entry_bytes_total"
	metricLeads   = "skerry_raft_leader"
	metricCPU     = "process_cpu_seconds_total"
	metricMemory  = "process_resident_memory_bytes"
	metricStack   = "go_memstats_stack_inuse_bytes"
	metricHeap    = "go_memstats_heap_inuse_bytes"
	metricThreads = "go_goroutines"
)

// printFigures writes the figures for people.
func (f *rejoinFigures) printFigures(r Rejoin) {
	f.reportFigure("%d edges, %d allocations each; load before %s", r.Edges, r.Allocs, f.load)
	slices.Sort(f.returns)
	f.reportFigure("back in a session after the heal: first %s, median %s, 90%% %s, 99%% %s, last %s (%d edges)",
		percentile(f.returns, 0), percentile(f.returns, 50), percentile(f.returns, 90), percentile(f.returns, 99), percentile(f.returns, 100), len(f.returns))
	f.reportFigure("%s, the leader, killed %s after the heal: %d of %d rows had (%d edges whole, %d in part); %d applied before, %d under its successor",
		f.victim, f.killed.Sub(f.healed).Round(time.Millisecond), f.got, f.due, f.whole, f.part, f.early, f.later)
	for _, s := range f.samples {
		f.out.printLine("    %5.1f s: %5d connected, %d rows acknowledged", s.at.Seconds(), s.connected, s.acknowledged)
	}
	f.printHubs()
	f.reportFigure("this process: %d MiB before, %d MiB settled (%d KiB an edge), %d MiB after; %d goroutines, %d an edge; %s of CPU in the replay",
		f.edgesBefore>>20, f.edgesSettled>>20, (f.edgesSettled-f.edgesBefore)>>10/int64(r.Edges), f.edgesReplayed>>20, f.goroutines, f.goroutines/r.Edges, f.cpuReplayed-f.cpuHealed)
}

func (f *rejoinFigures) printHubs() {
	for _, phase := range []string{phaseEmpty, phaseSettled, phaseCut, phaseKilled, phaseReplayed} {
		for _, name := range sortedNames(f.looks[phase]) {
			l := f.looks[phase][name]
			f.reportFigure("%-9s %s: resident %4.0f MiB, peak %4d MiB, heap %4.0f MiB, stacks %3.0f MiB, %5.0f goroutines, %4.0f sessions, %5.1f s of CPU",
				phase, name, l.Metrics[metricMemory]/(1<<20), l.peak>>20, l.Metrics[metricHeap]/(1<<20), l.Metrics[metricStack]/(1<<20),
				l.Metrics[metricThreads], l.Metrics["skerry_edge_sessions"], l.Metrics[metricCPU])
		}
	}
	for _, name := range sortedNames(f.looks[phaseReplayed]) {
		before, after := f.looks[phaseCut][name].Metrics, f.looks[phaseReplayed][name].Metrics
		f.reportFigure("replay at %s: %.0f entries, %.0f KiB: %s", name, after.Sum(metricEntries)-before.Sum(metricEntries),
			(after.Sum(metricBytes)-before.Sum(metricBytes))/1024, byCommand(before, after))
	}
}

// byCommand lists the commands that were applied in between.
func byCommand(before, after client.Metrics) string {
	var parts []string
	for _, key := range sortedNames(after) {
		label, ok := strings.CutPrefix(key, metricEntries)
		if n := after[key] - before[key]; ok && n > 0 {
			kib := (after[metricBytes+label] - before[metricBytes+label]) / 1024
			parts = append(parts, fmt.Sprintf("%s %.0f (%.0f KiB)", strings.TrimSuffix(strings.TrimPrefix(label, `{command="`), `"}`), n, kib))
		}
	}
	return strings.Join(parts, ", ")
}

func sortedNames[V any](m map[string]V) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
