package real

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"skerry/chaos/check"
	"skerry/chaos/cluster"
	"skerry/chaos/engine"
	"skerry/chaos/schedule"
	"skerry/edge/local"
	"skerry/fleet"
)

// runFaults lets each fault begin and end at its time.
func (s *campaignRun) runFaults(ctx context.Context, faults []schedule.Fault) error {
	began := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	for _, f := range faults {
		s.faultCount++
		number := s.faultCount
		group.Go(func() error {
			if !engine.Pause(ctx, f.At-time.Since(began)) {
				return ctx.Err()
			}
			return s.faults.Play(ctx, number, f)
		})
	}
	return group.Wait()
}

// timesPlayedIfHit is how much of a kind was seen so far.
func (s *campaignRun) timesPlayedIfHit(k schedule.Kind) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hits[k] == 0 {
		return 0
	}
	return s.played[k]
}

// expectDown says that a fault may have a member be down, expectUp that it no longer
// does.
func (s *campaignRun) expectDown(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down[name]++
}

func (s *campaignRun) expectUp(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down[name]--
}

// onlyDown reports whether no other fault has the member be down.
func (s *campaignRun) onlyDown(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.down[name] <= 1
}

// checkMembersAlive notes members that ended though no fault has them be down.
func (s *campaignRun) checkMembersAlive() {
	for _, e := range s.fleet.Edges {
		s.checkAlive(e.Name, e.Running, e.Exit, e.LogFile())
	}
	for _, h := range s.fleet.Hubs {
		s.checkAlive(h.Name, h.Running, h.Exit, h.LogFile())
	}
}

func (s *campaignRun) checkAlive(name string, running func() bool, exit func() error, log string) {
	if running() {
		return
	}
	s.mu.Lock()
	excused := s.down[name] > 0
	s.mu.Unlock()
	if !excused && !running() {
		s.watch.recordUnexpectedDeath(name, fmt.Sprintf("%s ended though nobody ended it (%v); see %s", name, exit(), log))
	}
}

func (s *campaignRun) startEdge(e *cluster.Edge) error {
	if e.Running() {
		return nil
	}
	err := e.Start()
	s.watch.judgeAndRecord(check.Observation{Process: &check.Process{Name: e.Name, Edge: true, What: check.ProcessStart, Boot: e.BootID()}})
	return err
}

func (s *campaignRun) bootEdge(e *cluster.Edge) error {
	err := e.Boot()
	s.watch.judgeAndRecord(check.Observation{Process: &check.Process{Name: e.Name, Edge: true, What: check.ProcessStart, Boot: e.BootID()}})
	return err
}

func (s *campaignRun) startHub(h *cluster.Hub) error {
	if h.Running() {
		return nil
	}
	err := h.Start()
	s.watch.judgeAndRecord(check.Observation{Process: &check.Process{Name: h.Name, What: check.ProcessStart}})
	return err
}

func (s *campaignRun) processEnded(name string, edge bool, what string) {
	s.watch.judgeAndRecord(check.Observation{Process: &check.Process{Name: name, Edge: edge, What: what}})
}

// findRunningLeader finds the hub that leads; the fleet's own way asks hubs that may stand
// still.
func (s *campaignRun) findRunningLeader(ctx context.Context) (*cluster.Hub, error) {
	for _, h := range s.fleet.Hubs {
		if !h.Running() {
			continue
		}
		soon, cancel := context.WithTimeout(ctx, time.Second)
		f, err := h.Fleet(soon)
		cancel()
		if err != nil || f.Leader == "" {
			continue
		}
		if l := s.hubByName(string(f.Leader)); l.Running() {
			return l, nil
		}
	}
	return nil, errors.New("find the leading hub: none of them knows one")
}

// saveHubs copies all hubs' data as they are at one moment.
func (s *campaignRun) saveHubs(ctx context.Context) error {
	var paused []engine.Active
	var err error
	for _, h := range s.fleet.Hubs {
		a, failed := pauseMember(ctx, h.Name, h)
		paused, err = append(paused, a), errors.Join(err, failed)
	}
	for _, h := range s.fleet.Hubs {
		if err == nil {
			err = errors.Join(os.RemoveAll(s.savedDir(h)), copyData(h.Dir, s.savedDir(h)))
		}
	}
	err = errors.Join(err, engine.Combine(paused).Heal(ctx))
	s.saved = err == nil
	return err
}

func (s *campaignRun) savedDir(h *cluster.Hub) string { return filepath.Join(s.Dir, "saved", h.Name) }

// recordHubsRewound notes that the hubs forgot what happened since they were copied.
func (s *campaignRun) recordHubsRewound() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rewound = true
}

// keepJournalRows keeps what an edge's journal holds, before it is damaged.
func (s *campaignRun) keepJournalRows(e *cluster.Edge) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	rows, err := e.Local().History(ctx, "")
	if err != nil {
		return // the agent is down: what it journaled cannot be known
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rowsBeforeDamage[e.Name] = append(s.rowsBeforeDamage[e.Name], rows...)
}

// cloneName names the next clone.
func (s *campaignRun) cloneName() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clones++
	return fmt.Sprintf("%s%d", cloneName, s.clones)
}

// restartTask has a person on site restart one of an edge's tasks.
func (s *campaignRun) restartTask(ctx context.Context, e *cluster.Edge, why string) error {
	st, err := e.Local().Status(ctx)
	if err != nil {
		return err
	}
	for _, a := range st.Allocs {
		if a.Desired == fleet.DesiredRun && a.ClientStatus == fleet.ClientRunning {
			s.watch.judgeAndRecord(check.Observation{Request: &check.Request{Edge: e.Name, Alloc: a.ID, What: "restart"}})
			return e.Local().Restart(ctx, a.ID, "", why)
		}
	}
	return fmt.Errorf("restart a task of %s: it runs none", e.Name)
}

// stopOrphanedAlloc has a person on site end what a restored cluster has no record of.
func (s *campaignRun) stopOrphanedAlloc(ctx context.Context, e *cluster.Edge, id fleet.AllocID) error {
	s.watch.judgeAndRecord(check.Observation{Request: &check.Request{Edge: e.Name, Alloc: id, What: "stop"}})
	return e.Local().Stop(ctx, local.StopRequest{Alloc: id, Reason: "the restored cluster does not know it", MayReturn: true})
}

func (s *campaignRun) runsOn(ctx context.Context, e *cluster.Edge, id fleet.AllocID) bool {
	st, err := e.Local().Status(ctx)
	if err != nil {
		return false
	}
	for _, a := range st.Allocs {
		if a.ID == id {
			return stillRuns(a)
		}
	}
	return false
}

func stillRuns(a local.Alloc) bool {
	return a.Desired == fleet.DesiredRun && (a.ClientStatus == fleet.ClientRunning || a.ClientStatus == fleet.ClientPending)
}
