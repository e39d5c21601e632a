package report

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"skerry/chaos/check"
	"skerry/chaos/history"
	"skerry/fleet"
)

// run is the content of a history that reports show.
type run struct {
	header  history.Header
	sum     history.Run
	lasted  time.Duration
	members map[string]*member
	names   []string // of the members, in the order of the header: hubs, then edges
	cluster cluster

	faults     []*fault
	open       map[int]*fault // faults that have not ended, by id
	refusals   map[refusal]*refusedCount
	violations []check.Violation
	verdicts   []check.Verdict
	sometimes  []history.Sometimes
	notes      []note
	clients    map[string]uint64 // number of operations, by kind and outcome
	requests   int               // number of requests of people
	end        history.End       // zero where the history has none
	readErr    error             // why the history could not be read to an End; nil: it could
}

// member is a hub or an edge.
type member struct {
	edge    bool
	process stateSpans                   // whether its process runs, and whether a hub leads
	tasks   map[fleet.AllocID]*taskSpans // allocations that really ran on an edge
}

// taskSpans is when any task of an allocation ran, with the number of its tasks that run now.
type taskSpans struct {
	stateSpans
	running int
}

// fault is a fault that began, with its times. Until it ends, to is the run's end.
type fault struct {
	check.Fault
	from, to time.Duration
	ended    bool
}

// note is a remark of the history with its time.
type note struct {
	at time.Duration
	history.Note
}

// refusal identifies equal refusals: by whom, of whom, and why.
type refusal struct {
	by, from string
	code     fleet.Code
	reason   string
}

// refusedCount is the number of equal refusals, and when the first and the last came.
type refusedCount struct {
	count       uint64
	first, last time.Duration
}

// Bounds of the notes of a run, and of its different refusals.
const (
	maxNotes    = 1000
	maxRefusals = 300
)

// collectRun reads a history to its end. A history that was cut short or is damaged is read as far as possible
// (see readErr); it is an error only where not even one record can be read.
func collectRun(r *history.Reader) (*run, error) {
	c := &run{
		header: r.Header(), members: map[string]*member{}, cluster: newCluster(), open: map[int]*fault{},
		clients: map[string]uint64{}, refusals: map[refusal]*refusedCount{},
	}
	for _, name := range c.header.Hubs {
		c.ensureMember(name, false)
	}
	for _, name := range c.header.Edges {
		c.ensureMember(name, true)
	}
	tally := history.NewTally(c.header)
	c.readErr = r.ForEach(func(rec *history.Record) error {
		tally.Add(*rec)
		c.lasted = max(c.lasted, rec.At)
		c.addRecord(rec)
		return nil
	})
	if c.sum = tally.Run(); c.sum.Records == 0 && c.readErr != nil && !errors.Is(c.readErr, history.ErrCutShort) {
		return nil, fmt.Errorf("report on %s: %w", c.header.Name, c.readErr)
	}
	c.closeOpenStates()
	return c, nil
}

// ensureMember returns the hub or edge with a name, and adds it where it is new.
func (c *run) ensureMember(name string, edge bool) *member {
	m := c.members[name]
	if m == nil {
		m = &member{edge: edge, tasks: map[fleet.AllocID]*taskSpans{}}
		c.members[name] = m
		c.names = append(c.names, name)
	}
	return m
}

// addRecord adds a record to the content.
func (c *run) addRecord(rec *history.Record) {
	at := rec.At
	switch {
	case rec.Applied != nil:
		c.cluster.applyEffects(at, rec.Applied)
	case rec.Hub != nil:
		c.recordHub(at, rec.Hub)
	case rec.Edge != nil:
		c.recordEdge(rec.Edge)
	case rec.Process != nil:
		c.recordProcess(at, rec.Process)
	case rec.Task != nil:
		c.recordTask(at, rec.Task)
	case rec.Refused != nil:
		c.recordRefusal(at, rec.Refused)
	case rec.Fault != nil:
		c.recordFault(at, rec.Fault)
	case rec.Operation != nil:
		c.clients[rec.Operation.Does+" "+rec.Operation.Outcome]++
	case rec.Request != nil:
		c.requests++
	default:
		c.recordConclusion(rec)
	}
}

