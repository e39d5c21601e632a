package hub

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"skerry/fleet"
)

// metricsGatherer returns the metrics of GET /v1/metrics: those of the process and the components' counters, which
// are read on each request.
func (h *Hub) metricsGatherer() prometheus.Gatherer {
	r := prometheus.NewRegistry()
	r.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		metricsCollector{h},
	)
	return r
}

// desc returns the description of the metric skerry_name.
func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("skerry_"+name, help, labels, nil)
}

var (
	descCertEnd    = desc("certificate_end_seconds", "End of this hub's own certificate, in seconds since 1970.")
	descHTTPEnd    = desc("http_certificate_end_seconds", "End of the certificate of this hub's HTTP API, in seconds since 1970 (with HTTPS only).")
	descUnsent     = desc("audit_unsent_entries", "Entries of this hub's audit that a destination has not taken yet (with one only).", "to")
	descLeader     = desc("raft_leader", "1 if this hub leads the cluster, else 0.")
	descTerm       = desc("raft_term", "Raft term that this hub is in.")
	descApplied    = desc("raft_applied_index", "Newest log entry that this hub has applied.")
	descCommitted  = desc("raft_commit_index", "Newest log entry that this hub knows to be committed.")
	descElections  = desc("raft_leader_changes_total", "Changes of the leader that this hub saw since it started.")
	descEntries    = desc("raft_entries_total", "Commands applied since this hub started.", "command")
	descEntryBytes = desc("raft_entry_bytes_total", "Bytes of the commands applied since this hub started.", "command")
	descDisk       = desc("raft_disk_bytes", "Bytes on disk.", "what")
	descSessions   = desc("edge_sessions", "Edges connected to this hub.")
	descOpened     = desc("edge_sessions_opened_total", "Sessions that this hub committed.")
	descRefused    = desc("edge_sessions_refused_total", "Sessions and updates that this hub refused.")
	descFenced     = desc("edge_sessions_fenced_total", "Sessions that ended because another one of the same node replaced them.")
	descUpdates    = desc("edge_updates_total", "Journal rows applied over this hub's sessions.")
	descNodes      = desc("nodes", "Edges that the cluster knows.", "status")
	descAllocs     = desc("allocations", "Allocations that the cluster knows.", "client_status")
	descHeartbeats = desc("heartbeats_total", "Heartbeats received from this hub's edges, and on the leader from other hubs.")
	descDeadlines  = desc("heartbeat_deadlines", "Deadlines that are held (on the leader only).")
	descMissed     = desc("heartbeats_missed_total", "Nodes that this hub marked as disconnected or down as the leader, because they missed their deadline.")
	descTTL        = desc("heartbeat_ttl_seconds", "Time between two heartbeats that edges of a pool are told to keep.", "pool")
	descPlans      = desc("plans_total", "Plans that this hub answered as the leader.", "outcome")
	descPlanQueue  = desc("plans_waiting", "Plans that wait for their turn (on the leader only).")
	descRejected   = desc("plan_nodes_rejected_total", "Nodes left out of plans that did not fit any more.")
	descOrphans    = desc("orphan_allocations", "Allocations that edges have and the cluster does not know.")
	descQueue      = desc("evaluations", "Evaluations that the leader's broker holds (on the leader only).", "where")
)

// metricsCollector is a prometheus.Collector of the components' counters.
type metricsCollector struct{ h *Hub }

// Describe sends nothing, which makes the collector unchecked: its labels are only known when they are collected.
func (r metricsCollector) Describe(chan<- *prometheus.Desc) {}

