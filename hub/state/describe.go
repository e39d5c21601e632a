package state

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"

	"skerry/fleet"
)

// Describe writes everything in the view as text, one row a line, in a stable
// order: two states are equal if and only if their descriptions are.
func (v *View) Describe(w io.Writer) error {
	d := &describer{w: bufio.NewWriter(w)}
	quiet := &View{txn: v.txn}
	d.describeCluster(quiet)
	d.describeWorkload(quiet)
	if d.err != nil {
		return fmt.Errorf("describe the state: %w", d.err)
	}
	return d.w.Flush()
}

type describer struct {
	w   *bufio.Writer
	err error // the first
}

func (d *describer) writeTableLine(table string, parts ...any) {
	fmt.Fprint(d.w, table)
	for _, p := range parts {
		b, err := json.Marshal(p)
		if err != nil && d.err == nil {
			d.err = err
		}
		fmt.Fprintf(d.w, " %s", b)
	}
	fmt.Fprintln(d.w)
}

func (d *describer) describeCluster(v *View) {
	for r := range scanRows[metaRow](v.txn, tableMeta, indexID, nil) {
		d.writeTableLine("index", r.name, r.index)
	}
	if c, ok := v.Cluster(); ok {
		d.writeTableLine(tableCluster, c)
	}
	for r := range scanRows[JoinToken](v.txn, tableTokens, indexID, nil) {
		d.writeTableLine(tableTokens, r)
	}
	for r := range scanRows[HubAddr](v.txn, tableHubs, indexID, nil) {
		d.writeTableLine(tableHubs, r)
	}
	for r := range scanRows[fleet.Pool](v.txn, tablePools, indexID, nil) {
		d.writeTableLine(tablePools, r)
	}
	for r := range scanRows[fleet.SchedulerConfiguration](v.txn, tableScheduler, indexID, nil) {
		d.writeTableLine(tableScheduler, r)
	}
	for r := range scanRows[restoredRow](v.txn, tableRestored, indexID, nil) {
		d.writeTableLine(tableRestored, r)
	}
	for r := range scanRows[partRow](v.txn, tableParts, indexID, nil) {
		d.writeTableLine(tableParts, r.restore, r.number, len(r.data))
	}
	for r := range scanRows[fleet.Namespace](v.txn, tableNamespaces, indexID, nil) {
		d.writeTableLine(tableNamespaces, r)
	}
	for r := range scanRows[Certificate](v.txn, tableCertificates, indexID, nil) {
		d.writeTableLine(tableCertificates, r)
	}
	for r := range scanRows[Admission](v.txn, tableAdmissions, indexID, nil) {
		d.writeTableLine(tableAdmissions, r)
	}
	for r := range scanRows[fleet.Revocation](v.txn, tableRevocations, indexID, nil) {
		d.writeTableLine(tableRevocations, r)
	}
	for r := range scanRows[desiredRow](v.txn, tableDesired, indexID, nil) {
		d.writeTableLine(tableDesired, r.node, r.index)
	}
	for r := range scanRows[capacityRow](v.txn, tableCapacity, indexID, nil) {
		d.writeTableLine(tableCapacity, r.class, r.index)
	}
}

func (d *describer) describeWorkload(v *View) {
	for r := range scanRows[bodyRow](v.txn, tableBodies, indexID, nil) {
		d.writeTableLine(tableBodies, r.refs, r.job)
	}
	for r := range scanRows[jobRow](v.txn, tableJobs, indexID, nil) {
		d.writeTableLine(tableJobs, r.job, r.queued, r.evaluated, r.launched, r.stable)
		for _, j := range r.versions {
			d.writeTableLine(tableJobs+" version", j.ID, j.Version, j.SpecHash, j.CreateIndex)
		}
	}
	for r := range scanRows[jobAllocSummary](v.txn, tableJobSummaries, indexID, nil) {
		d.writeTableLine(tableJobSummaries, r.ns, r.id, r.allocs, r.groups, r.live, r.open, r.newest)
	}
	for r := range scanRows[nodeRow](v.txn, tableNodes, indexID, nil) {
		d.writeTableLine(tableNodes, r.Node, r.lastSessionOpen, r.linkDown, r.fenced)
		d.describeHistory(r.history)
	}
	for r := range scanRows[nodeAllocSummary](v.txn, tableNodeSummaries, indexID, nil) {
		d.writeTableLine(tableNodeSummaries, r.node, r.allocs, r.used)
	}
	for r := range scanRows[deploymentRow](v.txn, tableDeployments, indexID, nil) {
		d.writeTableLine(tableDeployments, r.Deployment, r.allocs)
	}
	for r := range scanRows[allocRow](v.txn, tableAllocs, indexID, nil) {
		a := r.Alloc
		a.Job = nil
		d.writeTableLine(tableAllocs, a, r.Job.CreateIndex)
		d.describeHistory(r.history)
	}
	for r := range scanRows[fleet.Evaluation](v.txn, tableEvals, indexID, nil) {
		d.writeTableLine(tableEvals, r)
	}
}

func (d *describer) describeHistory(h history) {
	for _, e := range h.entries {
		d.writeTableLine(" history", e.index, e.row, e.hubEvent, e.offline, e.vital)
	}
	if h.dropped > 0 {
		d.writeTableLine(" history dropped", h.dropped)
	}
}
