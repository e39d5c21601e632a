package api_test

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	nomad "github.com/hashicorp/nomad/api"
	"github.com/hashicorp/nomad/api/contexts"
)

// shopJob is a job that asks for all that this release acts on.
const shopJob = `
job "shop" {
  datacenters = ["dc1"]
  node_pool   = "default"
  type        = "service"
  priority    = 60
  all_at_once = true
  meta { team = "tills" }
  ui {
    description = "the shop"
    link {
      label = "plan"
      url   = "https://example.com"
    }
  }
  constraint {
    attribute = "${attr.kernel.name}"
    value     = "linux"
  }
  affinity {
    attribute = "${node.class}"
    value     = "till"
    weight    = 20
  }
  spread {
    attribute = "${node.datacenter}"
    weight    = 30
    target "dc1" { percent = 100 }
  }
  update {
    max_parallel      = 1
    canary            = 1
    min_healthy_time  = "10ms"
    healthy_deadline  = "1m"
    progress_deadline = "2m"
    auto_revert       = true
    auto_promote      = false
  }
  group "till" {
    count = 2
    meta { kind = "till" }
    shutdown_delay = "10ms"
    network {
      port "http" { to = 8080 }
      port "metrics" { host_network = "lan" }
    }
    service {
      name         = "till"
      port         = "http"
      provider     = "nomad"
      tags         = ["a"]
      canary_tags  = ["c"]
      meta         { k = "v" }
      canary_meta  { k = "c" }
      check {
        name     = "up"
        type     = "tcp"
        port     = "HUBPORT"
        interval = "1s"
        timeout  = "1s"
      }
      check {
        name     = "answers"
        type     = "http"
        path     = "/v1/status/leader"
        port     = "HUBPORT"
        interval = "1s"
        timeout  = "1s"
      }
    }
    restart {
      attempts = 1
      delay    = "1s"
    }
    disconnect {
      lost_after = "1h"
      replace    = false
    }
    ephemeral_disk { size = 200 }
    scaling {
      min     = 1
      max     = 5
      policy { cooldown = "1m" }
    }
    task "main" {
      driver = "raw_exec"
      leader = true
      config {
        command = "/bin/sh"
        args    = ["-c", "echo hello from $NOMAD_ALLOC_NAME; echo wrong >&2; exec sleep 86400"]
      }
      env { VERSION = "1" }
      service {
        name     = "inner"
        provider = "nomad"
        port     = "HUBPORT"
        check {
          type     = "tcp"
          interval = "1s"
          timeout  = "1s"
        }
      }
      meta { m = "1" }
      kill_timeout   = "2s"
      kill_signal    = "SIGINT"
      shutdown_delay = "10ms"
      logs {
        max_files     = 3
        max_file_size = 2
      }
      resources {
        cpu        = 100
        memory     = 64
        memory_max = 128
      }
      action "greet" {
        command = "/bin/echo"
        args    = ["hi"]
      }
    }
    task "prepare" {
      driver = "raw_exec"
      lifecycle { hook = "prestart" }
      config { command = "/bin/true" }
      resources {
        cpu    = 50
        memory = 32
      }
    }
  }
}`

