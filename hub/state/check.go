package state

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"skerry/fleet"
)

// Check returns an error that lists the contradictions in the state: indexes that disagree, references to
// missing objects, wrong counts. It runs after every command in tests, and on every snapshot that is
// restored.
func (v *View) Check() error {
	c := &checker{
		v: &View{txn: v.txn}, applied: v.Index(),
		jobs: map[string]*jobAllocSummary{}, nodes: map[string]*nodeAllocSummary{},
		refs: map[string]int{}, desired: map[fleet.NodeID]fleet.Index{},
	}
	c.checkAllocs()
	c.checkEvaluations()
	c.checkEvents()
	c.checkJobs()
	c.checkNodes()
	c.checkDeployments()
	c.checkVariables()
	c.compareSummaries()
	return errors.Join(c.errs...)
}

// checker computes again, from the rows themselves, what the state keeps in summaries, and compares both.
type checker struct {
	v       *View
	applied fleet.Index
	jobs    map[string]*jobAllocSummary
	nodes   map[string]*nodeAllocSummary
	refs    map[string]int               // references to each job body, by bodyKey
	desired map[fleet.NodeID]fleet.Index // newest AllocModifyIndex of each node's allocations
	errs    []error
}

// addCheckFailure adds an error to the result of Check.
func (c *checker) addCheckFailure(format string, args ...any) {
	c.errs = append(c.errs, fmt.Errorf(format, args...))
}

// recountedJob returns the summary of a job that the checker itself counts. The first call makes it.
func (c *checker) recountedJob(ns string, id fleet.JobID) *jobAllocSummary {
	k := string(jobKeyOf(ns, id))
	if c.jobs[k] == nil {
		c.jobs[k] = &jobAllocSummary{ns: ns, id: id, groups: map[string]fleet.TaskGroupSummary{}}
	}
	return c.jobs[k]
}

// checkAllocs checks each allocation, and counts it for compareSummaries.
func (c *checker) checkAllocs() {
	for a := range allocTable.scanRows(c.v.txn) {
		job := c.recountedJob(a.Namespace, a.JobID)
		job.allocs = append(job.allocs, a.ID)
		job.countAlloc(&a.Alloc, 1)
		job.newest = max(job.newest, a.ModifyIndex)
		k := string(idKey(a.NodeID))
		if c.nodes[k] == nil {
			c.nodes[k] = &nodeAllocSummary{node: a.NodeID}
		}
		node := c.nodes[k]
		node.allocs = append(node.allocs, a.ID)
		if a.OccupiesNode() {
			node.used = node.used.Add(a.AllocatedResources)
			if _, ok := c.v.Namespace(a.Namespace); !ok {
				c.addCheckFailure("allocation %s takes room on its node, and there is no namespace %q", a.ID, a.Namespace)
			}
		}
		c.desired[a.NodeID] = max(c.desired[a.NodeID], a.AllocModifyIndex)
		if a.Retired && !a.ClientTerminal() && !a.ServerTerminal() {
			c.addCheckFailure("allocation %s is retired and is %s", a.ID, a.ClientStatus)
		}
		switch {
		case a.Job == nil:
			c.addCheckFailure("allocation %s has no job", a.ID)
		case a.Job.SpecHash != a.JobHash || a.Job.Version != a.JobVersion || a.Job.ID != a.JobID:
			c.addCheckFailure("allocation %s runs version %d of %s (%s) and points to version %d of %s (%s)",
				a.ID, a.JobVersion, a.JobID, a.JobHash, a.Job.Version, a.Job.ID, a.Job.SpecHash)
		default:
			c.refs[string(bodyKey(a.Job))]++
		}
		if a.ModifyIndex > c.applied || a.AllocModifyIndex > a.ModifyIndex || a.CreateIndex > a.AllocModifyIndex {
			c.addCheckFailure("allocation %s has indexes %d, %d, %d at entry %d", a.ID, a.CreateIndex, a.AllocModifyIndex, a.ModifyIndex, c.applied)
		}
		c.checkHistory("allocation "+string(a.ID), a.history)
	}
}

