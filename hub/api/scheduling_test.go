package api_test

import (
	"net/http"
	"strings"
	"testing"

	nomad "github.com/hashicorp/nomad/api"

	"skerry/fleet"
	"skerry/hub/state"
)

func TestSchedulerConfiguration(t *testing.T) {
	h, server, client := mustServe(t)
	read := func() *nomad.SchedulerConfiguration {
		t.Helper()
		got, _, err := client.Operator().SchedulerGetConfiguration(nil)
		if err != nil {
			t.Fatal(err)
		}
		return got.SchedulerConfig
	}
	if c := read(); c.SchedulerAlgorithm != nomad.SchedulerAlgorithmBinpack || !c.PreemptionConfig.SystemSchedulerEnabled ||
		c.PreemptionConfig.ServiceSchedulerEnabled {
		t.Errorf("default %+v", c)
	}
	set := &nomad.SchedulerConfiguration{SchedulerAlgorithm: nomad.SchedulerAlgorithmSpread, MemoryOversubscriptionEnabled: true}
	set.PreemptionConfig.ServiceSchedulerEnabled = true
	if res, _, err := client.Operator().SchedulerSetConfiguration(set, nil); err != nil || !res.Updated {
		t.Fatalf("set: %+v, %v", res, err)
	}
	c := read()
	if c.SchedulerAlgorithm != nomad.SchedulerAlgorithmSpread || !c.MemoryOversubscriptionEnabled || c.PreemptionConfig.SystemSchedulerEnabled || c.ModifyIndex == 0 {
		t.Errorf("set to %+v", c)
	}
	c.ModifyIndex++
	if res, _, err := client.Operator().SchedulerCASConfiguration(c, nil); err != nil || res.Updated {
		t.Errorf("set on another index: %+v, %v", res, err)
	}
	c.ModifyIndex--
	c.RejectJobRegistration = true
	if res, _, err := client.Operator().SchedulerCASConfiguration(c, nil); err != nil || !res.Updated {
		t.Errorf("set on the right index: %+v, %v", res, err)
	}
	if _, _, err := client.Jobs().Register(exampleJob("late"), nil); err == nil || !strings.Contains(err.Error(), "rejects registrations") {
		t.Errorf("registered all the same: %v", err)
	}
	for body, want := range map[string]int{
		`{"SchedulerAlgorithm": "magic"}`: http.StatusBadRequest,
		`{"PauseEvalBroker": true}`:       http.StatusBadRequest,
		`{`:                               http.StatusBadRequest,
	} {
		res, err := http.Post(server.URL+"/v1/operator/scheduler/configuration", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if res.Body.Close(); res.StatusCode != want {
			t.Errorf("%s: status %d, want %d", body, res.StatusCode, want)
		}
	}
	mustApply(t, h, state.Pool{Pool: fleet.Pool{Name: "gpu", SchedulerConfiguration: &fleet.PoolScheduling{SchedulerAlgorithm: fleet.AlgorithmBinpack}}})
	p, _ := h.store.View().Pool("gpu")
	if got := h.store.View().Scheduling().For(p).SchedulerAlgorithm; got != fleet.AlgorithmBinpack {
		t.Errorf("the pool's algorithm is %s", got)
	}
}
