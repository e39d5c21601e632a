package real

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"skerry/chaos/schedule"
	"skerry/drivers/sim"
	"skerry/fleet"
	"skerry/fleet/validate"
)

// Rates and durations of the users' actions in a campaign.
const (
	workEvery     = 3 * time.Second
	dispatchEvery = 6 * time.Second
	promoteAfter  = 2 * time.Second // time from a version with canaries to its promotion
	drainEvery    = 20 * time.Second
	drainLasts    = 10 * time.Second
	drainDeadline = 4 * time.Second
	operations    = 3 * 60 // a minute
	launchEvery   = 10 * time.Second
	launchedRuns  = 2 * time.Second
	identityTTL   = time.Minute // of the identities of tasks: they are renewed in each phase
)

// errand is the parameterized job that users dispatch.
const errand = `job "errand" {
  type = "batch"
  parameterized {}
  group "main" {
    task "main" {
      driver = "sim"
      config { run_for = "2s" }
      resources {
        cpu    = 20
        memory = 16
      }
    }
  }
}`

// userJob is a job of a campaign with the changes that users make to it.
type userJob struct {
	schedule.Job
	changes []schedule.Verb // made in turn; empty: users do not change the job
}

// campaignJobs returns the jobs of a campaign: services with different disconnect rules, rollouts and
// counts, services that are stopped and started again, one with secrets, a system job, a periodic and a
// parameterized job.
func campaignJobs(edges int) []userJob {
	scaled, revised, guest := []schedule.Verb{schedule.Scale}, []schedule.Verb{schedule.Update}, []schedule.Verb{schedule.Stop, schedule.Run}
	lost := func(reconcile string) *fleet.Disconnect {
		soon, replace := 3*time.Second, true
		return &fleet.Disconnect{LostAfter: &soon, Replace: &replace, Reconcile: reconcile}
	}
	jobs := []userJob{
		{schedule.Job{ID: "keep", Count: edges}, scaled},
		{schedule.Job{ID: "replace", Count: edges, Disconnect: lost(fleet.ReconcileKeepOriginal)}, scaled},
		{schedule.Job{ID: "longest", Count: 2, Disconnect: lost(fleet.ReconcileLongestRunning)}, scaled},
		{schedule.Job{ID: "rolling", Count: 2}, revised},
		{schedule.Job{ID: "sealed", Count: 2, Secret: true, Identity: identityTTL}, []schedule.Verb{schedule.Store, schedule.Update}},
		{schedule.Job{ID: "guest-1", Count: 2}, guest},
		{schedule.Job{ID: "guest-2", Count: 1, Disconnect: lost(fleet.ReconcileKeepReplacement)}, guest},
		{schedule.Job{ID: "everywhere", Type: fleet.JobTypeSystem, Rollout: schedule.Rollout{MaxParallel: 3, MaxPerSite: 1}}, revised},
		{schedule.Job{ID: "canaries", Count: edges, Rollout: schedule.Rollout{MaxParallel: 2, Canary: 1}}, revised},
		{schedule.Job{ID: "sites", Count: edges, Rollout: schedule.Rollout{MaxParallel: edges, MaxPerSite: 1, AutoRevert: true}}, revised},
		{schedule.Job{ID: "nightly", Type: fleet.JobTypeBatch, Count: 1, Every: launchEvery, NoOverlap: true, Task: schedule.Script{RunFor: launchedRuns}}, nil},
	}
	for i := range jobs {
		j := &jobs[i].Job
		j.CPU, j.MemoryMB = 20, 16
		if j.Type == "" {
			j.Type = fleet.JobTypeService
		}
	}
	return append(jobs, userJob{Job: schedule.Job{ID: "errand", HCL: errand}})
}

// containerJobs is the number of a campaign's jobs that run in containers: starting one takes a second of a processor.
const containerJobs = 3

// drawDrivers gives some jobs the driver docker or podman: each of `containers` to one job, and then in turn.
func drawDrivers(seed uint64, jobs []userJob, containers []string) {
	if len(containers) == 0 {
		return
	}
	rng := rand.New(rand.NewPCG(seed, 0xc047))
	drawn := 0
	for _, i := range rng.Perm(len(jobs)) {
		if drawn < containerJobs && jobs[i].HCL == "" && !jobs[i].Secret {
			jobs[i].Driver = containers[drawn%len(containers)]
			drawn++
		}
	}
}

// addWork adds the campaign's jobs to a schedule, draws which of them run in containers, and draws the users' steps:
// a change about every `every`, promotions of canaries, and dispatches.
func addWork(plan *schedule.Schedule, every time.Duration, containers []string) {
	rng := rand.New(rand.NewPCG(plan.Seed, 0x0b5))
	jobs := campaignJobs(len(plan.Topology.Edges))
	drawDrivers(plan.Seed, jobs, containers)
	for _, j := range jobs {
		plan.Jobs = append(plan.Jobs, j.Job)
	}
	jobs = slices.DeleteFunc(jobs, func(j userJob) bool { return len(j.changes) == 0 })
	turns := make([]int, len(jobs))
	for at := drawAround(rng, every); at < plan.Length; at += drawAround(rng, every) {
		i := rng.IntN(len(jobs))
		step := schedule.Step{At: at, Job: jobs[i].ID, Verb: jobs[i].changes[turns[i]%len(jobs[i].changes)]}
		turns[i]++
		if step.Verb == schedule.Scale {
			step.Count = 1 + rng.IntN(2*len(plan.Topology.Edges))
		}
		plan.Steps = append(plan.Steps, step)
		if jobs[i].Rollout.Canary > 0 && at+promoteAfter < plan.Length {
			plan.Steps = append(plan.Steps, schedule.Step{At: at + promoteAfter, Job: step.Job, Verb: schedule.Promote})
		}
	}
	for at := drawAround(rng, dispatchEvery); at < plan.Length; at += drawAround(rng, dispatchEvery) {
		plan.Steps = append(plan.Steps, schedule.Step{At: at, Job: "errand", Verb: schedule.Dispatch})
	}
	slices.SortStableFunc(plan.Steps, func(a, b schedule.Step) int { return cmp.Compare(a.At, b.At) })
	plan.Operations = operations
}

