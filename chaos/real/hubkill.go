package real

import (
	"context"
	"fmt"
	"sync"
	"time"

	"skerry/api"
	"skerry/chaos/cluster"
	"skerry/chaos/engine"
	"skerry/fleet"
)

// HubKill registers jobs at a steady rate, kills the leader with SIGKILL in the middle, and checks
// that every hub has every acknowledged job.
type HubKill struct {
	Ground
	Rate     int // jobs a second
	Duration time.Duration
}

// serviceGap is the longest allowed time without an acknowledged registration after the kill.
const serviceGap = 5 * time.Second

// ledger has the acknowledged jobs and the times of their acknowledgements.
type ledger struct {
	mu    sync.Mutex
	acked []fleet.JobID
	times []time.Time
}

// Run runs the workload and checks it. The error is ErrViolated if a job is missing or the gap in
// service was too long.
func (k HubKill) Run(ctx context.Context) error {
	return k.runOnFleet(ctx, fast(3, 0), func(s *fleetRun) error {
		var book ledger
		var wg sync.WaitGroup
		total := k.Rate * int(k.Duration/time.Second)
		tick := time.NewTicker(time.Second / time.Duration(k.Rate))
		defer tick.Stop()
		killed := time.Time{}
		var victim *cluster.Hub
		for i := range total {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return ctx.Err()
			}
			if i == total/2 {
				var err error
				if victim, err = s.fleet.Leader(ctx); err != nil {
					return err
				}
				victim.Kill()
				killed = time.Now()
			}
			wg.Go(func() { book.registerUntilAcked(ctx, s.fleet, i) })
		}
		wg.Wait()
		gap := book.longestAckGap(killed)
		k.printLine("%d jobs sent at %d/s, %s killed in the middle: %d acknowledged, service back after %s",
			total, k.Rate, victim.Name, len(book.acked), gap.Round(time.Millisecond))
		if err := s.restartHubs(ctx); err != nil {
			return err
		}
		if err := judgeFigures([]figure{inSeconds("nobody could register", gap, serviceGap)}); err != nil {
			return err
		}
		return book.checkJobsAtAllHubs(ctx, s.fleet)
	})
}

// registerUntilAcked registers job number i at each hub in turn until one acknowledges it, for at
// most twice serviceGap. It records the acknowledgement.
func (b *ledger) registerUntilAcked(ctx context.Context, c *cluster.Cluster, i int) {
	job := workload(fleet.JobID(fmt.Sprintf("job-%05d", i)), 1, "")
	ctx, cancel := context.WithTimeout(ctx, 2*serviceGap)
	defer cancel()
	for attempt := i; ctx.Err() == nil; attempt++ {
		if _, err := c.Hubs[attempt%len(c.Hubs)].RegisterJob(ctx, job, api.JobRegisterRequest{}); err == nil {
			b.mu.Lock()
			b.acked, b.times = append(b.acked, job.ID), append(b.times, time.Now())
			b.mu.Unlock()
			return
		}
		if !engine.Pause(ctx, 20*time.Millisecond) {
			return
		}
	}
}

// longestAckGap returns the longest time between two acknowledgements since the kill.
func (b *ledger) longestAckGap(killed time.Time) time.Duration {
	var longest time.Duration
	last := killed
	for _, t := range b.times { // in the order of the acknowledgements
		if t.Before(killed) {
			continue
		}
		longest = max(longest, t.Sub(last))
		last = t
	}
	if last == killed {
		return time.Since(killed) // nothing was ever acknowledged again
	}
	return longest
}

// checkJobsAtAllHubs returns ErrViolated if a hub lacks an acknowledged job.
func (b *ledger) checkJobsAtAllHubs(ctx context.Context, c *cluster.Cluster) error {
	for _, h := range c.Hubs {
		for _, id := range b.acked {
			if _, err := h.Job(ctx, id); err != nil {
				return fmt.Errorf("%w: job %s was acknowledged and is not at %s: %w", ErrViolated, id, h.Name, err)
			}
		}
	}
	return nil
}
