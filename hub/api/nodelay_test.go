package api_test

import (
	"net/http"
	"strings"
	"testing"

	nomad "github.com/hashicorp/nomad/api"

	"skerry/fleet"
)

// Nomad's client stops an allocation, and a job, without the shutdown_delay, and is shown
// that this was asked for.
func TestNomadClientStopsWithoutDelay(t *testing.T) {
	h, srv, c := mustServe(t)
	if _, _, err := c.Jobs().Register(exampleJob("web"), nil); err != nil {
		t.Fatal(err)
	}
	ids := []fleet.AllocID{mustPlace(t, h, "web"), mustPlace(t, h, "web"), mustPlace(t, h, "web")}
	mustRun(t, h, 1, ids...)
	check := func(what string, want ...bool) {
		t.Helper()
		for i, id := range ids {
			al, _, err := c.Allocations().Info(string(id), nil)
			if err != nil || al.DesiredTransition.ShouldIgnoreShutdownDelay() != want[i] {
				t.Errorf("%s: allocation %d: %+v, %v", what, i, al.DesiredTransition, err)
			}
		}
	}
	params := func(value string) *nomad.QueryOptions {
		return &nomad.QueryOptions{Params: map[string]string{"no_shutdown_delay": value}}
	}
	if _, err := c.Allocations().Stop(&nomad.Allocation{ID: string(ids[0])}, params("false")); err != nil {
		t.Fatal(err)
	}
	check("with it", false, false, false)
	res, err := c.Allocations().Stop(&nomad.Allocation{ID: string(ids[0])}, params("true"))
	if err != nil || res.EvalID == "" {
		t.Fatalf("%+v, %v", res, err)
	}
	check("without it", true, false, false)
	if _, err := c.Allocations().Stop(&nomad.Allocation{ID: string(ids[0])}, params("maybe")); err == nil || !strings.Contains(err.Error(), "no_shutdown_delay") {
		t.Errorf("neither true nor false: %v", err)
	}
	if _, _, err := c.Jobs().DeregisterOpts("web", &nomad.DeregisterOptions{}, nil); err != nil {
		t.Fatal(err)
	}
	check("the job with it", true, false, false)
	if _, _, err := c.Jobs().DeregisterOpts("web", &nomad.DeregisterOptions{NoShutdownDelay: true}, nil); err != nil {
		t.Fatal(err)
	}
	check("the job without it", true, true, true)
	req, err := http.NewRequest(http.MethodDelete, srv.URL+"/v1/job/web?no_shutdown_delay=maybe", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if resp.Body.Close(); resp.StatusCode != http.StatusBadRequest {
		t.Errorf("neither true nor false: %s", resp.Status)
	}
}

// TestStopThatReschedules stops an allocation as Nomad's alloc stop does.
func TestStopThatReschedules(t *testing.T) {
	h, _, c := mustServe(t)
	if _, _, err := c.Jobs().Register(exampleJob("web"), nil); err != nil {
		t.Fatal(err)
	}
	for value, want := range map[string]bool{"": false, "false": false, "true": true} {
		id := string(mustPlace(t, h, "web"))
		if _, err := c.Allocations().Stop(&nomad.Allocation{ID: id}, &nomad.QueryOptions{Params: map[string]string{"reschedule": value}}); err != nil {
			t.Fatal(err)
		}
		al, _, err := c.Allocations().Info(id, nil)
		if err != nil || !al.DesiredTransition.ShouldMigrate() || al.DesiredTransition.ShouldReschedule() != want {
			t.Errorf("reschedule=%s: %+v, %v", value, al.DesiredTransition, err)
		}
	}
}