// idleJob asks for the rest of what this release acts on, and places nothing.
const idleJob = `
job "idle" {
  update {
    canary       = 1
    auto_promote = true
  }
  group "g" {
    count = 0
    affinity {
      attribute = "${node.class}"
      value     = "till"
    }
    spread {
      attribute = "${node.datacenter}"
    }
    network {
      port "http" {
        static           = 17172
        ignore_collision = true
      }
    }
    disconnect {
      stop_on_client_after = "1h"
      replace              = true
      reconcile            = "best_score"
    }
    service {
      name     = "idle"
      provider = "nomad"
      port     = "http"
      address  = "192.0.2.1"
      task     = "main"
      check {
        type            = "http"
        name            = "up"
        path            = "/up"
        method          = "POST"
        protocol        = "https"
        body            = "hello"
        tls_server_name = "example.com"
        tls_skip_verify = true
        address_mode    = "host"
        notes           = "for people"
        interval        = "1s"
        timeout         = "1s"
        task            = "main"
        header { X-A = ["b"] }
        check_restart {
          limit = 3
          grace = "5s"
        }
      }
      check_restart { limit = 2 }
    }
    task "main" {
      driver = "raw_exec"
      config { command = "/bin/true" }
      constraint {
        attribute = "${attr.kernel.name}"
        value     = "linux"
      }
      affinity {
        attribute = "${node.class}"
        value     = "till"
      }
      service {
        name     = "inner"
        provider = "nomad"
        port     = "http"
      }
      scaling "cpu" {
        min = 10
        max = 20
        policy { a = "b" }
      }
      resources {
        device "gpu" {
          count = 1
          constraint {
            attribute = "${device.vendor}"
            value     = "v"
          }
          affinity {
            attribute = "${device.vendor}"
            value     = "v"
          }
        }
      }
    }
    task "side" {
      driver = "raw_exec"
      lifecycle {
        hook    = "prestart"
        sidecar = true
      }
      config { command = "/bin/true" }
    }
  }
}`

// register sends a job file through the parser to registration, as Nomad's CLI does.
func (c *devCluster) register(hcl string) *nomad.JobRegisterResponse {
	c.tb.Helper()
	job, err := c.Jobs().ParseHCL(hcl, true)
	c.must(err)
	res, _, err := c.Jobs().RegisterOpts(job, &nomad.RegisterOptions{Submission: &nomad.JobSubmission{
		Source: hcl, Format: "hcl2", VariableFlags: map[string]string{"a": "b"}, Variables: "c = 1",
	}}, nil)
	c.must(err)
	return res
}

// allocs returns the allocations of a job, the newest first.
func (c *devCluster) allocs(job string) []*nomad.AllocationListStub {
	c.tb.Helper()
	list, _, err := c.Jobs().Allocations(job, false, nil)
	c.must(err)
	return list
}

// untilDeployment waits until the newest deployment of a job is as wanted.
func (c *devCluster) untilDeployment(job string, wanted func(d *nomad.Deployment) bool) *nomad.Deployment {
	c.tb.Helper()
	var d *nomad.Deployment
	c.until("the deployment of "+job, func() string {
		var err error
		if d, _, err = c.Jobs().LatestDeployment(job, nil); err != nil || d == nil || !wanted(d) {
			return fmt.Sprintf("%s, %v", c.get("/v1/job/"+job+"/deployments"), err)
		}
		return ""
	})
	return d
}

func successful(d *nomad.Deployment) bool { return d.Status == "successful" }

// TestNomadKeys lives through what operators do, with Nomad's published Go client against
// a hub and two edges, and compares every answer with the types that the client has for it.
// Each key is filled by some answer, or testdata/nomadkeys.txt says why not.
func TestNomadKeys(t *testing.T) {
	c := mustDevCluster(t)
	c.until("two nodes are ready", func() string {
		ready := 0
		nodes, _, err := c.Nodes().List(nil)
		for _, n := range nodes {
			if n.Status == "ready" {
				ready++
			}
		}
		return missingOf(ready, 2, err)
	})
	c.schedule(func(conf *nomad.SchedulerConfiguration) { conf.MemoryOversubscriptionEnabled = true })
	c.rollOut()
	c.failAndBlock()
	c.launchChildren()
	c.lookAtAllocs()
	c.lookAtNodes()
	c.arrange()
	c.hear()
	c.end()
	w := keyWalk{keys: map[string]fill{}, where: map[string]map[string]fill{}}
	w.answers(t, c.said.successful())
	t.Log(w.String())
	w.check(t, mustReasons(t))
}

