package report_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry/chaos/check"
	"skerry/chaos/history"
	"skerry/fleet"
)

// sample makes up the history of a fleet that is broken now and then, as a
// run's observers would have seen it.
type sample struct {
	rng     *rand.Rand
	length  time.Duration
	hubs    []string
	edges   []string
	records []history.Record
	index   fleet.Index
	allocs  map[fleet.AllocID]*fleet.Alloc
	next    int
	faults  int
}

func newSample(seed uint64, hubs, edges int, length time.Duration) *sample {
	s := &sample{rng: rand.New(rand.NewPCG(seed, 1)), length: length, allocs: map[fleet.AllocID]*fleet.Alloc{}}
	for i := range hubs {
		s.hubs = append(s.hubs, fmt.Sprintf("hub-%d", i+1))
	}
	for i := range edges {
		s.edges = append(s.edges, fmt.Sprintf("edge-%d", i+1))
	}
	return s
}

func (s *sample) sampleHeader() history.Header {
	return history.Header{
		Name: "drawn", Seed: 4711, Clock: history.Virtual, Start: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		Repeat: "skerry-chaos sim --seed 4711", Versions: map[string]string{"skerry": "v0.1.0", "go": "go1.26.8"},
		Hubs: s.hubs, Edges: s.edges, Schedule: "hubs 3\nedges 10\nfault cut edge-1 at 1m for 30s\n",
	}
}

func (s *sample) addObservation(at time.Duration, o check.Observation) {
	o.At = at
	s.records = append(s.records, history.Record{Observation: o})
}

func (s *sample) addHistoryRecord(at time.Duration, r history.Record) {
	r.At = at
	s.records = append(s.records, r)
}

func (s *sample) nodeIDOf(edge string) fleet.NodeID { return fleet.NodeID("node-of-" + edge) }

// applyEntry has the first hub apply an entry.
func (s *sample) applyEntry(at time.Duration, e check.Effects) {
	s.index++
	s.addObservation(at, check.Observation{Applied: &check.Applied{Hub: s.hubs[0], Index: s.index, Term: 2, Kind: "plan", Command: "c", Result: "r", Effects: &e}})
}

func (s *sample) setNodeStatus(at time.Duration, edge string, status fleet.NodeStatus) {
	s.applyEntry(at, check.Effects{
		Moved: []check.Moved{{Node: s.nodeIDOf(edge), Status: status}},
		Nodes: []fleet.Node{{ID: s.nodeIDOf(edge), Name: edge}},
	})
}

func (s *sample) reportLink(at time.Duration, edge string, connected bool, unsent int) {
	s.addObservation(at, check.Observation{Edge: &check.Edge{
		Name: edge, NodeID: s.nodeIDOf(edge), Link: &check.Link{Connected: connected},
		Journal: &check.Journal{First: 1, Last: fleet.Seq(100 + unsent), Acknowledged: 100},
	}})
}

// placeSampleAlloc fills a place of a job; previous is the allocation that it replaces, and
// whose place it takes.
func (s *sample) placeSampleAlloc(at time.Duration, edge string, job fleet.JobID, previous fleet.AllocID) fleet.AllocID {
	s.next++
	name := fmt.Sprintf("%s.main[%d]", job, slices.Index(s.edges, edge))
	if p := s.allocs[previous]; p != nil {
		name = p.Name
	}
	id := fleet.AllocID(fleet.DeriveUUID("sample", fmt.Sprint(s.next)))
	a := &fleet.Alloc{ID: id, Name: name, JobID: job, NodeID: s.nodeIDOf(edge), DesiredStatus: fleet.DesiredRun, ClientStatus: fleet.ClientPending, PreviousAllocation: previous}
	s.allocs[id] = a
	s.applyEntry(at, check.Effects{Allocs: []fleet.Alloc{*a}, Nodes: []fleet.Node{{ID: s.nodeIDOf(edge), Name: edge}}})
	s.addObservation(at+300*time.Millisecond, check.Observation{Task: &check.Task{Edge: edge, Alloc: id, Task: "main", What: check.TaskStarted}})
	s.setClientStatus(at+500*time.Millisecond, id, fleet.ClientRunning)
	return id
}

func (s *sample) setClientStatus(at time.Duration, id fleet.AllocID, status string) {
	a := s.allocs[id]
	a.ClientStatus = status
	s.applyEntry(at, check.Effects{Allocs: []fleet.Alloc{*a}})
}