// checkHistory checks the bounds and the order of one history; of names its object in the error.
func (c *checker) checkHistory(of string, h history) {
	if len(h.entries) > historyKept {
		c.addCheckFailure("%s has %d history entries", of, len(h.entries))
	}
	size := 0
	for i, e := range h.entries {
		size += e.entryBytes()
		if (e.hubEvent == nil) == (e.row == nil) || e.index > c.applied || i > 0 && e.index < h.entries[i-1].index {
			c.addCheckFailure("%s has a bad history entry %d", of, i)
		}
	}
	if size != h.bytes || size > historyBytes && len(h.entries) > 1 {
		c.addCheckFailure("%s has history entries of %d bytes, and counts %d", of, size, h.bytes)
	}
}

// checkEvaluations checks each evaluation and the indexes of their table, and counts those that are not
// terminal.
func (c *checker) checkEvaluations() {
	byJob := 0
	for range evalTable.scanPrefix(c.v.txn, indexJob, nil) {
		byJob++
	}
	blocked := 0
	for range evalTable.scanPrefix(c.v.txn, indexBlocked, nil) {
		blocked++
	}
	var last fleet.Index
	changed := 0
	for e := range evalTable.scanPrefix(c.v.txn, indexChanged, nil) {
		changed++
		if e.ModifyIndex < last || e.ModifyIndex > c.applied || e.CreateIndex > e.ModifyIndex {
			c.addCheckFailure("evaluation %s has indexes %d, %d at entry %d", e.ID, e.CreateIndex, e.ModifyIndex, c.applied)
		}
		last = e.ModifyIndex
		if !e.Terminal() {
			c.recountedJob(e.Namespace, e.JobID).open++
		}
	}
	n := 0
	for e := range evalTable.scanRows(c.v.txn) {
		n++
		if isBlocked(e) {
			blocked--
		}
	}
	if n != byJob || n != changed || blocked != 0 {
		c.addCheckFailure("%d evaluations, %d by job, %d by change, %d too many in the index of the blocked ones", n, byJob, changed, blocked)
	}
}

// checkEvents checks that the window of events counts those that are kept.
func (c *checker) checkEvents() {
	window, ok := windowTable.watchRow(c.v, onlyKey)
	if !ok {
		window = &windowRow{}
	}
	events, bytes := 0, 0
	for row := range eventTable.scanRows(c.v.txn) {
		events += len(row.events)
		bytes += row.bytes
		if row.index <= window.floor || row.index > c.applied || row.bytes < 0 {
			c.addCheckFailure("entry %d has events of %d bytes, and events of entries %d to %d are kept", row.index, row.bytes, window.floor+1, c.applied)
		}
	}
	if events != window.events || bytes != window.bytes {
		c.addCheckFailure("%d events of %d bytes are kept, and %d of %d are counted", events, bytes, window.events, window.bytes)
	}
}

// checkJobs checks each job, its kept versions and its status. It needs the counts of checkAllocs and
// checkEvaluations.
func (c *checker) checkJobs() {
	for row := range jobTable.scanRows(c.v.txn) {
		job := row.job
		if len(row.versions) == 0 || len(row.versions) > fleet.JobVersionsKept+len(row.tags) {
			c.addCheckFailure("job %s keeps %d versions", job.ID, len(row.versions))
			continue
		}
		if v := row.versions[0]; v.Version != job.Version || v.SpecHash != job.SpecHash || v.CreateIndex != job.CreateIndex {
			c.addCheckFailure("job %s is at version %d, and its newest kept one is %d", job.ID, job.Version, v.Version)
		}
		for i, v := range row.versions {
			c.refs[string(bodyKey(v))]++
			if i > 0 && v.Version >= row.versions[i-1].Version {
				c.addCheckFailure("job %s keeps version %d after %d", job.ID, v.Version, row.versions[i-1].Version)
			}
		}
		if status := jobStatus(row, c.recountedJob(job.Namespace, job.ID)); status != job.Status {
			c.addCheckFailure("job %s is %s and should be %s", job.ID, job.Status, status)
		}
		if job.ModifyIndex > c.applied || job.JobModifyIndex > job.ModifyIndex || job.CreateIndex > job.JobModifyIndex {
			c.addCheckFailure("job %s has indexes %d, %d, %d at entry %d", job.ID, job.CreateIndex, job.JobModifyIndex, job.ModifyIndex, c.applied)
		}
	}
}

