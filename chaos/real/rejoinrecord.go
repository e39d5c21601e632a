package real

import (
	"fmt"
	"time"

	"skerry/chaos/check"
	"skerry/chaos/engine"
	"skerry/chaos/history"
	"skerry/chaos/schedule"
	"skerry/edge/swarm"
)

// rejoinRecord is the history of a rejoin, in the folder of its report; without one
// nothing is written. Of a thousand edges the first few stand for all.
type rejoinRecord struct {
	dir string
	*engine.Recorder
}

// shownEdges is how many edges have a line in the report.
const shownEdges = 20

// Numbers of a rejoin's faults.
const (
	rejoinFault = iota + 1
	rejoinKill
)

func newRejoinRecord(r Rejoin) (*rejoinRecord, error) {
	began := time.Now()
	h := history.Header{
		Name: fmt.Sprintf("rejoin-%d", r.Edges), Seed: r.Seed, Clock: history.Real, Start: began,
		Repeat: r.Repeat, Versions: r.Versions,
	}
	for i := range rejoinHubs {
		h.Hubs = append(h.Hubs, fmt.Sprintf("hub%d", i+1))
	}
	for i := range min(r.Edges, shownEdges) {
		h.Edges = append(h.Edges, swarm.NameOf("", i))
	}
	out, err := createHistory(r.Report, h)
	return &rejoinRecord{r.Report, &engine.Recorder{History: out, Clock: func() time.Duration { return time.Since(began) }}}, err
}

// writeHubProcess notes what became of a hub's process.
func (r *rejoinRecord) writeHubProcess(name, what string) {
	r.Observe(check.Observation{Process: &check.Process{Name: name, What: what}})
}

// writeFault notes that a fault began, or ended after so many hits.
func (r *rejoinRecord) writeFault(f check.Fault) {
	r.Observe(check.Observation{Fault: &f})
}

// writeCutFault and killed are a rejoin's faults.
func (r *rejoinRecord) writeCutFault(end bool, hits int) {
	r.writeFault(check.Fault{ID: rejoinFault, Kind: string(schedule.MassRejoin), Detail: "all edges", Effects: []check.Effect{check.Severs}, End: end, Hits: uint64(hits)})
}

func (r *rejoinRecord) writeKillFault(hub string, end bool) {
	f := check.Fault{ID: rejoinKill, Kind: string(schedule.LeaderKill), Targets: []string{hub}, Effects: []check.Effect{check.Halts}, End: end}
	if end {
		f.Hits = 1
	}
	r.writeFault(f)
}

// writeEdgeStates notes where the edges stand that stand for all.
func (r *rejoinRecord) writeEdgeStates(s *swarm.Swarm) {
	if r.History == nil {
		return
	}
	for _, e := range s.Edges()[:min(len(s.Edges()), shownEdges)] {
		st := e.SyncStatus()
		r.Observe(check.Observation{Edge: &check.Edge{
			Name: e.Name(), NodeID: e.NodeID(),
			Link:    &check.Link{Connected: st.Connected, Status: st.Node},
			Journal: &check.Journal{Last: st.Last, Acknowledged: st.Acknowledged},
		}})
	}
}

// writeVerdicts notes the verdicts.
func (r *rejoinRecord) writeVerdicts(found []check.Violation, times int) {
	broken := map[check.Invariant]uint64{}
	for _, v := range found {
		broken[v.Invariant]++
	}
	r.Violate(found...)
	for _, i := range check.Checked() {
		r.Write(history.Record{Verdict: &check.Verdict{Invariant: i, Judged: uint64(times), Broken: broken[i]}})
	}
}
