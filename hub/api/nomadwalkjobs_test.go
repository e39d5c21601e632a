package api_test

import (
	"fmt"
	"slices"
	"strings"

	nomad "github.com/hashicorp/nomad/api"
	"github.com/hashicorp/nomad/api/contexts"
)

// registerHCL sends a job file through the parser to registration, as Nomad's CLI does.
func (c *devCluster) registerHCL(hcl string) *nomad.JobRegisterResponse {
	c.tb.Helper()
	job, err := c.Jobs().ParseHCL(hcl, true)
	c.mustSucceed(err)
	res, _, err := c.Jobs().RegisterOpts(job, &nomad.RegisterOptions{Submission: &nomad.JobSubmission{
		Source: hcl, Format: "hcl2", VariableFlags: map[string]string{"a": "b"}, Variables: "c = 1",
	}}, nil)
	c.mustSucceed(err)
	return res
}

// allocsOfJob returns the allocations of a job, the newest first.
func (c *devCluster) allocsOfJob(job string) []*nomad.AllocationListStub {
	c.tb.Helper()
	list, _, err := c.Jobs().Allocations(job, false, nil)
	c.mustSucceed(err)
	return list
}

// untilDeployment waits until the newest deployment of a job is as wanted.
func (c *devCluster) untilDeployment(job string, wanted func(d *nomad.Deployment) bool) *nomad.Deployment {
	c.tb.Helper()
	var d *nomad.Deployment
	c.waitUntil("the deployment of "+job, func() string {
		var err error
		if d, _, err = c.Jobs().LatestDeployment(job, nil); err != nil || d == nil || !wanted(d) {
			return fmt.Sprintf("%s, %v", c.getRawPath("/v1/job/"+job+"/deployments"), err)
		}
		return ""
	})
	return d
}

func successful(d *nomad.Deployment) bool { return d.Status == "successful" }

func missingOf(have, want int, err error) string {
	if err != nil {
		return err.Error()
	}
	if have == want {
		return ""
	}
	return fmt.Sprintf("%d of %d", have, want)
}

// rollOut registers the shop, plans and rolls out another version with a canary, reverts.
func (c *devCluster) rollOut() {
	c.tb.Helper()
	shop := strings.ReplaceAll(shopJob, "HUBPORT", c.port) // that is where something listens
	job, err := c.Jobs().ParseHCL(shop, true)
	c.mustSucceed(err)
	_, _, err = c.Jobs().Validate(job, nil)
	c.mustSucceed(err)
	c.registerHCL(shop)
	c.untilDeployment("shop", successful)
	next := strings.NewReplacer(`VERSION = "1"`, `VERSION = "2"`, `tags         = ["a"]`, `tags         = ["b"]`, "size = 200", "size = 210", `name     = "up"`, `name     = "is up"`).Replace(shop)
	job, err = c.Jobs().ParseHCL(next, true)
	c.mustSucceed(err)
	_, _, err = c.Jobs().Plan(job, true, nil)
	c.mustSucceed(err)
	c.registerHCL(next)
	d := c.untilDeployment("shop", func(d *nomad.Deployment) bool {
		s := d.TaskGroups["till"]
		return d.JobVersion == 1 && s != nil && s.HealthyAllocs > 0 && len(s.PlacedCanaries) > 0
	})
	c.getRawPath("/v1/jobs/statuses") // only a running deployment requires promotion
	_, _, err = c.Deployments().Pause(d.ID, true, nil)
	c.mustSucceed(err)
	_, _, err = c.Deployments().Pause(d.ID, false, nil)
	c.mustSucceed(err)
	_, _, err = c.Deployments().PromoteAll(d.ID, nil)
	c.mustSucceed(err)
	c.untilDeployment("shop", successful)
	_, _, err = c.Deployments().List(nil)
	c.mustSucceed(err)
	_, _, err = c.Deployments().Info(d.ID, nil)
	c.mustSucceed(err)
	_, _, err = c.Deployments().Allocations(d.ID, nil)
	c.mustSucceed(err)
	_, _, err = c.Jobs().Deployments("shop", true, nil)
	c.mustSucceed(err)
	_, _, err = c.Jobs().Revert("shop", 0, nil, nil, "", "")
	c.mustSucceed(err)
	d = c.untilDeployment("shop", func(d *nomad.Deployment) bool {
		return d.JobVersion == 2 && len(d.TaskGroups["till"].PlacedCanaries) > 0
	})
	_, _, err = c.Deployments().SetAllocHealth(d.ID, nil, d.TaskGroups["till"].PlacedCanaries, nil)
	c.mustSucceed(err)
	c.untilDeployment("shop", func(d *nomad.Deployment) bool { return d.Status == "failed" })
	c.registerHCL(strings.Replace(shop, `VERSION = "1"`, `VERSION = "3"`, 1))
	d = c.untilDeployment("shop", func(d *nomad.Deployment) bool { return d.Status == "running" })
	_, _, err = c.Deployments().Fail(d.ID, nil)
	c.mustSucceed(err)
	c.lookAtJob()
}