// checkNodes checks each node, its drain, its revocation and its class.
func (c *checker) checkNodes() {
	for n := range nodeTable.scanRows(c.v.txn) {
		if n.ModifyIndex > c.applied || n.CreateIndex > n.ModifyIndex {
			c.addCheckFailure("node %s has indexes %d, %d at entry %d", n.ID, n.CreateIndex, n.ModifyIndex, c.applied)
		}
		if away := n.Status == fleet.NodeDisconnected || n.Status == fleet.NodeDown; away != (n.DisconnectedAt != 0) {
			c.addCheckFailure("node %s is %s and was disconnected at %d", n.ID, n.Status, n.DisconnectedAt)
		}
		if (n.Applied == 0) != (len(n.ChainHash) == 0) {
			c.addCheckFailure("node %s has applied row %d with a chain hash of %d bytes", n.ID, n.Applied, len(n.ChainHash))
		}
		if n.DrainStrategy != nil && (n.SchedulingEligibility != fleet.NodeIneligible || n.LastDrain == nil || n.LastDrain.Status != fleet.DrainDraining) {
			c.addCheckFailure("node %s is drained, and is %s with last drain %+v", n.ID, n.SchedulingEligibility, n.LastDrain)
		}
		if _, listed := c.v.Revocation(n.ID); listed != (n.Revoked != nil) || listed && n.Status != fleet.NodeDown {
			c.addCheckFailure("node %s is %s; revoked by its record: %t, by the list: %t", n.ID, n.Status, n.Revoked != nil, listed)
		}
		if n.ComputedClass != computeNodeClass(&n.Node) {
			c.addCheckFailure("node %s has class %s and should have %s", n.ID, n.ComputedClass, computeNodeClass(&n.Node))
		}
		c.checkHistory("node "+string(n.ID), n.history)
	}
}

// compareSummaries compares the counts of the checker with the summaries and body references that the
// state keeps.
func (c *checker) compareSummaries() {
	kept := map[string]bool{}
	for r := range jobSummaryTable.scanRows(c.v.txn) {
		k := string(jobKeyOf(r.ns, r.id))
		kept[k] = true
		want := c.recountedJob(r.ns, r.id)
		if !slices.Equal(r.allocs, want.allocs) || !maps.Equal(r.groups, want.groups) ||
			r.live != want.live || r.open != want.open || r.newest != want.newest {
			c.addCheckFailure("summary of job %s is %+v and should be %+v", r.id, *r, *want)
		}
	}
	for k, r := range c.jobs {
		if !kept[k] && (len(r.allocs) > 0 || r.open > 0) {
			c.addCheckFailure("job %s has no summary", r.id)
		}
	}
	nodes := 0
	for r := range nodeSummaryTable.scanRows(c.v.txn) {
		nodes++
		want := c.nodes[string(idKey(r.node))]
		if want == nil || !slices.Equal(r.allocs, want.allocs) || r.used != want.used {
			c.addCheckFailure("summary of node %s is %+v and should be %+v", r.node, *r, want)
		}
	}
	if nodes != len(c.nodes) {
		c.addCheckFailure("%d nodes have summaries and %d allocations", nodes, len(c.nodes))
	}
	bodies := 0
	for r := range bodyTable.scanRows(c.v.txn) {
		bodies++
		if want := c.refs[string(bodyKey(r.job))]; r.refs != want {
			c.addCheckFailure("version %d of job %s has %d references and should have %d", r.job.Version, r.job.ID, r.refs, want)
		}
	}
	if bodies != len(c.refs) {
		c.addCheckFailure("%d bodies are kept and %d referred to", bodies, len(c.refs))
	}
	for id, want := range c.desired {
		if have := c.v.DesiredIndex(id); have < want {
			c.addCheckFailure("node %s should hear of entry %d and has %d", id, want, have)
		}
	}
}