func (s *sample) stopAlloc(at time.Duration, edge string, id fleet.AllocID) {
	s.allocs[id].DesiredStatus = fleet.DesiredStop
	s.setClientStatus(at, id, s.allocs[id].ClientStatus)
	s.addObservation(at+2*time.Second, check.Observation{Task: &check.Task{Edge: edge, Alloc: id, Task: "main", What: check.TaskStopped}})
	s.setClientStatus(at+2500*time.Millisecond, id, fleet.ClientComplete)
}

// addOutage breaks an edge for a while.
func (s *sample) addOutage(edge string, from, lasts time.Duration, running map[string][]fleet.AllocID) {
	s.faults++
	kind := []string{"cut", "power-cut", "flapping", "cert-expired"}[s.rng.IntN(4)]
	f := check.Fault{ID: s.faults, Kind: kind, Targets: []string{edge}, Effects: []check.Effect{check.Severs}}
	if kind == "cut" {
		f.Detail = []string{"both ways", "out", "in"}[s.rng.IntN(3)]
	}
	s.addObservation(from, check.Observation{Fault: &f})
	hits := uint64(s.rng.IntN(200))
	until := from + lasts
	s.addObservation(until, check.Observation{Fault: &check.Fault{ID: f.ID, End: true, Hits: hits}})
	if kind == "power-cut" {
		s.addObservation(from, check.Observation{Process: &check.Process{Name: edge, Edge: true, What: check.ProcessPowerCut}})
		for _, id := range running[edge] {
			s.addObservation(from, check.Observation{Task: &check.Task{Edge: edge, Alloc: id, Task: "main", What: check.TaskVanished}})
		}
		boot := from + lasts/3
		s.addObservation(boot, check.Observation{Process: &check.Process{Name: edge, Edge: true, What: check.ProcessStart}})
		for _, id := range running[edge] {
			s.addObservation(boot+200*time.Millisecond, check.Observation{Task: &check.Task{Edge: edge, Alloc: id, Task: "main", What: check.TaskStarted}})
		}
		s.reportLink(boot+time.Second, edge, false, 12)
	} else {
		s.reportLink(from+8*time.Second, edge, false, 3)
	}
	s.setNodeStatus(from+20*time.Second, edge, fleet.NodeDisconnected)
	for _, id := range running[edge] {
		s.setClientStatus(from+20*time.Second, id, fleet.ClientUnknown)
	}
	if lasts > 4*time.Minute && len(running[edge]) > 0 {
		old := running[edge][0]
		other := s.edges[(slices.Index(s.edges, edge)+3)%len(s.edges)]
		replacement := s.placeSampleAlloc(from+3*time.Minute, other, s.allocs[old].JobID, old)
		s.reportLink(from+3*time.Minute, edge, false, 140)
		s.stopAlloc(until+12*time.Second, other, replacement)
	}
	s.setNodeStatus(until+9*time.Second, edge, fleet.NodeInitializing)
	s.reportLink(until+9*time.Second, edge, true, 20)
	s.setNodeStatus(until+11*time.Second, edge, fleet.NodeReady)
	for _, id := range running[edge] {
		s.setClientStatus(until+11*time.Second, id, fleet.ClientRunning)
	}
	s.reportLink(until+11*time.Second, edge, true, 0)
	if s.rng.IntN(3) == 0 {
		s.addObservation(until+9*time.Second, check.Observation{Refused: &check.Refused{By: "hub-1", From: edge, Code: fleet.CodeStaleSession, Reason: "session 3 after 4"}})
	}
}

// generateHistory makes the whole history up.
func (s *sample) generateHistory(jobs, outages int) *sample {
	for i, h := range s.hubs {
		s.addObservation(0, check.Observation{Process: &check.Process{Name: h, What: check.ProcessStart}})
		s.addObservation(time.Second, check.Observation{Hub: &check.Hub{Name: h, Leads: i == 0}})
	}
	running := map[string][]fleet.AllocID{}
	for i, e := range s.edges {
		s.addObservation(0, check.Observation{Process: &check.Process{Name: e, Edge: true, What: check.ProcessStart}})
		s.setNodeStatus(2*time.Second, e, fleet.NodeReady)
		s.reportLink(2*time.Second, e, true, 0)
		for j := range jobs {
			if (i+j)%2 == 0 {
				running[e] = append(running[e], s.placeSampleAlloc(5*time.Second+time.Duration(j)*time.Second, e, fleet.JobID(fmt.Sprintf("job-%d", j+1)), ""))
			}
		}
	}
	for i := range outages {
		edge := s.edges[s.rng.IntN(len(s.edges))]
		from := time.Minute + time.Duration(float64(s.length-3*time.Minute)*float64(i)/float64(outages))
		s.addOutage(edge, from, time.Duration(20+s.rng.IntN(400))*time.Second, running)
	}
	if len(s.hubs) > 1 {
		s.leaderKill(s.length / 3)
	}
	return s
}