// TestEveryEndpointIsWalked finds the endpoints in the sources of this package.
func TestEveryEndpointIsWalked(t *testing.T) {
	for name, text := range mustReadFiles(t, "*.go") {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		for _, route := range routed.FindAllStringSubmatch(text, -1) {
			endpoint := strings.Replace(route[1], `put("`, "PUT ", 1)
			if answered[endpoint] == nil && unwalked[endpoint] == "" {
				t.Errorf("%s: %s: it is not said what Nomad's client reads", name, endpoint)
			}
		}
	}
}

var routed = regexp.MustCompile(`((?:put\("|GET |DELETE )/v1/[^"]*)"`)

func ptr[T any](v T) *T { return &v }

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
	c.must(err)
	_, _, err = c.Jobs().Validate(job, nil)
	c.must(err)
	c.register(shop)
	c.untilDeployment("shop", successful)
	next := strings.NewReplacer(`VERSION = "1"`, `VERSION = "2"`, `tags         = ["a"]`, `tags         = ["b"]`, "size = 200", "size = 210", `name     = "up"`, `name     = "is up"`).Replace(shop)
	job, err = c.Jobs().ParseHCL(next, true)
	c.must(err)
	_, _, err = c.Jobs().Plan(job, true, nil)
	c.must(err)
	c.register(next)
	d := c.untilDeployment("shop", func(d *nomad.Deployment) bool {
		s := d.TaskGroups["till"]
		return d.JobVersion == 1 && s != nil && s.HealthyAllocs > 0 && len(s.PlacedCanaries) > 0
	})
	_, _, err = c.Deployments().Pause(d.ID, true, nil)
	c.must(err)
	_, _, err = c.Deployments().Pause(d.ID, false, nil)
	c.must(err)
	_, _, err = c.Deployments().PromoteAll(d.ID, nil)
	c.must(err)
	c.untilDeployment("shop", successful)
	_, _, err = c.Deployments().List(nil)
	c.must(err)
	_, _, err = c.Deployments().Info(d.ID, nil)
	c.must(err)
	_, _, err = c.Deployments().Allocations(d.ID, nil)
	c.must(err)
	_, _, err = c.Jobs().Deployments("shop", true, nil)
	c.must(err)
	_, _, err = c.Jobs().Revert("shop", 0, nil, nil, "", "")
	c.must(err)
	d = c.untilDeployment("shop", func(d *nomad.Deployment) bool {
		return d.JobVersion == 2 && len(d.TaskGroups["till"].PlacedCanaries) > 0
	})
	_, _, err = c.Deployments().SetAllocHealth(d.ID, nil, d.TaskGroups["till"].PlacedCanaries, nil)
	c.must(err)
	c.untilDeployment("shop", func(d *nomad.Deployment) bool { return d.Status == "failed" })
	c.register(strings.Replace(shop, `VERSION = "1"`, `VERSION = "3"`, 1))
	d = c.untilDeployment("shop", func(d *nomad.Deployment) bool { return d.Status == "running" })
	_, _, err = c.Deployments().Fail(d.ID, nil)
	c.must(err)
	c.lookAtJob()
}

