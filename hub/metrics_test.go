package hub_test

import (
	"context"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func (r *runningHub) mustScrape() string {
	r.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.HTTPAddr()+"/v1/metrics?format=prometheus", nil)
	if err != nil {
		r.tb.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.tb.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		r.tb.Fatalf("metrics: %d, %v", resp.StatusCode, err)
	}
	return string(b)
}

var metricName = regexp.MustCompile(`(?m)^# HELP (skerry_[a-z_]+) `)

// What a hub counts shows, and docs/api.md lists each metric that there is.
func TestMetrics(t *testing.T) {
	cfg := config(t, "h1")
	cfg.Bootstrap = true
	h := mustStart(t, cfg)
	h.mustBeReady()
	e := mustEnroll(t, h, h.JoinToken())
	first := e.mustConnect(h)
	h.mustRegister(job("shop"))
	e.expectRun(first)
	// The planner counts a plan when it hears that it is committed, which edges
	// may see first.
	committed := `skerry_plans_total{outcome="committed"} 1`
	waitUntil(t, "the plan is counted", h.describeState, func() bool { return strings.Contains(h.mustScrape(), "\n"+committed) })
	// Each kind of command is a line of its own, or nothing is collected at all.
	h.mustRequest("PUT", "/v1/namespace", map[string]string{"Name": "ships"}, nil)
	h.mustRequest("DELETE", "/v1/namespace/ships", nil, nil)
	text := h.mustScrape()
	for _, want := range []string{
		`skerry_certificate_end_seconds 1.`, `skerry_raft_leader 1`, `skerry_raft_entries_total{command="job_register"} 1`, `skerry_raft_entries_total{command="plan"} 1`,
		`skerry_raft_entries_total{command="namespace_store"} 1`, `skerry_raft_entries_total{command="namespace_delete"} 1`,
		`skerry_raft_entry_bytes_total{command="plan"} `, `skerry_edge_sessions 1`, `skerry_nodes{status="ready"} 1`,
		`skerry_evaluations{where="ready"} 0`, `skerry_evaluations{where="blocked"} `, committed,
		`skerry_plans_total{outcome="refused"} 0`, `skerry_plans_waiting 0`, `skerry_plan_nodes_rejected_total 0`,
		`skerry_heartbeat_deadlines 1`, `skerry_heartbeats_missed_total 0`, `skerry_heartbeat_ttl_seconds{pool="default"} 1`,
		`skerry_orphan_allocations 0`, `skerry_allocations{client_status="pending"} `,
	} {
		if !strings.Contains(text, "\n"+want) {
			t.Errorf("no line %q", want)
		}
	}
	beats := regexp.MustCompile(`(?m)^skerry_heartbeats_total [1-9]`)
	waitUntil(t, "beats are counted", h.describeState, func() bool { return beats.MatchString(h.mustScrape()) })

	docs, err := os.ReadFile("../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, m := range regexp.MustCompile("(?m)^\\| `(skerry_[a-z_]+)").FindAllStringSubmatch(string(docs), -1) {
		listed = append(listed, m[1])
	}
	for _, m := range metricName.FindAllStringSubmatch(text, -1) {
		if !slices.Contains(listed, m[1]) {
			t.Errorf("docs/api.md does not list %s", m[1])
		}
	}
	if len(listed) < 20 {
		t.Errorf("docs/api.md lists %d metrics", len(listed))
	}
}
