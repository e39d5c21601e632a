package real

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"skerry/chaos/check"
	"skerry/chaos/history"
	"skerry/chaos/schedule"
	"skerry/edge/swarm"
)

// rejoinRecord is the history of a rejoin, in the folder of its report; without one
// nothing is written. Of a thousand edges the first few stand for all.
type rejoinRecord struct {
	dir   string
	began time.Time
	out   *history.Writer // nil: nothing is written

	mu  sync.Mutex
	err error // the first failure
}

// shownEdges is how many edges have a line in the report.
const shownEdges = 20

// Numbers of a rejoin's faults.
const (
	rejoinFault = iota + 1
	rejoinKill
)

func newRejoinRecord(r Rejoin) (*rejoinRecord, error) {
	rec := &rejoinRecord{dir: r.Report, began: time.Now()}
	if r.Report == "" {
		return rec, nil
	}
	if err := os.MkdirAll(r.Report, 0o755); err != nil {
		return nil, fmt.Errorf("make the folder of the report: %w", err)
	}
	h := history.Header{
		Name: fmt.Sprintf("rejoin-%d", r.Edges), Seed: r.Seed, Clock: history.Real, Start: rec.began,
		Repeat: r.Repeat, Versions: r.Versions,
	}
	for i := range rejoinHubs {
		h.Hubs = append(h.Hubs, fmt.Sprintf("hub%d", i+1))
	}
	for i := range min(r.Edges, shownEdges) {
		h.Edges = append(h.Edges, swarm.NameOf("", i))
	}
	var err error
	rec.out, err = history.Create(filepath.Join(r.Report, historyFile), h)
	return rec, err
}

func (r *rejoinRecord) writeTimedRecord(rec history.Record) {
	if r.out == nil {
		return
	}
	rec.At = time.Since(r.began)
	err := r.out.Write(rec)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = err
	}
}

func (r *rejoinRecord) writeTextNote(text string) {
	r.writeTimedRecord(history.Record{Note: &history.Note{Text: text}})
}

// writeHubProcess notes what became of a hub's process.
func (r *rejoinRecord) writeHubProcess(name, what string) {
	r.writeTimedRecord(history.Record{Observation: check.Observation{Process: &check.Process{Name: name, What: what}}})
}

// writeFault notes that a fault began, or ended after so many hits.
func (r *rejoinRecord) writeFault(f check.Fault) {
	r.writeTimedRecord(history.Record{Observation: check.Observation{Fault: &f}})
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
	if r.out == nil {
		return
	}
	for _, e := range s.Edges()[:min(len(s.Edges()), shownEdges)] {
		st := e.SyncStatus()
		r.writeTimedRecord(history.Record{Observation: check.Observation{Edge: &check.Edge{
			Name: e.Name(), NodeID: e.NodeID(),
			Link:    &check.Link{Connected: st.Connected, Status: st.Node},
			Journal: &check.Journal{Last: st.Last, Acknowledged: st.Acknowledged},
		}}})
	}
}

// writeVerdicts notes the verdicts.
func (r *rejoinRecord) writeVerdicts(found []check.Violation, times int) {
	broken := map[check.Invariant]uint64{}
	for _, v := range found {
		broken[v.Invariant]++
		r.writeTimedRecord(history.Record{Violation: &v})
	}
	for _, i := range check.Checked() {
		r.writeTimedRecord(history.Record{Verdict: &check.Verdict{Invariant: i, Judged: uint64(times), Broken: broken[i]}})
	}
}

// closeAndDrawReport closes the history and draws the report.
func (r *rejoinRecord) closeAndDrawReport(g Ground, verdict error) error {
	if r.out == nil {
		return verdict
	}
	e := history.End{Outcome: outcomeOf(verdict), Wall: time.Since(r.began)}
	if verdict != nil {
		e.Reasons, e.Kept = []string{verdict.Error()}, []string{g.Dir}
	}
	r.writeTimedRecord(history.Record{End: &e})
	if err := errors.Join(r.err, r.out.Close()); err != nil {
		return errors.Join(verdict, err)
	}
	return errors.Join(verdict, drawReport(g, r.dir))
}