func (c *devCluster) lookAtJob() {
	c.tb.Helper()
	c.registerHCL(idleJob)
	_, _, err := c.Jobs().Info("idle", nil)
	c.mustSucceed(err)
	_, _, err = c.Jobs().Stable("shop", 0, true, nil)
	c.mustSucceed(err)
	_, err = c.Jobs().TagVersion("shop", 0, "first", "the first one", nil)
	c.mustSucceed(err)
	count := 2
	_, _, err = c.Jobs().Scale("shop", "till", &count, "two", false, map[string]any{"why": "test"}, nil)
	c.mustSucceed(err)
	_, _, err = c.Jobs().Scale("shop", "till", nil, "no", true, map[string]any{"why": "test"}, nil)
	c.mustSucceed(err)
	_, _, err = c.Jobs().ScaleStatus("shop", nil)
	c.mustSucceed(err)
	policies, _, err := c.Scaling().ListPolicies(nil)
	c.mustSucceed(err)
	_, _, err = c.Scaling().GetPolicy(policies[0].ID, nil)
	c.mustSucceed(err)
	_, _, err = c.Jobs().ForceEvaluate("shop", nil)
	c.mustSucceed(err)
	_, _, err = c.Jobs().Info("shop", nil)
	c.mustSucceed(err)
	_, _, _, err = c.Jobs().Versions("shop", true, nil)
	c.mustSucceed(err)
	_, err = c.Jobs().UntagVersion("shop", "first", nil)
	c.mustSucceed(err)
	_, _, err = c.Jobs().Summary("shop", nil)
	c.mustSucceed(err)
	_, _, err = c.Jobs().Submission("shop", 0, nil)
	c.mustSucceed(err)
	_, _, err = c.Jobs().ListOptions(&nomad.JobListOptions{Fields: &nomad.JobListFields{Meta: true}}, nil)
	c.mustSucceed(err)
	c.getRawPath("/v1/job/shop/actions")
	c.getRawPath("/v1/jobs/statuses?include_children=true")
	c.putRawPath("/v1/jobs/statuses", map[string]any{})
	c.waitUntil("a service of the shop", func() string {
		found, _, err := c.Services().Get("till", nil)
		if err == nil && len(found) == 0 {
			return "none"
		}
		return missingOf(0, 0, err)
	})
	_, _, err = c.Services().List(nil)
	c.mustSucceed(err)
	_, _, err = c.Jobs().Services("shop", nil)
	c.mustSucceed(err)
	_, _, err = c.Search().PrefixSearch("sh", contexts.All, nil)
	c.mustSucceed(err)
	_, _, err = c.Search().FuzzySearch("ill", contexts.All, nil)
	c.mustSucceed(err)
}

// failAndBlock has a batch job fail and be rescheduled, and a job that does not fit.
func (c *devCluster) failAndBlock() {
	c.tb.Helper()
	c.registerHCL(`job "fails" {
  type = "batch"
  group "g" {
    restart {
      attempts         = 1
      delay            = "1s"
      mode             = "fail"
      render_templates = true
    }
    reschedule {
      attempts       = 2
      interval       = "1h"
      delay          = "5s"
      delay_function = "exponential"
      max_delay      = "10s"
      unlimited      = false
    }
    task "t" {
      driver = "raw_exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "kill -9 $$"]
      }
    }
  }
}`)
	c.registerHCL(`job "everywhere" {
  type = "system"
  group "g" {
    network {
      port "admin" { static = 17171 }
    }
    task "t" {
      driver = "raw_exec"
      config {
        command = "/bin/sleep"
        args    = ["86400"]
      }
      resources { cores = 1 }
    }
  }
}`)
	c.registerHCL(`job "full" {
  group "g" {
    count = 3
    constraint {
      attribute = "${attr.kernel.name}"
      operator  = "!="
      value     = "plan9"
    }
    task "t" {
      driver = "raw_exec"
      config { command = "/bin/true" }
      resources { cpu = 5000 }
    }
  }
}`)
	c.registerHCL(`job "nowhere" {
  group "g" {
    constraint {
      attribute = "${node.unique.name}"
      value     = "boat"
    }
    task "t" {
      driver = "raw_exec"
      config { command = "/bin/true" }
    }
  }
}`)
	c.waitUntil("the failed one waits to be rescheduled", func() string {
		for _, a := range c.allocsOfJob("fails") {
			if a.FollowupEvalID != "" {
				c.getRawPath("/v1/jobs/statuses")
				return ""
			}
		}
		return "not yet"
	})
	c.waitUntil("the failed one is rescheduled", func() string {
		for _, a := range c.allocsOfJob("fails") {
			if a.RescheduleTracker != nil && len(a.RescheduleTracker.Events) > 0 {
				return ""
			}
		}
		return "not yet"
	})
	evals, _, err := c.Evaluations().List(&nomad.QueryOptions{Namespace: "*"})
	c.mustSucceed(err)
	for _, e := range evals {
		_, _, err := c.Evaluations().Info(e.ID, nil)
		c.mustSucceed(err)
		_, _, err = c.Evaluations().Allocations(e.ID, nil)
		c.mustSucceed(err)
	}
	big := nomad.NewServiceJob("big", "big", "global", 50).AddTaskGroup(nomad.NewTaskGroup("g", 1).AddTask(
		nomad.NewTask("t", "raw_exec").SetConfig("command", "/bin/true").Require(&nomad.Resources{CPU: ptr(7800), MemoryMB: ptr(7800), IOPS: ptr(5)})))
	_, _, err = c.Jobs().Validate(big, nil)
	c.mustSucceed(err)
	_, _, err = c.Jobs().Plan(big, true, nil)
	c.mustSucceed(err)
	_, _, err = c.Jobs().Register(big, nil)
	c.mustSucceed(err)
	big.TaskGroups[0].Tasks[0].Driver = "" // the answer names what is wrong
	_, _, err = c.Jobs().Validate(big, nil)
	c.mustSucceed(err)
	_, _, err = c.Evaluations().Count(nil)
	c.mustSucceed(err)
	everywhere, _, err := c.Jobs().Info("everywhere", nil)
	c.mustSucceed(err)
	everywhere.Priority = ptr(55)
	_, _, err = c.Jobs().Plan(everywhere, true, nil)
	c.mustSucceed(err)
	for _, job := range []string{"fails", "full", "nowhere", "everywhere"} {
		_, _, err = c.Jobs().Evaluations(job, nil)
		c.mustSucceed(err)
		job, _, err := c.Jobs().Info(job, nil)
		c.mustSucceed(err)
		_, _, err = c.Jobs().Plan(job, true, nil)
		c.mustSucceed(err)
	}
}

