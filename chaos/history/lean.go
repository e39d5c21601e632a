package history

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"skerry/chaos/check"
	"skerry/fleet"
)

// line is a Record as it is stored. Of a hub it has only the changes since the hub's last line, of a snapshot
// one part, and the body of a job version only the first time.
type line struct {
	Record
	Applied *appliedLine   `json:",omitempty"`
	Hub     *hubChange     `json:",omitempty"`
	Still   *unchangedEdge `json:",omitempty"`
	Picture *snapshotPart  `json:",omitempty"`
	// Bodies are job versions that allocations of this line, or of later ones, run.
	Bodies []body `json:",omitempty"`
}

// node and alloc have no methods, so that JSON does not get the additional fields for Nomad's clients.
type (
	node  fleet.Node
	alloc fleet.Alloc
)

// appliedLine is an applied command as it is stored, with effectsLine for its effects.
type appliedLine struct {
	check.Applied
	Effects *effectsLine `json:",omitempty"`
}

// effectsLine are a command's effects as they are stored: allocations without their jobs.
type effectsLine struct {
	check.Effects
	Nodes  []node  `json:",omitempty"`
	Allocs []alloc `json:",omitempty"`
}

// hubChange is the difference of a hub from its last line: new and changed objects, and the ids of objects that
// it holds no longer.
type hubChange struct {
	hubLine
	GoneNodes  []fleet.NodeID  `json:",omitempty"`
	GoneAllocs []fleet.AllocID `json:",omitempty"`
	GoneEvals  []fleet.EvalID  `json:",omitempty"`
}

// hubLine is a hub as it is stored: allocations without their jobs.
type hubLine struct {
	check.Hub
	Nodes  []node  `json:",omitempty"`
	Allocs []alloc `json:",omitempty"`
}

// unchangedEdge is an edge in the same state as at the last poll, but for the times that pass. Most polls find
// that.
type unchangedEdge struct {
	Edge          string
	Away, NextTry time.Duration `json:",omitzero"`
}

// unchangedEdgeLine is the shortest form of a line that has only an unchangedEdge.
type unchangedEdgeLine struct {
	At    time.Duration
	Still unchangedEdge
}

// body is a job's version, under the key that its allocations have.
type body struct {
	Version jobVersion
	Job     *fleet.Job
}

// hubMemory is what was last written or read of a hub.
type hubMemory struct {
	writeInFull bool // the next line has the whole state, not changes
	index       fleet.Index
	nodes       hubTable[fleet.NodeID, fleet.Node]
	allocs      hubTable[fleet.AllocID, fleet.Alloc]
	evals       hubTable[fleet.EvalID, fleet.Evaluation]
}

// hubTable has the objects of one kind that a hub held last. The Writer keeps only their versions, the Reader
// the objects.
type hubTable[K ~string, V any] struct {
	versionOf func(*V) (K, fleet.Index)
	versions  map[K]fleet.Index
	objects   map[K]V
}

// memory is the state that a line depends on: the last lines of each hub and edge, and all job versions so far.
// Writer and Reader build the same.
type memory struct {
	hubs   map[string]*hubMemory
	edges  map[string]check.Edge // the last state of each, without rows
	bodies map[jobVersion]*fleet.Job
}

// jobVersion identifies a job's version. The hash distinguishes versions with one number: hubs that were put
// back to an older copy use numbers again.
type jobVersion struct {
	Namespace string
	ID        fleet.JobID
	Number    uint64
	Hash      string
}

// newMemory returns the memory before the first line.
func newMemory() memory {
	return memory{hubs: map[string]*hubMemory{}, edges: map[string]check.Edge{}, bodies: map[jobVersion]*fleet.Job{}}
}

// ensureHub returns the memory of a hub, and adds an empty one for a new name.
func (m *memory) ensureHub(name string) *hubMemory {
	h := m.hubs[name]
	if h == nil {
		h = &hubMemory{}
		h.nodes.versionOf = func(n *fleet.Node) (fleet.NodeID, fleet.Index) { return n.ID, n.ModifyIndex }
		h.allocs.versionOf = func(a *fleet.Alloc) (fleet.AllocID, fleet.Index) { return a.ID, a.ModifyIndex }
		h.evals.versionOf = func(e *fleet.Evaluation) (fleet.EvalID, fleet.Index) { return e.ID, e.ModifyIndex }
		m.hubs[name] = h
	}
	return h
}

