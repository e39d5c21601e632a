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
	d.cluster(quiet)
	d.work(quiet)
	if d.err != nil {
		return fmt.Errorf("describe the state: %w", d.err)
	}
	return d.w.Flush()
}

type describer struct {
	w   *bufio.Writer
	err error // the first
}

func (d *describer) line(table string, parts ...any) {
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

func (d *describer) cluster(v *View) {
	for r := range scan[metaRow](v.txn, tableMeta, indexID, nil) {
		d.line("index", r.name, r.index)
	}
	if c, ok := v.Cluster(); ok {
		d.line(tableCluster, c)
	}
	for r := range scan[JoinToken](v.txn, tableTokens, indexID, nil) {
		d.line(tableTokens, r)
	}
	for r := range scan[HubAddr](v.txn, tableHubs, indexID, nil) {
		d.line(tableHubs, r)
	}
	for r := range scan[fleet.Pool](v.txn, tablePools, indexID, nil) {
		d.line(tablePools, r)
	}
	for r := range scan[fleet.SchedulerConfiguration](v.txn, tableScheduler, indexID, nil) {
		d.line(tableScheduler, r)
	}
	for r := range scan[restoredRow](v.txn, tableRestored, indexID, nil) {
		d.line(tableRestored, r)
	}
	for r := range scan[partRow](v.txn, tableParts, indexID, nil) {
		d.line(tableParts, r.restore, r.number, len(r.data))
	}
	for r := range scan[fleet.Namespace](v.txn, tableNamespaces, indexID, nil) {
		d.line(tableNamespaces, r)
	}
	for r := range scan[Certificate](v.txn, tableCertificates, indexID, nil) {
		d.line(tableCertificates, r)
	}
	for r := range scan[Admission](v.txn, tableAdmissions, indexID, nil) {
		d.line(tableAdmissions, r)
	}
	for r := range scan[fleet.Revocation](v.txn, tableRevocations, indexID, nil) {
		d.line(tableRevocations, r)
	}
	for r := range scan[desiredRow](v.txn, tableDesired, indexID, nil) {
		d.line(tableDesired, r.node, r.index)
	}
	for r := range scan[capacityRow](v.txn, tableCapacity, indexID, nil) {
		d.line(tableCapacity, r.class, r.index)
	}
}

func (d *describer) work(v *View) {
	for r := range scan[bodyRow](v.txn, tableBodies, indexID, nil) {
		d.line(tableBodies, r.refs, r.job)
	}
	for r := range scan[jobRow](v.txn, tableJobs, indexID, nil) {
		d.line(tableJobs, r.job, r.queued, r.evaluated, r.launched, r.stable)
		for _, j := range r.versions {
			d.line(tableJobs+" version", j.ID, j.Version, j.SpecHash, j.CreateIndex)
		}
	}
	for r := range scan[jobRoster](v.txn, tableJobRosters, indexID, nil) {
		d.line(tableJobRosters, r.ns, r.id, r.allocs, r.groups, r.live, r.open, r.newest)
	}
	for r := range scan[nodeRow](v.txn, tableNodes, indexID, nil) {
		d.line(tableNodes, r.Node, r.opened, r.apart, r.fenced)
		d.history(r.history)
	}
	for r := range scan[nodeRoster](v.txn, tableNodeRosters, indexID, nil) {
		d.line(tableNodeRosters, r.node, r.allocs, r.used)
	}
	for r := range scan[deploymentRow](v.txn, tableDeployments, indexID, nil) {
		d.line(tableDeployments, r.Deployment, r.allocs)
	}
	for r := range scan[allocRow](v.txn, tableAllocs, indexID, nil) {
		a := r.Alloc
		a.Job = nil
		d.line(tableAllocs, a, r.Job.CreateIndex)
		d.history(r.history)
	}
	for r := range scan[fleet.Evaluation](v.txn, tableEvals, indexID, nil) {
		d.line(tableEvals, r)
	}
}

func (d *describer) history(h history) {
	for _, e := range h.entries {
		d.line(" history", e.index, e.row, e.mark, e.offline, e.vital)
	}
	if h.dropped > 0 {
		d.line(" history dropped", h.dropped)
	}
}