func (c *devCluster) lookAtJob() {
	c.tb.Helper()
	c.register(idleJob)
	_, _, err := c.Jobs().Info("idle", nil)
	c.must(err)
	_, _, err = c.Jobs().Stable("shop", 0, true, nil)
	c.must(err)
	_, err = c.Jobs().TagVersion("shop", 0, "first", "the first one", nil)
	c.must(err)
	count := 2
	_, _, err = c.Jobs().Scale("shop", "till", &count, "two", false, map[string]any{"why": "test"}, nil)
	c.must(err)
	_, _, err = c.Jobs().Scale("shop", "till", nil, "no", true, map[string]any{"why": "test"}, nil)
	c.must(err)
	_, _, err = c.Jobs().ScaleStatus("shop", nil)
	c.must(err)
	policies, _, err := c.Scaling().ListPolicies(nil)
	c.must(err)
	_, _, err = c.Scaling().GetPolicy(policies[0].ID, nil)
	c.must(err)
	_, _, err = c.Jobs().ForceEvaluate("shop", nil)
	c.must(err)
	_, _, err = c.Jobs().Info("shop", nil)
	c.must(err)
	_, _, _, err = c.Jobs().Versions("shop", true, nil)
	c.must(err)
	_, err = c.Jobs().UntagVersion("shop", "first", nil)
	c.must(err)
	_, _, err = c.Jobs().Summary("shop", nil)
	c.must(err)
	_, _, err = c.Jobs().Submission("shop", 0, nil)
	c.must(err)
	_, _, err = c.Jobs().ListOptions(&nomad.JobListOptions{Fields: &nomad.JobListFields{Meta: true}}, nil)
	c.must(err)
	c.get("/v1/job/shop/actions")
	c.get("/v1/jobs/statuses?include_children=true")
	c.put("/v1/jobs/statuses", map[string]any{})
	c.until("a service of the shop", func() string {
		found, _, err := c.Services().Get("till", nil)
		if err == nil && len(found) == 0 {
			return "none"
		}
		return missingOf(0, 0, err)
	})
	_, _, err = c.Services().List(nil)
	c.must(err)
	_, _, err = c.Jobs().Services("shop", nil)
	c.must(err)
	_, _, err = c.Search().PrefixSearch("sh", contexts.All, nil)
	c.must(err)
	_, _, err = c.Search().FuzzySearch("ill", contexts.All, nil)
	c.must(err)
}

