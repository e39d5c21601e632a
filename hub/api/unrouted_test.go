package api_test

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// TestAnotherMethod asks for known paths by a method that they do not have.
func TestAnotherMethod(t *testing.T) {
	_, srv, _ := mustServe(t)
	for _, tc := range []struct {
		method, path string
		status       int
		allow        string
	}{
		{"DELETE", "/v1/jobs", 405, "GET, PUT, POST"},
		{"PATCH", "/v1/jobs", 405, "GET, PUT, POST"},
		{"GET", "/v1/jobs/parse", 405, "PUT, POST"},
		{"GET", "/v1/job/web/plan", 405, "PUT, POST"},
		{"PUT", "/v1/job/web/summary", 405, "GET"},
		{"GET", "/v1/search", 405, "PUT, POST"},
		{"GET", "/v1/operator/raft/peer", 405, "DELETE"},
		{"DELETE", "/v1/evaluations", 405, "GET"},
		{"GET", "/v1/node/x/purge", 405, "PUT, POST"},
		{"GET", "/v1/node/x/nonsense", 404, ""},
		{"PUT", "/v1/nonsense", 404, ""},
	} {
		req, err := http.NewRequestWithContext(t.Context(), tc.method, srv.URL+tc.path, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		said, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != tc.status || resp.Header.Get("Allow") != tc.allow {
			t.Errorf("%s %s: %d, Allow %q, %s, %v; want %d, %q", tc.method, tc.path, resp.StatusCode, resp.Header.Get("Allow"), said, err, tc.status, tc.allow)
		}
	}
}

// TestIDsWithSlashes names a job by its id as it is, as scripts do, and escaped.
func TestIDsWithSlashes(t *testing.T) {
	h, srv, c := mustServe(t)
	job := exampleJob("fleet/ship%7/dispatch-1")
	if _, _, err := c.Jobs().Register(job, nil); err != nil {
		t.Fatal(err)
	}
	mustPlace(t, h, "fleet/ship%7/dispatch-1")
	plain, escaped := "fleet/ship%257/dispatch-1", url.PathEscape("fleet/ship%7/dispatch-1")
	for _, end := range []string{"", "/allocations", "/summary", "/evaluations?per_page=1", "/versions"} {
		want, said := mustAnswer(t, "GET", srv.URL+"/v1/job/"+escaped+end, "")
		status, got := mustAnswer(t, "GET", srv.URL+"/v1/job/"+plain+end, "")
		if want != 200 || status != 200 || got != said || len(got) < 10 {
			t.Errorf("GET …%s: %d %s, and escaped %d %s", end, status, got, want, said)
		}
	}
	if status, said := mustAnswer(t, "PUT", srv.URL+"/v1/job/"+plain+"/versions/first/tag", `{"Version": 0}`); status != 200 {
		t.Errorf("tag: %d %s", status, said)
	}
	if status, said := mustAnswer(t, "GET", srv.URL+"/v1/job/fleet/none", ""); status != 404 || !strings.Contains(said, `job "fleet/none" not found`) {
		t.Errorf("one that is not there: %d %s", status, said)
	}
	if status, said := mustAnswer(t, "DELETE", srv.URL+"/v1/job/"+plain, ""); status != 200 {
		t.Errorf("stop: %d %s", status, said)
	}
	if j, _, err := c.Jobs().Info("fleet/ship%7/dispatch-1", nil); err != nil || !*j.Stop {
		t.Errorf("it is not stopped: %+v, %v", j, err)
	}
}
