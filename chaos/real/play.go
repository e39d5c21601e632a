package real

import (
	"context"
	"errors"
	"fmt"
	"time"

	"skerry/chaos/check"
	"skerry/chaos/cluster"
	"skerry/chaos/schedule"
	"skerry/fleet"
)

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

// wasRewound reports whether the schedule that is played put the hubs back.
func (s *campaignRun) wasRewound() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rewound
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