// Collect sends the current value of every metric.
func (r metricsCollector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	gauge(descCertEnd, float64(r.h.own.Identity().Cert.NotAfter.Unix()))
	if r.h.https != nil {
		gauge(descHTTPEnd, float64(r.h.https.End().Unix()))
	}
	for _, to := range r.h.auditTo {
		if unsent, err := r.h.audit.Unsent(to); err == nil { // Forward logs the error
			gauge(descUnsent, float64(unsent), to.Name())
		}
	}
	r.collectRaft(gauge, counter)
	edges := r.h.gateway.Stats()
	gauge(descSessions, float64(edges.Open))
	counter(descOpened, edges.Opened)
	counter(descRefused, edges.Refused)
	counter(descFenced, edges.Fenced)
	counter(descUpdates, edges.Updates)
	r.collectLiveness(gauge, counter)
	r.collectPlans(gauge, counter)
	r.collectFleet(gauge)
}

type gaugeFunc func(d *prometheus.Desc, v float64, labels ...string)
type counterFunc func(d *prometheus.Desc, v uint64, labels ...string)

// collectRaft sends the metrics of consensus.
func (r metricsCollector) collectRaft(gauge gaugeFunc, counter counterFunc) {
	s := r.h.node.Stats()
	leads := 0.0
	if r.h.node.IsLeader() {
		leads = 1
	}
	gauge(descLeader, leads)
	gauge(descTerm, float64(s.Term))
	gauge(descApplied, float64(s.AppliedIndex))
	gauge(descCommitted, float64(s.CommitIndex))
	counter(descElections, s.LeaderChanges)
	for kind, t := range s.Commands {
		counter(descEntries, t.Entries, kind.String())
		counter(descEntryBytes, t.Bytes, kind.String())
	}
	gauge(descDisk, float64(s.LogBytes), "log")
	gauge(descDisk, float64(s.SnapshotBytes), "snapshots")
}

// collectLiveness sends the metrics of heartbeats.
func (r metricsCollector) collectLiveness(gauge gaugeFunc, counter counterFunc) {
	s := r.h.liveness.Stats()
	counter(descHeartbeats, s.Beats)
	counter(descMissed, s.Missed)
	gauge(descDeadlines, float64(s.Deadlines))
	for p := range r.h.store.View().Pools() {
		gauge(descTTL, r.h.liveness.TTL(p.Name).Seconds(), p.Name)
	}
}

// collectPlans sends the metrics of the planner.
func (r metricsCollector) collectPlans(gauge gaugeFunc, counter counterFunc) {
	s := r.h.planner.Stats()
	counter(descPlans, s.Committed, "committed")
	counter(descPlans, s.Partial, "partial")
	counter(descPlans, s.Refused, "refused")
	counter(descRejected, s.Rejected)
	if r.h.node.IsLeader() {
		gauge(descPlanQueue, float64(s.Waiting))
	}
}

// collectFleet counts nodes and allocations by status. On the leader it also sends the broker's queues.
func (r metricsCollector) collectFleet(gauge gaugeFunc) {
	view := r.h.store.View()
	nodes := map[fleet.NodeStatus]int{
		fleet.NodeInitializing: 0, fleet.NodeReady: 0, fleet.NodeDisconnected: 0, fleet.NodeDown: 0,
	}
	orphans := 0
	for n := range view.Nodes("") {
		nodes[n.Status]++
		orphans += len(n.Orphans)
	}
	gauge(descOrphans, float64(orphans))
	for status, n := range nodes {
		gauge(descNodes, float64(n), string(status))
	}
	allocs := map[string]int{}
	for a := range view.Allocs("*", "") {
		allocs[a.ClientStatus]++
	}
	for status, n := range allocs {
		gauge(descAllocs, float64(n), status)
	}
	if !r.h.node.IsLeader() {
		return
	}
	q := r.h.broker.Stats()
	for where, n := range map[string]int{
		"ready": q.Ready, "outstanding": q.Outstanding, "pending": q.Pending, "delayed": q.Delayed,
		"blocked": q.Blocked, "escaped": q.Escaped, "cancelable": q.Cancelable, "failed": q.Failed,
	} {
		gauge(descQueue, float64(n), where)
	}
}