// recordRestart has the next line of a hub that restarted written in full: the hub may hold an older copy, in
// which the same indexes mean other states.
func (m *memory) recordRestart(name string) {
	if t := m.hubs[name]; t != nil {
		t.writeInFull = true
	}
}

// encodeHubChange returns the changes of a hub since its last line, and the job versions that no line had yet.
// While a hub runs, an object has a new modify index whenever it changes.
func (m *memory) encodeHubChange(h *check.Hub) (*hubChange, []body) {
	t := m.ensureHub(h.Name)
	inFull := t.writeInFull || h.Index < t.index
	t.writeInFull, t.index = false, h.Index
	d, c := *h, &hubChange{}
	d.Nodes, c.GoneNodes = t.nodes.changedSince(h.Nodes, inFull)
	d.Allocs, c.GoneAllocs = t.allocs.changedSince(h.Allocs, inFull)
	d.Evals, c.GoneEvals = t.evals.changedSince(h.Evals, inFull)
	var bodies []body
	c.hubLine, bodies = m.hubLine(&d)
	return c, bodies
}

// hubLine returns the stored form of a hub, and the job versions that no line had yet.
func (m *memory) hubLine(h *check.Hub) (hubLine, []body) {
	allocs, bodies := m.detachJobs(h.Allocs)
	return hubLine{Hub: *h, Nodes: nodesToLines(h.Nodes), Allocs: allocs}, bodies
}

// restoreHub returns the hub of a line, with the jobs of its allocations.
func (l *hubLine) restoreHub(m *memory) check.Hub {
	h := l.Hub
	h.Nodes, h.Allocs = nodesFromLines(l.Nodes), m.attachJobs(l.Allocs)
	return h
}

// changedSince returns the objects of now that are new or changed since the last call (inFull: all), and the
// ids of those that are gone. It remembers the versions of now.
func (t *hubTable[K, V]) changedSince(now []V, inFull bool) (changed []V, gone []K) {
	told := t.versions
	t.versions = make(map[K]fleet.Index, len(now))
	for i := range now {
		id, index := t.versionOf(&now[i])
		t.versions[id] = index
		if last, known := told[id]; !known || last != index || inFull {
			changed = append(changed, now[i])
		}
	}
	for id := range told {
		if _, held := t.versions[id]; !held {
			gone = append(gone, id)
		}
	}
	slices.Sort(gone)
	return changed, gone
}

// applyChange adds, replaces and removes objects, and returns all that the hub then holds, sorted by id.
func (t *hubTable[K, V]) applyChange(changed []V, gone []K) []V {
	if t.objects == nil {
		t.objects = map[K]V{}
	}
	for i := range changed {
		id, _ := t.versionOf(&changed[i])
		t.objects[id] = changed[i]
	}
	for _, id := range gone {
		delete(t.objects, id)
	}
	var all []V
	for _, id := range slices.Sorted(maps.Keys(t.objects)) {
		all = append(all, t.objects[id])
	}
	return all
}

// applyHubChange applies a change to the last state of its hub, and returns the hub's whole new state.
func (m *memory) applyHubChange(c *hubChange) *check.Hub {
	h, t := c.restoreHub(m), m.ensureHub(c.Name)
	h.Nodes = t.nodes.applyChange(h.Nodes, c.GoneNodes)
	h.Allocs = t.allocs.applyChange(h.Allocs, c.GoneAllocs)
	h.Evals = t.evals.applyChange(h.Evals, c.GoneEvals)
	return &h
}