// CheckStep returns an error that lists what must never happen between two states of one log, next being
// the later one: indexes, epochs or applied rows that went backwards, live objects that vanished, ended
// ones that run again.
func CheckStep(prev, next *View) error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if next.Index() < prev.Index() {
		fail("the applied entry went from %d to %d", prev.Index(), next.Index())
	}
	restored := next.Restored() != prev.Restored()
	for old := range prev.Nodes("") {
		n, ok := next.Node(old.ID)
		switch {
		case ok && (n.Epoch < old.Epoch || n.Session < old.Session):
			fail("node %s went back: epoch %d to %d, session %d to %d", old.ID, old.Epoch, n.Epoch, old.Session, n.Session)
		case restored: // a restore may rewind everything else
		case !ok && old.Status != fleet.NodeDisconnected && old.Status != fleet.NodeDown:
			fail("node %s is gone, and was %s", old.ID, old.Status)
		case !ok:
		case n.Applied < old.Applied || n.Received < old.Received:
			fail("node %s went back: row %d to %d, desired %d to %d", old.ID, old.Applied, n.Applied, old.Received, n.Received)
		case n.Status == fleet.NodeReady && old.Status != fleet.NodeReady && n.Applied < n.JournalHead:
			fail("node %s became ready at row %d of %d", old.ID, n.Applied, n.JournalHead)
		case n.Status == fleet.NodeReady && (old.Status == fleet.NodeDown || old.Status == fleet.NodeDisconnected) && n.Epoch == old.Epoch:
			fail("node %s went from %s to ready without a new session", old.ID, old.Status)
		case n.Applied != old.Applied && n.Epoch == old.Epoch && old.Status != fleet.NodeReady && old.Status != fleet.NodeInitializing:
			fail("rows of node %s were applied while it was %s", old.ID, old.Status)
		}
	}
	for old := range prev.Allocs("*", "") {
		a, ok := next.Alloc(old.ID)
		switch {
		case ok && restored && old.EndedOnEdge() && !a.EndedOnEdge():
			fail("allocation %s had ended, and is %s after a restore", old.ID, a.ClientStatus)
		case restored:
		case !ok && !old.ClientTerminal():
			fail("allocation %s is gone, and was %s", old.ID, old.ClientStatus)
		case !ok:
		case old.ServerTerminal() && !a.ServerTerminal():
			fail("allocation %s was to stop and is to run again", old.ID)
		case old.Retired && !a.Retired:
			fail("allocation %s was retired and is wanted again", old.ID)
		case a.NodeID != old.NodeID || a.CreateIndex != old.CreateIndex:
			fail("allocation %s is another one", old.ID)
		case len(a.AllocStates) < len(old.AllocStates):
			fail("allocation %s forgot a state", old.ID)
		}
	}
	for old := range prev.Evals("*", "") {
		if e, ok := next.Eval(old.ID); ok && !restored && old.Terminal() && e.Status != old.Status {
			fail("evaluation %s was %s and is %s", old.ID, old.Status, e.Status)
		}
	}
	return errors.Join(errs...)
}

// checkVariables checks that each variable has a namespace and the key that it is encrypted with, and that one root key
// is active at most.
func (c *checker) checkVariables() {
	active := 0
	for r := range rootKeyTable.scanRows(c.v.txn) {
		if r.State == fleet.RootKeyActive {
			active++
		}
	}
	if active > 1 {
		c.addCheckFailure("%d root keys are active", active)
	}
	for r := range variableTable.scanRows(c.v.txn) {
		if k, ok := c.v.RootKey(r.Sealed.KeyID); !ok || k.State == fleet.RootKeyDeprecated {
			c.addCheckFailure("variable %s in namespace %s is encrypted with the root key %s, which is missing or deprecated", r.Path, r.Namespace, r.Sealed.KeyID)
		}
		if _, ok := c.v.Namespace(r.Namespace); !ok {
			c.addCheckFailure("variable %s is in namespace %q, which does not exist", r.Path, r.Namespace)
		}
		if r.ModifyIndex > c.applied || r.CreateIndex > r.ModifyIndex {
			c.addCheckFailure("variable %s has indexes %d, %d at entry %d", r.Path, r.CreateIndex, r.ModifyIndex, c.applied)
		}
	}
}
