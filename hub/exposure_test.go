package hub_test

import (
	"net/http"
	"testing"

	"skerry/api"
)

// The exposure of a stolen edge is listed when a variable was deleted and the collector has removed the job, its allocations and
// the node.
func TestExposureOutlivesTheCollector(t *testing.T) {
	hubs := mustCluster(t, 1)
	h := hubs[0]
	stolen := mustEnroll(t, h, h.JoinToken())
	first := stolen.mustConnect(h)
	for _, path := range []string{"nomad/jobs", "nomad/jobs/shop"} {
		h.mustRequest("PUT", "/v1/var/"+path, map[string]any{"Items": map[string]string{"password": "old"}}, nil)
	}
	h.mustRegister(job("shop"))
	alloc := stolen.expectRun(first)
	stolen.reportTransition(runningTransition(alloc.ID))

	node := "/v1/node/" + string(stolen.id)
	h.mustRequest("PUT", node+"/revoke", map[string]string{"Reason": "stolen"}, nil)
	h.mustRequest("DELETE", "/v1/var/nomad/jobs/shop", nil, nil)
	h.mustRequest("DELETE", "/v1/job/shop", nil, nil)
	waitUntil(t, "the node is collected", h.describeState, func() bool {
		h.mustRequest("PUT", "/v1/system/gc", nil, nil)
		code, _ := h.requestHTTP("GET", node, nil, nil)
		return code == http.StatusNotFound
	})
	var e api.NodeExposure
	h.mustRequest("GET", node+"/exposure", nil, &e)
	if len(e.Allocations) != 1 || e.Allocations[0].ID != alloc.ID || e.Since == nil || e.NodeID != stolen.id {
		t.Errorf("exposed: %+v", e)
	}
	if v := e.Variables; len(v) != 2 || v[0].Path != "nomad/jobs" || v[0].Deleted || v[0].Changed || v[1].Path != "nomad/jobs/shop" || !v[1].Deleted {
		t.Errorf("exposed variables: %+v", v)
	}
}
