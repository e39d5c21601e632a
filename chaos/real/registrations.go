package real

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"skerry/api"
	"skerry/chaos/cluster"
	"skerry/chaos/engine"
	"skerry/chaos/faultnet"
	"skerry/chaos/hubclient"
	"skerry/chaos/proc"
	"skerry/fleet"
)

// Registrations registers new jobs at the hubs of a cluster at a steady rate, without and with access control in turn, and says
// how many each acknowledged and what one of them cost.
type Registrations struct {
	Ground
	Hubs     int
	Rate     int // jobs a second
	Duration time.Duration
	Rounds   int    // of each
	Table    string // file whose table "registrations" or "registrations-HUBS" is replaced; "": none
}

// registrationClients is the number of clients that register jobs at the same time.
const registrationClients = 64

// registrationFigures are the figures of one round.
type registrationFigures struct {
	rate float64         // acknowledged registrations a second
	took []time.Duration // of each request, sorted
	cpu  time.Duration   // processor time of all hubs for one registration
}

// Run plays the rounds and prints the medians.
func (r Registrations) Run(ctx context.Context) error {
	if r.Hubs < 1 || r.Rate < 1 || r.Rounds < 1 || r.Duration < time.Second {
		return errors.New("measure registrations: at least one hub, one job a second, one round and one second are needed")
	}
	defer collectLessGarbage()()
	found := map[bool][]registrationFigures{}
	table := r.newTable("access control", "acknowledged a second", "p50", "p99", "processor time of the hubs for each")
	for i := range r.Rounds {
		for _, acl := range []bool{false, true} {
			g := r.Ground
			g.Dir, g.Net = filepath.Join(r.Dir, fmt.Sprintf("round-%d-%t", i+1, acl)), faultnet.NewPlain() // a network serves one fleet
			err := g.runOnFleet(ctx, cluster.Config{Hubs: r.Hubs}, func(s *fleetRun) error {
				f, err := r.measureRound(ctx, s, acl)
				found[acl] = append(found[acl], f)
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	for _, acl := range []bool{false, true} {
		cells := medians(found[acl])
		name := map[bool]string{false: "off", true: "on"}[acl]
		r.printLine("access control %-3s: %s a second, p50 %s, p99 %s, processor time for each %s", name, cells[0], cells[1], cells[2], cells[3])
		table.addRow(append([]string{name}, cells...)...)
	}
	more := pairedIncrease(found[false], found[true])
	r.printLine("processor time with access control, median of the pairs of rounds: %+.1f %%", more)
	name := "registrations"
	if r.Hubs != 3 {
		name = fmt.Sprintf("registrations-%d", r.Hubs)
	}
	return table.replaceIn(r.Table, name, fmt.Sprintf("medians of %d rounds of %s each, %d jobs a second asked for, %d clients, hubs: %d; processor time with access control, median of the pairs of rounds: %+.1f %%",
		r.Rounds, r.Duration, r.Rate, registrationClients, r.Hubs, more))
}

// pairedIncrease returns by how many percent the processor time of a registration differs with access control: the median of
// the pairs of rounds, each of which ran one after the other on the same machine.
func pairedIncrease(off, on []registrationFigures) float64 {
	var all []float64
	for i := range off {
		all = append(all, 100*(float64(on[i].cpu)/float64(off[i].cpu)-1))
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// medians returns the medians of the figures of some rounds, as text.
func medians(rounds []registrationFigures) []string {
	median := func(of func(registrationFigures) float64) float64 {
		var all []float64
		for _, f := range rounds {
			all = append(all, of(f))
		}
		slices.Sort(all)
		return all[len(all)/2]
	}
	text := func(p int) string {
		return fmt.Sprintf("%.0f ms", median(func(f registrationFigures) float64 { return milliseconds(percentile(f.took, p)) }))
	}
	return []string{
		fmt.Sprintf("%.0f", median(func(f registrationFigures) float64 { return f.rate })), text(50), text(99),
		fmt.Sprintf("%.2f ms", median(func(f registrationFigures) float64 { return milliseconds(f.cpu) })),
	}
}

// milliseconds returns a duration in milliseconds.
func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// measureRound registers jobs for the duration of a round.
func (r Registrations) measureRound(ctx context.Context, s *fleetRun, acl bool) (registrationFigures, error) {
	hubs := make([]hubclient.Hub, len(s.fleet.Hubs))
	for i, h := range s.fleet.Hubs {
		hubs[i] = h.Hub
	}
	if acl {
		leader, err := s.fleet.Leader(ctx)
		if err != nil {
			return registrationFigures{}, err
		}
		access, err := engine.BootstrapAccess(ctx, leader.Hub, s.marks)
		if err != nil {
			return registrationFigures{}, err
		}
		for i, h := range hubs {
			hubs[i] = access.Operator(h)
		}
	}
	for i, h := range hubs { // a hub that has just joined refuses for a moment
		job := workload(fleet.JobID(fmt.Sprintf("first-%d", i)), 1, "")
		err := cluster.Eventually(ctx, serviceGap, "each hub takes registrations", func(ctx context.Context) string {
			if _, err := h.RegisterJob(ctx, job, api.JobRegisterRequest{}); err != nil {
				return err.Error()
			}
			return ""
		})
		if err != nil {
			return registrationFigures{}, err
		}
	}
	used, err := processorTime(s.fleet.Hubs)
	if err != nil {
		return registrationFigures{}, err
	}
	f, err := r.registerJobs(ctx, hubs)
	if err != nil {
		return f, err
	}
	usedSince, err := processorTime(s.fleet.Hubs)
	f.cpu = (usedSince - used) / time.Duration(len(f.took))
	return f, err
}

// registerJobs registers jobs at the hubs in turn. A registration that is refused ends it.
func (r Registrations) registerJobs(ctx context.Context, hubs []hubclient.Hub) (f registrationFigures, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var next atomic.Int64
	total, began := int64(r.Rate)*int64(r.Duration/time.Second), time.Now()
	for range registrationClients {
		wg.Go(func() {
			for {
				i := next.Add(1) - 1
				due := began.Add(time.Duration(i) * time.Second / time.Duration(r.Rate))
				if i >= total || time.Since(began) >= r.Duration || !engine.Pause(ctx, time.Until(due)) {
					return
				}
				sent := time.Now()
				job := workload(fleet.JobID(fmt.Sprintf("job-%06d", i)), 1, "")
				if _, err := hubs[i%int64(len(hubs))].RegisterJob(ctx, job, api.JobRegisterRequest{}); err != nil {
					cancel(fmt.Errorf("register job %s: %w", job.ID, err))
					return
				}
				mu.Lock()
				f.took = append(f.took, time.Since(sent))
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		return f, err
	}
	if len(f.took) == 0 {
		return f, fmt.Errorf("measure registrations: none was acknowledged in %s", r.Duration)
	}
	f.rate = float64(len(f.took)) / time.Since(began).Seconds()
	slices.Sort(f.took)
	return f, nil
}

// processorTime returns the processor time that the hubs have used since they started.
func processorTime(hubs []*cluster.Hub) (sum time.Duration, err error) {
	for _, h := range hubs {
		used, err := proc.ProcessorTime(h.Pid())
		if err != nil {
			return 0, err
		}
		sum += used
	}
	return sum, nil
}