// rememberAndCompareEdge stores the state of an edge, and reports whether only Away and NextTry differ from the
// last one and it has no rows.
func (m *memory) rememberAndCompareEdge(e *check.Edge) bool {
	last, known := m.edges[e.Name]
	m.edges[e.Name] = check.Edge{Name: e.Name, NodeID: e.NodeID, Link: e.Link, Journal: e.Journal, AgentSince: e.AgentSince}
	if !known || e.Link == nil || e.Journal == nil || last.Link == nil || last.Journal == nil {
		return false
	}
	link := *last.Link
	link.Away, link.NextTry = e.Link.Away, e.Link.NextTry
	return len(e.Rows)+len(e.Before) == 0 && e.Processes == nil &&
		e.NodeID == last.NodeID && e.AgentSince == last.AgentSince && *e.Link == link && *e.Journal == *last.Journal
}

// restoreUnchangedEdge returns the last state of an edge with the times of the line. It fails for an edge that
// no line has described before.
func (m *memory) restoreUnchangedEdge(s *unchangedEdge) (*check.Edge, error) {
	last, known := m.edges[s.Edge]
	if !known || last.Link == nil || last.Journal == nil {
		return nil, fmt.Errorf("edge %s stands where it stood, but no earlier line has its state", s.Edge)
	}
	e := check.Edge{Name: last.Name, NodeID: last.NodeID, AgentSince: last.AgentSince}
	link, journal := *last.Link, *last.Journal
	link.Away, link.NextTry = s.Away, s.NextTry
	e.Link, e.Journal = &link, &journal
	return &e, nil
}

// encodeApplied returns the stored form of a command, and the job versions that no line had yet.
func (m *memory) encodeApplied(a *check.Applied) (*appliedLine, []body) {
	l := &appliedLine{Applied: *a}
	if a.Effects == nil {
		return l, nil
	}
	allocs, bodies := m.detachJobs(a.Effects.Allocs)
	l.Effects = &effectsLine{Effects: *a.Effects, Nodes: nodesToLines(a.Effects.Nodes), Allocs: allocs}
	return l, bodies
}

// restoreApplied returns the command of a line, with the jobs of its allocations.
func (l *appliedLine) restoreApplied(m *memory) *check.Applied {
	a := l.Applied
	if l.Effects != nil {
		effects := l.Effects.Effects
		effects.Nodes, effects.Allocs = nodesFromLines(l.Effects.Nodes), m.attachJobs(l.Effects.Allocs)
		a.Effects = &effects
	}
	return &a
}

// detachJobs returns copies of allocations without their jobs, and the job versions that no line had yet. It
// remembers these.
func (m *memory) detachJobs(allocs []fleet.Alloc) (stripped []alloc, bodies []body) {
	for i := range allocs {
		a := alloc(allocs[i])
		if v := a.jobVersionKey(); a.Job != nil && m.bodies[v] == nil {
			m.bodies[v] = a.Job
			bodies = append(bodies, body{v, a.Job})
		}
		a.Job = nil
		stripped = append(stripped, a)
	}
	return stripped, bodies
}

// recordJobVersions stores the job versions of a line for later lines. A version without a job is an error.
func (m *memory) recordJobVersions(bodies []body) error {
	for _, b := range bodies {
		if b.Job == nil {
			return fmt.Errorf("version %d of job %s has no body", b.Version.Number, b.Version.ID)
		}
		m.bodies[b.Version] = b.Job
	}
	return nil
}

// attachJobs returns allocations with the jobs that were stored for their versions; nil where none was.
func (m *memory) attachJobs(stripped []alloc) []fleet.Alloc {
	var allocs []fleet.Alloc
	for _, a := range stripped {
		a.Job = m.bodies[a.jobVersionKey()]
		allocs = append(allocs, fleet.Alloc(a))
	}
	return allocs
}

// jobVersionKey returns the identity of the job version that an allocation runs.
func (a *alloc) jobVersionKey() jobVersion {
	return jobVersion{a.Namespace, a.JobID, a.JobVersion, a.JobHash}
}

// nodesToLines converts nodes to their stored form.
func nodesToLines(nodes []fleet.Node) []node {
	var ns []node
	for _, n := range nodes {
		ns = append(ns, node(n))
	}
	return ns
}

// nodesFromLines converts stored nodes back.
func nodesFromLines(nodes []node) []fleet.Node {
	var ns []fleet.Node
	for _, n := range nodes {
		ns = append(ns, fleet.Node(n))
	}
	return ns
}
