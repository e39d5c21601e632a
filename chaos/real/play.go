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

// timesPlayedIfHit returns the number of faults of the kind so far; 0 if none had an effect yet.
func (s *campaignRun) timesPlayedIfHit(k schedule.Kind) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hits[k] == 0 {
		return 0
	}
	return s.played[k]
}

// expectDown records that a fault may stop the member, until expectUp: its death is then expected.
func (s *campaignRun) expectDown(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down[name]++
}

// expectUp ends one expectDown of the member.
func (s *campaignRun) expectUp(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down[name]--
}

// onlyDown reports whether at most one fault may have stopped the member.
func (s *campaignRun) onlyDown(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.down[name] <= 1
}

// checkMachinesAlive records a violation for each process that ended although no fault may have
// stopped it.
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

// startMachine starts a machine's process and records that, unless the process runs.
func (s *campaignRun) startMachine(m cluster.Machine) error {
	if m.Common().Running() {
		return nil
	}
	err := m.Start()
	s.observeProcess(m, check.ProcessStart)
	return err
}

// observeProcess records that a machine's process began or ended; `what` is one of check's kinds.
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

// findRunningLeader asks the running hubs, each for up to a second, since one may be paused, and
// returns the first running hub that is named as the leader.
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

// wasRewound reports whether the current schedule restored the hubs from a copy.
func (s *campaignRun) wasRewound() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rewound
}

// keepJournalRows stores the rows of an edge's journal, before a fault damages it. It does nothing
// if the agent does not answer.
func (s *campaignRun) keepJournalRows(e *cluster.Edge) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	rows, err := e.Local().History(ctx, "")
	if err != nil {
		return // the agent is down: its rows cannot be read
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rowsBeforeDamage[e.Name] = append(s.rowsBeforeDamage[e.Name], rows...)
}

// cloneName returns a new name for a clone.
func (s *campaignRun) cloneName() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clones++
	return fmt.Sprintf("%s%d", cloneName, s.clones)
}

// restartTask restarts the first running allocation of an edge by its local API, as a person on
// site would, and records the request. It returns an error if none runs.
func (s *campaignRun) restartTask(ctx context.Context, e *cluster.Edge, why string) error {
	st, err := e.Local().Status(ctx)
	if err != nil {
		return err
	}
	for _, a := range st.Allocs {
		if a.Desired == fleet.DesiredRun && a.ClientStatus == fleet.ClientRunning {
			s.watch.judgeAndRecord(check.Observation{Request: &check.Request{Edge: e.Name, Alloc: a.ID, What: check.AskRestart}})
			return e.Local().Restart(ctx, a.ID, "", why)
		}
	}
	return fmt.Errorf("restart a task of %s: it runs none", e.Name)
}
