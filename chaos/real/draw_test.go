package real_test

import (
	"testing"
	"time"

	"skerry/chaos/real"
	"skerry/chaos/schedule"
	"skerry/fleet"
	"skerry/fleet/validate"
)

// TestAJumpIsSeen checks by how much a clock jumps in a storm: by less than what is
// seen in a journal no clock does.
func TestAJumpIsSeen(t *testing.T) {
	for drawn, want := range map[time.Duration]time.Duration{
		0: 0, 1: time.Minute, -259 * time.Millisecond: -time.Minute, 59 * time.Second: time.Minute,
		-time.Minute: -time.Minute, -3 * time.Hour: -3 * time.Hour, 800 * 24 * time.Hour: 800 * 24 * time.Hour,
	} {
		f := real.Shorter(schedule.Fault{Kind: schedule.ClockJump, Params: schedule.Params{Jump: drawn}})
		if f.Params.Jump != want {
			t.Errorf("a jump by %s became one by %s, want %s", drawn, f.Params.Jump, want)
		}
	}
}

// TestStormJobsAreValid has the jobs of a storm be such as a hub takes, and of each kind
// that the rollouts' invariants judge.
func TestStormJobsAreValid(t *testing.T) {
	kinds := map[string]bool{}
	for _, edges := range []int{1, 5} {
		for _, j := range real.CampaignJobs(3, edges, "docker", "podman") {
			if err := validate.Job(j).Err(); err != nil {
				t.Errorf("job %s: %v", j.ID, err)
			}
			u := j.TaskGroups[0].Update
			for kind, is := range map[string]bool{
				"canaries": u != nil && u.Canary > 0 && !u.AutoPromote, "sites": u != nil && u.MaxUnavailablePerSite > 0,
				"everywhere": j.Type == fleet.JobTypeSystem, "periodic": j.IsPeriodic(), "parameterized": j.IsParameterized(),
				"docker": j.TaskGroups[0].Tasks[0].Driver == "docker", "podman": j.TaskGroups[0].Tasks[0].Driver == "podman",
			} {
				kinds[kind] = kinds[kind] || is
			}
		}
	}
	for kind, is := range kinds {
		if !is {
			t.Errorf("no job is %s", kind)
		}
	}
}

// A seed draws the same jobs, drivers and steps each time, and the history can hold them as a scenario.
func TestDrawnWorkIsReplayable(t *testing.T) {
	drivers := map[string]bool{}
	for seed := range uint64(20) {
		plan := real.CampaignWork(seed, "docker", "podman")
		text := plan.String()
		if again := real.CampaignWork(seed, "docker", "podman").String(); again != text {
			t.Fatalf("seed %d draws\n%s\nand then\n%s", seed, text, again)
		}
		read, err := schedule.Parse("drawn.yaml", []byte(text))
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, text)
		}
		of := map[string]int{}
		for _, j := range read.Jobs {
			of[j.Driver]++
			drivers[j.Driver+" "+string(j.ID)] = true
		}
		if of["docker"] == 0 || of["podman"] == 0 || of["docker"]+of["podman"] > 3 {
			t.Errorf("seed %d draws the drivers %v", seed, of)
		}
	}
	if len(drivers) < 20 {
		t.Errorf("the drivers hardly change: %v", drivers)
	}
	if plan := real.CampaignWork(1); real.UsesContainers(plan) {
		t.Errorf("containers are drawn where none can run:\n%s", plan)
	}
}
