package hub_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	nomad "github.com/hashicorp/nomad/api"
)

// A collector gets what was asked of a hub, and the metric says when it has all.
func TestAuditIsSentToACollector(t *testing.T) {
	taken := make(chan string, 100)
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		taken <- string(body)
	}))
	defer collector.Close()
	cfg := config(t, "hub-1")
	cfg.Bootstrap, cfg.AuditCollector = true, collector.URL
	h := mustStart(t, cfg)
	h.mustBeReady()
	c := mustNomadClient(t, h.HTTPURL(), nomad.TLSConfig{})
	if _, err := c.Namespaces().Register(&nomad.Namespace{Name: "ships"}, nil); err != nil {
		t.Fatal(err)
	}
	if lines := <-taken; !strings.Contains(lines, `"Verb":"PUT","Object":"/v1/namespace`) {
		t.Errorf("taken: %s", lines)
	}
	for metrics := ""; !strings.Contains(metrics, "\nskerry_audit_unsent_entries{to=\"collector\"} 0\n"); { // the answer is recorded a moment later
		answer, err := c.Raw().Response("/v1/metrics?format=prometheus", nil)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(answer)
		answer.Close()
		if metrics = string(text); err != nil || !strings.Contains(metrics, "skerry_audit_unsent_entries") {
			t.Fatalf("no metric of entries that wait: %v", err)
		}
	}
}