// failAndBlock has a batch job fail and be rescheduled, and a job that does not fit.
func (c *devCluster) failAndBlock() {
	c.tb.Helper()
	c.register(`job "fails" {
  type = "batch"
  group "g" {
    restart {
      attempts = 1
      delay    = "1s"
      mode     = "fail"
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
	c.register(`job "everywhere" {
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
	c.register(`job "full" {
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
	c.register(`job "nowhere" {
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
	c.until("the failed one waits to be rescheduled", func() string {
		for _, a := range c.allocs("fails") {
			if a.FollowupEvalID != "" {
				c.get("/v1/jobs/statuses")
				return ""
			}
		}
		return "not yet"
	})
	c.until("the failed one is rescheduled", func() string {
		for _, a := range c.allocs("fails") {
			if a.RescheduleTracker != nil && len(a.RescheduleTracker.Events) > 0 {
				return ""
			}
		}
		return "not yet"
	})
	evals, _, err := c.Evaluations().List(&nomad.QueryOptions{Namespace: "*"})
	c.must(err)
	for _, e := range evals {
		_, _, err := c.Evaluations().Info(e.ID, nil)
		c.must(err)
		_, _, err = c.Evaluations().Allocations(e.ID, nil)
		c.must(err)
	}
	big := nomad.NewServiceJob("big", "big", "global", 50).AddTaskGroup(nomad.NewTaskGroup("g", 1).AddTask(
		nomad.NewTask("t", "raw_exec").SetConfig("command", "/bin/true").Require(&nomad.Resources{CPU: ptr(7800), MemoryMB: ptr(7800), IOPS: ptr(5)})))
	_, _, err = c.Jobs().Validate(big, nil)
	c.must(err)
	_, _, err = c.Jobs().Plan(big, true, nil)
	c.must(err)
	_, _, err = c.Jobs().Register(big, nil)
	c.must(err)
	big.TaskGroups[0].Tasks[0].Driver = "none"
	_, _, err = c.Jobs().Validate(big, nil)
	c.must(err)
	_, _, err = c.Evaluations().Count(nil)
	c.must(err)
	everywhere, _, err := c.Jobs().Info("everywhere", nil)
	c.must(err)
	everywhere.Priority = ptr(55)
	_, _, err = c.Jobs().Plan(everywhere, true, nil)
	c.must(err)
	for _, job := range []string{"fails", "full", "nowhere", "everywhere"} {
		_, _, err = c.Jobs().Evaluations(job, nil)
		c.must(err)
		job, _, err := c.Jobs().Info(job, nil)
		c.must(err)
		_, _, err = c.Jobs().Plan(job, true, nil)
		c.must(err)
	}
}

// launchChildren dispatches a job and forces a periodic one.
func (c *devCluster) launchChildren() {
	c.tb.Helper()
	c.register(`job "print" {
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
	c.must(err)
	_, _, err = c.Jobs().Info(child.DispatchedJobID, nil)
	c.must(err)
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
	c.register(nightly)
	c.register(strings.NewReplacer(`"nightly"`, `"weekly"`, `crons            = ["0 3 * * *"]`, `cron = "0 4 * * 0"`).Replace(nightly))
	_, _, err = c.Jobs().Info("weekly", nil)
	c.must(err)
	_, _, err = c.Jobs().PeriodicForce("nightly", nil)
	c.must(err)
	for _, id := range []string{"nightly", "print"} {
		_, _, err = c.Jobs().Summary(id, nil)
		c.must(err)
		job, _, err := c.Jobs().Info(id, nil)
		c.must(err)
		_, _, err = c.Jobs().Plan(job, false, nil)
		c.must(err)
	}
	_, _, err = c.Jobs().List(nil)
	c.must(err)
	c.get("/v1/jobs/statuses?include_children=true")
}

// running returns an allocation of a job that runs.
func (c *devCluster) running(job string) *nomad.Allocation {
	c.tb.Helper()
	var found *nomad.Allocation
	c.until("an allocation of "+job+" runs", func() string {
		for _, a := range c.allocs(job) {
			if a.ClientStatus == "running" && a.DesiredStatus == "run" {
				full, _, err := c.Allocations().Info(a.ID, nil)
				found = full
				return missingOf(0, 0, err)
			}
		}
		return "none"
	})
	return found
}

func (c *devCluster) lookAtAllocs() {
	c.tb.Helper()
	al := c.running("shop")
	_, _, err := c.Allocations().List(&nomad.QueryOptions{Params: map[string]string{"resources": "true"}})
	c.must(err)
	_, err = c.Allocations().Stats(al, nil)
	c.must(err)
	c.until("a check is done", func() string {
		checks, err := c.Allocations().Checks(al.ID, nil)
		if err == nil && len(checks) == 0 {
			return "none"
		}
		return missingOf(0, 0, err)
	})
	_, _, err = c.Allocations().Services(al.ID, nil)
	c.must(err)
	_, _, err = c.AllocFS().List(al, "alloc/logs", nil)
	c.must(err)
	_, _, err = c.AllocFS().Stat(al, "alloc/logs/main.stdout.0", nil)
	c.must(err)
	c.logs(al)
	c.must(c.Allocations().Signal(al, nil, "main", "SIGCONT"))
	c.must(c.Allocations().Restart(al, "main", nil))
	_, err = c.Allocations().Stop(al, &nomad.QueryOptions{Params: map[string]string{"reschedule": "true", "no_shutdown_delay": "true"}})
	c.must(err)
	c.untilReplaced(al.ID)
	list, _, err := c.AllocFS().List(al, "/", nil)
	if err != nil || len(list) == 0 || !list[0].IsDir {
		c.tb.Fatalf("%+v, %v", list, err)
	}
	for _, job := range []string{"shop", "fails", "full", "everywhere"} {
		for _, a := range c.allocs(job) {
			_, _, err = c.Allocations().Info(a.ID, nil)
			c.must(err)
		}
	}
}

func (c *devCluster) untilReplaced(id string) {
	c.tb.Helper()
	c.until("the stopped allocation is replaced", func() string {
		a, _, err := c.Allocations().Info(id, nil)
		if err == nil && a.NextAllocation == "" {
			return "no next allocation"
		}
		return missingOf(0, 0, err)
	})
}

// logs reads frames of a task's output, and of a file as a stream.
func (c *devCluster) logs(al *nomad.Allocation) {
	c.tb.Helper()
	ctx, cancel := context.WithTimeout(c.tb.Context(), patience)
	defer cancel()
	q := (&nomad.QueryOptions{}).WithContext(ctx)
	frames, errs := c.AllocFS().Logs(al, false, "main", "stdout", "start", 2, ctx.Done(), q)
	c.drain(frames, errs)
	frames, errs = c.AllocFS().Stream(al, "alloc/logs/main.stdout.0", "start", 2, ctx.Done(), q)
	select {
	case <-frames:
	case err := <-errs:
		c.must(err)
	}
}

func (c *devCluster) drain(frames <-chan *nomad.StreamFrame, errs <-chan error) {
	c.tb.Helper()
	for {
		select {
		case _, ok := <-frames:
			if !ok {
				return
			}
		case err := <-errs:
			if err != nil && err != io.EOF {
				c.tb.Fatal(err)
			}
			return
		}
	}
}

func (c *devCluster) lookAtNodes() {
	c.tb.Helper()
	id := string(c.nodes[0])
	_, err := c.Nodes().ToggleEligibility(id, false, nil)
	c.must(err)
	_, err = c.Nodes().ToggleEligibility(id, true, nil)
	c.must(err)
	_, _, err = c.Nodes().ForceEvaluate(id, nil)
	c.must(err)
	_, err = c.Nodes().Stats(id, nil)
	c.must(err)
	_, _, err = c.Nodes().Allocations(id, nil)
	c.must(err)
	_, err = c.Nodes().UpdateDrainOpts(id, &nomad.DrainOptions{
		DrainSpec: &nomad.DrainSpec{Deadline: time.Hour, IgnoreSystemJobs: true}, MarkEligible: false, Meta: map[string]string{"message": "test"},
	}, nil)
	c.must(err)
	_, _, err = c.Nodes().Info(id, nil)
	c.must(err)
	_, _, err = c.Nodes().List(&nomad.QueryOptions{Params: map[string]string{"resources": "true", "os": "true"}})
	c.must(err)
	_, err = c.Nodes().UpdateDrainOpts(id, &nomad.DrainOptions{MarkEligible: true, Meta: map[string]string{"message": "over"}}, nil)
	c.must(err)
	_, _, err = c.NodePools().ListNodes("default", nil)
	c.must(err)
	_, _, err = c.NodePools().ListJobs("default", nil)
	c.must(err)
}

func (c *devCluster) arrange() {
	c.tb.Helper()
	c.must2(c.Namespaces().Register(&nomad.Namespace{
		Name: "ships", Description: "at sea", Meta: map[string]string{"a": "b"},
		Capabilities: &nomad.NamespaceCapabilities{EnabledTaskDrivers: []string{"raw_exec"}, DisabledTaskDrivers: []string{"docker"}},
	}, nil))
	_, _, err := c.Namespaces().List(nil)
	c.must(err)
	_, _, err = c.Namespaces().Info("ships", nil)
	c.must(err)
	c.must2(c.Namespaces().Delete("ships", nil))
	c.must2(c.NodePools().Register(&nomad.NodePool{
		Name: "farms", Description: "windy", Meta: map[string]string{"a": "b"},
		SchedulerConfiguration: &nomad.NodePoolSchedulerConfiguration{SchedulerAlgorithm: "spread", MemoryOversubscriptionEnabled: ptr(true)},
	}, nil))
	_, _, err = c.NodePools().List(nil)
	c.must(err)
	_, _, err = c.NodePools().Info("farms", nil)
	c.must(err)
	c.must2(c.NodePools().Delete("farms", nil))
	all := func(on bool) {
		c.schedule(func(conf *nomad.SchedulerConfiguration) {
			conf.RejectJobRegistration = on
			conf.PreemptionConfig.BatchSchedulerEnabled, conf.PreemptionConfig.ServiceSchedulerEnabled, conf.PreemptionConfig.SysBatchSchedulerEnabled = on, on, on
		})
	}
	all(true)
	all(false)
	_, err = c.Operator().RaftGetConfiguration(nil)
	c.must(err)
	_, _, err = c.Operator().AutopilotServerHealth(nil)
	c.must(err)
	_, err = c.Agent().Self()
	c.must(err)
	_, err = c.Agent().Members()
	c.must(err)
	_, err = c.Agent().Health()
	c.must(err)
	_, err = c.Agent().Servers()
	c.must(err)
	_, err = c.Agent().Host("", "", nil)
	c.must(err)
	_, _, err = c.Operator().AutopilotGetConfiguration(nil)
	c.must(err)
	_, _, err = c.Operator().MetricsSummary(nil)
	c.must(err)
	c.put("/v1/node/pool/farms", map[string]any{"Description": "by its path"})
	c.must2(c.NodePools().Delete("farms", nil))
	_, err = c.Regions().List()
	c.must(err)
	_, err = c.Status().Leader()
	c.must(err)
	_, err = c.Status().Peers()
	c.must(err)
}

// schedule changes the scheduler's configuration, and reads it back.
func (c *devCluster) schedule(change func(*nomad.SchedulerConfiguration)) {
	c.tb.Helper()
	read, _, err := c.Operator().SchedulerGetConfiguration(nil)
	c.must(err)
	change(read.SchedulerConfig)
	_, _, err = c.Operator().SchedulerSetConfiguration(read.SchedulerConfig, nil)
	c.must(err)
	_, _, err = c.Operator().SchedulerGetConfiguration(nil)
	c.must(err)
}

func (c *devCluster) must2(_ any, err error) {
	c.tb.Helper()
	c.must(err)
}

// hear reads all events so far, and a line of the hub's log.
func (c *devCluster) hear() {
	c.tb.Helper()
	ctx, cancel := context.WithTimeout(c.tb.Context(), patience)
	defer cancel()
	stream, err := c.EventStream().Stream(ctx, map[nomad.Topic][]string{"*": {"*"}}, 1, &nomad.QueryOptions{})
	c.must(err)
	wanted := []string{"NodePool", "Job", "Allocation", "Deployment", "Evaluation", "Node", "Service"}
	for batch := range stream {
		c.must(batch.Err)
		for _, e := range batch.Events {
			c.decodeEvent(e)
			wanted = slices.DeleteFunc(wanted, func(t string) bool { return t == string(e.Topic) })
		}
		if batch.Index > 0 && len(wanted) == 0 {
			return
		}
	}
	c.tb.Fatalf("no event of %v", wanted)
}

// decodeEvent reads an event's payload as Nomad's client does, which is stricter than JSON.
func (c *devCluster) decodeEvent(e nomad.Event) {
	c.tb.Helper()
	// The payload of a dispatched job is text in JSON, which Nomad's client does not read there.
	if _, err := e.Job(); err != nil && !strings.Contains(err.Error(), "'Job.Payload'") {
		c.tb.Errorf("event %s of %s: %v", e.Type, e.Topic, err)
	}
}

// end stops a job and purges it.
func (c *devCluster) end() {
	c.tb.Helper()
	_, _, err := c.Jobs().Deregister("shop", false, nil)
	c.must(err)
	_, _, err = c.Jobs().Info("shop", nil)
	c.must(err)
	_, _, err = c.Jobs().List(nil)
	c.must(err)
	_, _, err = c.Jobs().ScaleStatus("shop", nil)
	c.must(err)
	c.get("/v1/jobs/statuses")
	c.must(c.System().GarbageCollect())
	c.must(c.System().ReconcileSummaries())
}
