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

// checkMachinesAlive notes machines whose process ended though no fault has them be down.
func (s *campaignRun) checkMachinesAlive() {
	for _, machine := range s.fleet.Machines() {
		m := machine.Common()
		if m.Running() {
			continue
		}
		s.mu.Lock()
		excused := s.down[m.Name] > 0
		s.mu.Unlock()
		if !excused && !m.Running() {
			s.watch.recordUnexpectedDeath(m.Name, fmt.Sprintf("%s ended though nobody ended it (%v); see %s", m.Name, m.Exit(), m.LogFile()))
		}
	}
}

// startMachine starts a machine's process, unless it runs.
func (s *campaignRun) startMachine(m cluster.Machine) error {
	if m.Common().Running() {
		return nil
	}
	err := m.Start()
	s.observeProcess(m, check.ProcessStart)
	return err
}

// observeProcess tells of a machine's process that began or ended.
func (s *campaignRun) observeProcess(m cluster.Machine, what string) {
	p := check.Process{Name: m.Common().Name, What: what}
	if e, ok := m.(*cluster.Edge); ok {
		p.Edge = true
		if what == check.ProcessStart {
			p.Boot = e.BootID()
		}
	}
	s.watch.judgeAndRecord(check.Observation{Process: &p})
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
		if l, ok := s.fleet.Machine(string(f.Leader)).(*cluster.Hub); ok && l.Running() {
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