func (s *sample) leaderKill(at time.Duration) {
	s.faults++
	s.addObservation(at, check.Observation{Fault: &check.Fault{ID: s.faults, Kind: "leader-kill", Targets: []string{"hub-1"}, Effects: []check.Effect{check.Halts}}})
	s.addObservation(at, check.Observation{Process: &check.Process{Name: "hub-1", What: check.ProcessKill}})
	s.addObservation(at+3*time.Second, check.Observation{Hub: &check.Hub{Name: "hub-2", Leads: true}})
	s.addObservation(at+time.Minute, check.Observation{Process: &check.Process{Name: "hub-1", What: check.ProcessStart}})
	s.addObservation(at+time.Minute, check.Observation{Fault: &check.Fault{ID: s.faults, End: true, Hits: 1}})
	s.faults++
	s.addObservation(at+2*time.Minute, check.Observation{Fault: &check.Fault{ID: s.faults, Kind: "majority-cut", Effects: []check.Effect{check.Severs}}})
	s.addObservation(at+3*time.Minute, check.Observation{Fault: &check.Fault{ID: s.faults, End: true}})
	for i := range 5 {
		s.addObservation(at+time.Duration(i)*time.Second, check.Observation{Operation: &check.Operation{Client: "c", Does: check.OpRegister, Job: "job-1", Outcome: []string{check.OutcomeOK, check.OutcomeUnknown}[i%2]}})
	}
	s.addObservation(at+5*time.Minute, check.Observation{Request: &check.Request{Edge: s.edges[0], What: "restart"}})
	s.addObservation(at+5*time.Minute, check.Observation{Usage: &check.Usage{Who: "hub-2", Goroutines: 210, HeapBytes: 41 << 20, Files: 40}})
}

// concludeRun ends the history.
func (s *sample) concludeRun(outcome history.Outcome) *sample {
	end := s.length
	s.records = slices.DeleteFunc(s.records, func(r history.Record) bool { return r.At > end })
	for _, i := range check.All() {
		v := check.Verdict{Invariant: i, Judged: uint64(1000 / int(i))}
		switch {
		case i == check.Jitter:
			v.Judged = 0
		case i == check.Sequence && outcome == history.Violated:
			v.Broken = 3
			s.addHistoryRecord(end, history.Record{Violation: &check.Violation{
				Invariant: i, At: end / 2, Where: "hub-2", Message: "row 17 of edge-2 was applied twice",
				Evidence: []string{"entry 311: rows 15 to 17 of edge-2, epoch 4", "entry 312: rows 17 to 20 of edge-2, epoch 4"},
			}})
		}
		s.addHistoryRecord(end, history.Record{Verdict: &v})
	}
	for i, b := range []string{"replay of more than 100 rows", "clone fenced", "leader changed", "gap refused"} {
		s.addHistoryRecord(end, history.Record{Sometimes: &history.Sometimes{Name: b, Count: uint64(i * 3), Least: 1}})
	}
	s.addHistoryRecord(end, history.Record{Note: &history.Note{Where: "edge-2", Text: "a sync took 2.1 s"}})
	e := &history.End{Outcome: outcome, Wall: 1800 * time.Millisecond}
	if outcome == history.Violated {
		e.Reasons, e.Shortest = []string{"sequence was broken 3 times"}, "edges 2\nfault cut edge-2 at 4m for 10s\n"
	}
	if outcome == history.Void {
		e.Reasons = []string{"fault majority-cut never hit"}
	}
	s.addHistoryRecord(end, history.Record{End: e})
	return s
}

// encodeHistory is the history as it is written.
func (s *sample) encodeHistory(tb testing.TB) []byte {
	tb.Helper()
	slices.SortStableFunc(s.records, func(a, b history.Record) int { return int(a.At - b.At) })
	s.index = 0
	for i := range s.records { // entries are numbered in the order in which they are applied
		if a := s.records[i].Applied; a != nil {
			s.index++
			a.Index = s.index
		}
	}
	var b bytes.Buffer
	w, err := history.NewWriter(&b, s.sampleHeader())
	if err != nil {
		tb.Fatal(err)
	}
	for _, r := range s.records {
		if err := w.Write(r); err != nil {
			tb.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

func mustOpen(tb testing.TB, text []byte) *history.Reader {
	tb.Helper()
	r, err := history.NewReader(strings.NewReader(string(text)))
	if err != nil {
		tb.Fatal(err)
	}
	return r
}