// addDrains adds faults of the kind Drain. It adds none to a schedule with a Restore: the restored
// hubs may have a drain that is over, or lack one.
func addDrains(plan *schedule.Schedule) {
	if slices.ContainsFunc(plan.Faults, func(f schedule.Fault) bool { return f.Kind == schedule.Restore }) {
		return
	}
	rng := rand.New(rand.NewPCG(plan.Seed, 0xd4a1))
	for at := drawAround(rng, drainEvery); at+drainLasts < plan.Length; at += drainLasts + drawAround(rng, drainEvery) {
		plan.Faults = append(plan.Faults, schedule.Fault{
			Kind: schedule.Drain, At: at, For: drainLasts, Targets: []string{plan.Topology.Edges[rng.IntN(len(plan.Topology.Edges))].Name},
			Params: schedule.Params{Deadline: drainDeadline, KeepSystem: rng.IntN(3) == 0},
		})
	}
}

// drawAround draws a duration from half of d to one and a half times d.
func drawAround(rng *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.5 + rng.Float64()))
}

// taskScript is the shell script of a task. It records its start with the name of its edge (EDGE in a container), and
// runs for LASTS seconds. If CrashTasks has marked the edge, it fails after the time in the mark.
const taskScript = `e=${NOMAD_ALLOC_DIR#"$RUN"/}; e=${EDGE:-${e%%/*}}; echo "$$ $e" >> "$STARTS/$NOMAD_ALLOC_ID"
if [ -e "$RUN/crash/$e" ]; then sleep "$(cat "$RUN/crash/$e")"; exit 1; fi
exec sleep "$LASTS"`

// forever is the run time of tasks that do not end by themselves.
const forever = 24 * time.Hour

// adaptJobsOf returns the function that makes the jobs of a schedule real ones.
func (s *campaignRun) adaptJobsOf(plan schedule.Schedule) func(*fleet.Job) {
	return func(job *fleet.Job) {
		j, _ := plan.Job(job.ID)
		s.adaptJob(job, j.Driver)
	}
}

// adaptJob replaces the simulated tasks of a job by real ones with taskScript, with restart and
// update times of seconds. They are processes, or containers if a driver is named. It leaves groups without
// simulated tasks unchanged.
func (s *campaignRun) adaptJob(job *fleet.Job, driver string) {
	for i := range job.TaskGroups {
		group := &job.TaskGroups[i]
		task := &group.Tasks[0]
		if task.Driver != sim.Name {
			continue
		}
		// Restart crashing tasks without limit.
		group.RestartPolicy = &fleet.RestartPolicy{Attempts: 10_000, Interval: time.Hour, Delay: 300 * time.Millisecond, Mode: fleet.RestartModeDelay}
		if job.Type != fleet.JobTypeSystem {
			group.ReschedulePolicy = &fleet.ReschedulePolicy{Delay: 5 * time.Second, DelayFunction: fleet.DelayConstant, Unlimited: true}
		}
		group.EphemeralDisk.SizeMB = 10 // the disks are small
		if u := group.Update; u != nil {
			u.MinHealthyTime, u.HealthyDeadline, u.ProgressDeadline = 500*time.Millisecond, 20*time.Second, 40*time.Second
		}
		lasts := forever
		if text, ok := task.Config["run_for"].(string); ok {
			lasts, _ = time.ParseDuration(text) // the schedule is valid
		}
		task.Driver, task.Config = "raw_exec", map[string]any{"command": "/bin/sh", "args": []any{"-c", taskScript}}
		task.RestartPolicy = nil // the group's
		task.KillTimeout, task.LogConfig = time.Second, fleet.LogConfig{MaxFiles: 1, MaxFileSizeMB: 1}
		env := map[string]string{"STARTS": s.starts, "RUN": s.Dir, "LASTS": strconv.FormatFloat(lasts.Seconds(), 'f', -1, 64)}
		for name, value := range task.Env {
			env[name] = value
		}
		task.Env = env
		if driver != "" {
			s.containTask(task, driver)
		}
	}
	validate.FillDefaults(job)
}

// containTask turns a task into a container. The container sees the run's folders in which tasks write and look for
// marks, and the variable EDGE, because its own folders do not name the edge.
func (s *campaignRun) containTask(task *fleet.Task, driver string) {
	task.Driver = driver
	task.Env["EDGE"] = "${node.unique.name}"
	task.Config = map[string]any{
		"image": campaignImage, "command": "/bin/sh", "args": []any{"-c", taskScript}, "network_mode": "none",
		"volumes": []any{s.starts + ":" + s.starts, s.crashDir() + ":" + s.crashDir()},
	}
}

// describeSteps returns the numbers of acknowledged steps by verb as text: "3 scale, 1 stop".
func describeSteps(acked map[schedule.Verb]int) string {
	var parts []string
	for _, verb := range slices.Sorted(maps.Keys(acked)) {
		parts = append(parts, strconv.Itoa(acked[verb])+" "+string(verb))
	}
	return strings.Join(parts, ", ")
}