// launchChildren dispatches a job and forces a periodic one.
func (c *devCluster) launchChildren() {
	c.tb.Helper()
	c.registerHCL(`job "print" {
  type = "batch"
  parameterized {
    payload       = "optional"
    meta_required = ["who"]
    meta_optional = ["why"]
  }
  group "g" {
    task "t" {
      driver = "raw_exec"
      dispatch_payload { file = "in.txt" }
      config { command = "/bin/true" }
    }
  }
}`)
	child, _, err := c.Jobs().DispatchOpts(&nomad.DispatchOptions{JobID: "print", Meta: map[string]string{"who": "me"}, Payload: []byte("hi"), IdPrefixTemplate: "pre"},
		&nomad.WriteOptions{IdempotencyToken: "once"})
	c.mustSucceed(err)
	_, _, err = c.Jobs().Info(child.DispatchedJobID, nil)
	c.mustSucceed(err)
	nightly := `job "nightly" {
  type = "batch"
  periodic {
    crons            = ["0 3 * * *"]
    prohibit_overlap = true
    time_zone        = "Europe/Berlin"
  }
  group "g" {
    max_run_duration = "1h"
    task "t" {
      driver = "raw_exec"
      config { command = "/bin/true" }
    }
  }
}`
	c.registerHCL(nightly)
	c.registerHCL(strings.NewReplacer(`"nightly"`, `"weekly"`, `crons            = ["0 3 * * *"]`, `cron = "0 4 * * 0"`).Replace(nightly))
	_, _, err = c.Jobs().Info("weekly", nil)
	c.mustSucceed(err)
	_, _, err = c.Jobs().PeriodicForce("nightly", nil)
	c.mustSucceed(err)
	for _, id := range []string{"nightly", "print"} {
		_, _, err = c.Jobs().Summary(id, nil)
		c.mustSucceed(err)
		job, _, err := c.Jobs().Info(id, nil)
		c.mustSucceed(err)
		_, _, err = c.Jobs().Plan(job, false, nil)
		c.mustSucceed(err)
	}
	_, _, err = c.Jobs().List(nil)
	c.mustSucceed(err)
	c.getRawPath("/v1/jobs/statuses?include_children=true")
}

// removeEndedAllocs has an edge remove the folders of allocations that have ended.
func (c *devCluster) removeEndedAllocs() {
	c.tb.Helper()
	var ended []*nomad.AllocationListStub
	c.waitUntil("two allocations have ended", func() string {
		list, _, err := c.Allocations().List(nil)
		ended = slices.DeleteFunc(list, func(a *nomad.AllocationListStub) bool {
			return a.ClientStatus != "failed" && a.ClientStatus != "complete"
		})
		return missingOf(min(len(ended), 2), 2, err)
	})
	c.mustSucceed(c.Nodes().GcAlloc(ended[0].ID, nil))
	c.mustReturn(c.Raw().Write("/v1/client/allocation/"+ended[1].ID+"/gc", nil, nil, nil))
	c.mustSucceed(c.Nodes().GC(string(c.nodes[0]), nil))
	c.mustReturn(c.Raw().Write("/v1/client/gc?node_id="+string(c.nodes[0]), nil, nil, nil))
}
