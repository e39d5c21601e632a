package api_test

import (
	"io"
	"net/http"
	"net/url"
	"skerry/api"
	"strings"
	"testing"
)

// TestWhatIsNoJob sends bodies that are none: one line each, in JSON's words.
func TestWhatIsNoJob(t *testing.T) {
	_, srv, _ := mustServe(t)
	for body, says := range map[string]string{
		``: "it is empty", `[1]`: "the whole has the wrong type: JSON array", `{}`: "the request's body contains no job", `{"Job": null}`: "contains no job",
		`{"Job": [1]}`: "not a job in JSON, but array", `{"Job": "job \"x\" {}"}`: "not a job in JSON, but string", `job "x" {}`: "invalid character 'j'",
	} {
		resp, err := http.Post(srv.URL+"/v1/jobs", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusBadRequest || !strings.Contains(string(b), says) || strings.Contains(string(b), "\n") || strings.Contains(string(b), "Go ") {
			t.Errorf("%s: %d %q, %v; want one line with %q", body, resp.StatusCode, b, err, says)
		}
	}
}

// TestRegisteringStopsNothing: what only the hub writes of a job is not taken from a file, and
// its author is told.
func TestRegisteringStopsNothing(t *testing.T) {
	_, srv, c := mustServe(t)
	const job = `{"Job": {"ID": "web", "Stop": true, "ParentID": "big", "Dispatched": true, "DispatchIdempotencyToken": "t", "Payload": "eA==",
		"Status": "dead", "Version": 7, "TaskGroups": [{"Name": "g", "Tasks": [{"Name": "t", "Driver": "sim"}]}]}}`
	resp, err := http.Post(srv.URL+"/v1/jobs", "application/json", strings.NewReader(job))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%d %s, %v", resp.StatusCode, b, err)
	}
	for _, name := range []string{"Stop", "ParentID", "Dispatched", "DispatchIdempotencyToken", "Payload"} {
		if !strings.Contains(string(b), name+" at "+name+" is ignored") {
			t.Errorf("nothing says that %s is ignored: %s", name, b)
		}
	}
	got, _, err := c.Jobs().Info("web", nil)
	if err != nil || *got.Stop || *got.ParentID != "" || got.Dispatched || len(got.Payload) > 0 || *got.Version != 0 || *got.Status != "pending" {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestFiltersThatDoNotFit: a field that is not there is told by its name, with where names
// come from.
func TestFiltersThatDoNotFit(t *testing.T) {
	_, srv, c := mustServe(t)
	mustJobs(t, c, 1)
	for filter, says := range map[string]string{
		`Nope == "x"`: "there is no field Nope", `TaskGroups.0.Nope == "x"`: "there is no field TaskGroups.0.Nope",
	} {
		resp, err := http.Get(srv.URL + "/v1/jobs?filter=" + url.QueryEscape(filter))
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusBadRequest || !strings.HasSuffix(string(b), says) && !strings.Contains(string(b), says+" ") || resp.Header.Get(api.HintHeader) == "" {
			t.Errorf("%s: %d %q, %v", filter, resp.StatusCode, b, err)
		}
	}
}