// recordConclusion adds a record that is no observation: a violation, verdict, branch, note or end. Notes
// beyond maxNotes are dropped.
func (c *run) recordConclusion(rec *history.Record) {
	switch {
	case rec.Violation != nil:
		v := *rec.Violation
		if v.At == 0 {
			v.At = rec.At
		}
		c.violations = append(c.violations, v)
	case rec.Verdict != nil:
		c.verdicts = append(c.verdicts, *rec.Verdict)
	case rec.Sometimes != nil:
		c.sometimes = append(c.sometimes, *rec.Sometimes)
	case rec.Note != nil && len(c.notes) < maxNotes:
		c.notes = append(c.notes, note{rec.At, *rec.Note})
	case rec.End != nil:
		c.end = *rec.End
	}
}

// recordHub records whether a hub leads, and the nodes and allocations that it shows.
func (c *run) recordHub(at time.Duration, h *check.Hub) {
	m := c.ensureMember(h.Name, false)
	switch {
	case h.Leads:
		m.process.setState(at, stateLeads)
	case m.process.currentState() == stateLeads:
		m.process.setState(at, stateUp)
	}
	c.cluster.recordHubState(at, h)
}

// recordEdge adds an edge, and records which node it is.
func (c *run) recordEdge(e *check.Edge) {
	c.ensureMember(e.Name, true)
	if e.NodeID != "" {
		c.cluster.names[e.NodeID] = e.Name
	}
}

// recordProcess records that a hub or an edge's agent starts or ends.
func (c *run) recordProcess(at time.Duration, p *check.Process) {
	m := c.ensureMember(p.Name, p.Edge)
	if p.What == check.ProcessStart {
		m.process.setState(at, stateUp)
	} else {
		m.process.setState(at, "")
	}
}

// recordTask records a start or an end of a task. An allocation runs while any of its tasks runs.
func (c *run) recordTask(at time.Duration, t *check.Task) {
	m := c.ensureMember(t.Edge, true)
	l := m.tasks[t.Alloc]
	if l == nil {
		l = &taskSpans{}
		m.tasks[t.Alloc] = l
	}
	if t.What == check.TaskStarted {
		l.running++
	} else {
		l.running = max(0, l.running-1)
	}
	l.setState(at, classIf(l.running > 0, barRuns))
}

// recordRefusal counts a refusal. After maxRefusals different ones, new ones are counted by their code only.
func (c *run) recordRefusal(at time.Duration, r *check.Refused) {
	key := refusal{r.By, r.From, r.Code, r.Reason}
	if name := c.cluster.names[r.Node]; name != "" && c.members[r.From] == nil {
		key.from = name
	}
	if c.refusals[key] == nil && len(c.refusals) >= maxRefusals {
		key = refusal{"several", "several", r.Code, "several reasons"}
	}
	n := c.refusals[key]
	if n == nil {
		n = &refusedCount{first: at}
		c.refusals[key] = n
	}
	n.count, n.last = n.count+1, at
}

// recordFault records the beginning or the end of a fault. A fault that puts hubs back resets the cluster's
// indexes.
func (c *run) recordFault(at time.Duration, f *check.Fault) {
	if !f.End {
		began := &fault{Fault: *f, from: at}
		c.faults, c.open[f.ID] = append(c.faults, began), began
		if slices.Contains(f.Effects, check.Rewinds) {
			c.cluster.resetIndexes()
		}
		return
	}
	if began := c.open[f.ID]; began != nil {
		began.to, began.ended, began.Hits = at, true, f.Hits
		delete(c.open, f.ID)
	}
}

// closeOpenStates ends all open spans and faults at the run's end, and sorts verdicts and branches.
func (c *run) closeOpenStates() {
	for _, f := range c.open {
		f.to = c.lasted
	}
	for _, m := range c.members {
		m.process.close(c.lasted)
		for _, l := range m.tasks {
			l.close(c.lasted)
		}
	}
	c.cluster.closeSpans(c.lasted)
	slices.SortFunc(c.verdicts, func(a, b check.Verdict) int { return int(a.Invariant) - int(b.Invariant) })
	slices.SortStableFunc(c.sometimes, func(a, b history.Sometimes) int { return strings.Compare(a.Name, b.Name) })
}
