package hub_test

import (
	"net/http"
	"strings"
	"testing"
)

// A hub that is alone says over HTTP why the lead stays with it, and which hubs there are.
func TestLeadOfAHubThatIsAlone(t *testing.T) {
	cfg := config(t, "hub-1")
	cfg.Bootstrap = true
	h := mustStart(t, cfg)
	h.mustBeReady()
	for query, want := range map[string]struct {
		status int
		says   string
	}{
		"":                     {http.StatusConflict, "hand the lead over: hub hub-1 is the only one of this region that has a vote"},
		"?id=hub-1":            {http.StatusConflict, "hand the lead over to hub hub-1: it is already the leader"},
		"?id=hub-2":            {http.StatusNotFound, "hubs there are: hub-1 (" + h.QUICAddr() + ")"},
		"?address=127.0.0.1:1": {http.StatusNotFound, "find hub 127.0.0.1:1: it is not a member of the Raft cluster"},
	} {
		status, err := h.requestHTTP("PUT", "/v1/operator/raft/transfer-leadership"+query, nil, nil)
		if err == nil || status != want.status || !strings.Contains(err.Error(), want.says) {
			t.Errorf("%q: %d, %v; want %d, %q", query, status, err, want.status, want.says)
		}
	}
}
