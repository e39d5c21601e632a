package api_test

import (
	"strings"
	"testing"

	nomad "github.com/hashicorp/nomad/api"

	"skerry/fleet"
	"skerry/fleet/validate"
	"skerry/hub/state"
)

// mustVersions registers a job so many times, each with another count.
func mustVersions(t *testing.T, h *fakeHub, n int) {
	t.Helper()
	for i := range n {
		job := &fleet.Job{ID: "shop", Type: fleet.JobTypeService, TaskGroups: []fleet.TaskGroup{{Name: "web", Count: i + 1, Tasks: []fleet.Task{{Name: "main", Driver: "sim"}}}}}
		validate.FillDefaults(job)
		mustApply(t, h, state.JobRegister{Job: job, Now: int64(i + 1)})
	}
}

func mustFail(t *testing.T, err error, says string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), says) {
		t.Errorf("%v, wants %q", err, says)
	}
}

// Nomad's own client takes a job back.
func TestNomadClientReverts(t *testing.T) {
	h, _, client := mustServe(t)
	jobs := client.Jobs()
	mustVersions(t, h, 3)
	now := func() *fleet.Job {
		job, _ := h.store.View().Job(fleet.DefaultNamespace, "shop")
		return job
	}
	ptr := func(n uint64) *uint64 { return &n }

	t.Run("H14", func(t *testing.T) {
		_, _, err := jobs.Revert("shop", 2, nil, nil, "", "")
		mustFail(t, err, "version 2 is the current one")
		_, _, err = jobs.Revert("shop", 7, nil, nil, "", "")
		mustFail(t, err, "version 7 of job \"shop\" does not exist or is no longer kept")
		_, _, err = jobs.Revert("none", 0, nil, nil, "", "")
		mustFail(t, err, "not found")
		_, _, err = jobs.Revert("shop", 0, ptr(1), nil, "", "")
		mustFail(t, err, "its current version is 2, not 1")

		answer, _, err := jobs.Revert("shop", 0, ptr(2), nil, "", "")
		if err != nil || answer.EvalID == "" || answer.JobModifyIndex == 0 {
			t.Fatalf("%+v, %v", answer, err)
		}
		if job := now(); job.Version != 3 || job.TaskGroups[0].Count != 1 || job.Stop {
			t.Fatalf("%+v", job)
		}
		if _, _, err = jobs.Revert("shop", 0, nil, nil, "", ""); err != nil {
			t.Fatal(err)
		}
		if job := now(); job.Version != 3 {
			t.Errorf("the same once more made version %d", job.Version)
		}
	})
	t.Run("a job that was stopped", func(t *testing.T) {
		if _, _, err := jobs.Deregister("shop", false, nil); err != nil {
			t.Fatal(err)
		}
		if _, _, err := jobs.Revert("shop", 1, nil, nil, "", ""); err != nil {
			t.Fatal(err)
		}
		if job := now(); job.Stop || job.TaskGroups[0].Count != 2 {
			t.Errorf("%+v", job)
		}
	})
	t.Run("stable", func(t *testing.T) {
		answer, _, err := jobs.Stable("shop", 1, true, nil)
		if err != nil || answer.JobModifyIndex == 0 {
			t.Fatalf("%+v, %v", answer, err)
		}
		stable := func() []uint64 {
			versions, _, _, err := jobs.Versions("shop", false, nil)
			if err != nil {
				t.Fatal(err)
			}
			var is []uint64
			for _, v := range versions {
				if *v.Stable {
					is = append(is, *v.Version)
				}
			}
			return is
		}
		if is := stable(); len(is) != 1 || is[0] != 1 {
			t.Errorf("stable are %v", is)
		}
		if _, _, err := jobs.Stable("shop", 1, false, nil); err != nil {
			t.Fatal(err)
		}
		if is := stable(); len(is) != 0 {
			t.Errorf("stable are %v", is)
		}
		_, _, err = jobs.Stable("shop", 9, true, nil)
		mustFail(t, err, "version 9 of job \"shop\" does not exist or is no longer kept")
	})
	t.Run("a body about another job", func(t *testing.T) {
		var out nomad.JobRegisterResponse
		_, err := client.Raw().Write("/v1/job/shop/revert", map[string]any{"JobID": "other", "JobVersion": 1}, &out, nil)
		mustFail(t, err, "JobID is \"other\", and the path names \"shop\"")
	})
}

// TestRevertToATag goes back to a version by its name.
func TestRevertToATag(t *testing.T) {
	_, srv, c := mustServe(t)
	for _, count := range []int{1, 2, 3} {
		job := exampleJob("web")
		job.TaskGroups[0].Count = &count
		if _, _, err := c.Jobs().Register(job, nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Jobs().TagVersion("web", 1, "golden", "", nil); err != nil {
		t.Fatal(err)
	}
	revert := func(body string) (int, string) { return mustAnswer(t, "POST", srv.URL+"/v1/job/web/revert", body) }
	if status, said := revert(`{"JobID": "web", "TaggedVersion": "silver"}`); status != 404 || !strings.Contains(said, `version "silver" of job "web" does not exist or is no longer kept`) {
		t.Errorf("%d %s", status, said)
	}
	if status, said := revert(`{"JobID": "web", "TaggedVersion": "golden", "JobVersion": 2}`); status != 400 || !strings.Contains(said, "both a number and a tag") {
		t.Errorf("%d %s", status, said)
	}
	if status, said := revert(`{"JobID": "web", "TaggedVersion": "golden"}`); status != 200 || !strings.Contains(said, "EvalID") {
		t.Errorf("%d %s", status, said)
	}
	now, _, err := c.Jobs().Info("web", nil)
	if err != nil || *now.Version != 3 || *now.TaskGroups[0].Count != 2 || now.VersionTag != nil {
		t.Errorf("the job is %+v, %v", now, err)
	}
	tagged, _, err := c.Jobs().VersionByTag("web", "golden", nil)
	if err != nil || *tagged.Version != 1 {
		t.Errorf("the tag names %+v, %v", tagged, err)
	}
}
