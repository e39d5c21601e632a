package real

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"skerry/api"
	"skerry/chaos/check"
	"skerry/chaos/cluster"
	"skerry/chaos/engine"
	"skerry/client"
	"skerry/fleet"
	"skerry/fleet/validate"
)

// What users do in a storm, and how often. An answer is waited for as long as
// clients do that would ask another hub then.
const (
	workEvery   = 3 * time.Second
	askEvery    = 700 * time.Millisecond
	answerBound = 8 * time.Second
	clientsOfIt = 2
	askedJobs   = 2
)

// The key of a job's meta in which it says which registration it is.
const metaTag = "tag"

// userWorkload is what users do in a storm: jobs that come, change and go; and small ones
// that are registered and read only, to see that the cluster speaks of one truth.
type userWorkload struct {
	s *campaignRun

	mu      sync.Mutex
	jobs    map[fleet.JobID]*workloadJob // guarded by mu
	version int                          // guarded by mu: of registrations
	orphans bool                         // guarded by mu: hubs were put back at any time
	done    tallied                      // guarded by mu
}

// workloadJob is a job and who runs it.
type workloadJob struct {
	id         fleet.JobID
	count      int
	comesGoes  bool
	disconnect *fleet.Disconnect
	// revises says that its changes are new tasks, and dress makes the job what it is
	// besides (nil: nothing). Of one that counts nothing nobody says how many run.
	revises, uncounted bool
	dress              func(*fleet.Job)
	// launched says that it has nothing to run but what becomes of it at times: it is
	// there while everything breaks, and stopped before all has to be quiet.
	launched bool

	tag     string // of the registration that is wanted
	revised int    // of its tasks
	stopped bool
	sure    bool // the last thing that was asked for was acknowledged
}

// expectedCount is how many shall run; less than 0: nobody says.
func (u *workloadJob) expectedCount() int {
	if u.uncounted {
		return -1
	}
	return u.count
}

func newUserWorkload(s *campaignRun) *userWorkload {
	soon, replace := 3*time.Second, true
	w := &userWorkload{s: s, jobs: map[fleet.JobID]*workloadJob{}}
	for _, u := range []*workloadJob{
		{id: "keep", count: s.Edges},
		{id: "replace", count: s.Edges, disconnect: &fleet.Disconnect{LostAfter: &soon, Replace: &replace, Reconcile: fleet.ReconcileKeepOriginal}},
		{id: "longest", count: 2, disconnect: &fleet.Disconnect{LostAfter: &soon, Replace: &replace, Reconcile: fleet.ReconcileLongestRunning}},
		{id: "rolling", count: 2, revises: true},
		{id: "guest-1", count: 2, comesGoes: true},
		{id: "guest-2", count: 1, comesGoes: true, disconnect: &fleet.Disconnect{LostAfter: &soon, Replace: &replace, Reconcile: fleet.ReconcileKeepReplacement}},
	} {
		w.jobs[u.id] = u
	}
	for _, u := range rolled(s.Edges) {
		w.jobs[u.id] = u
	}
	return w
}

// startAllJobs registers all jobs and waits until they run.
func (w *userWorkload) startAllJobs(ctx context.Context) error {
	if err := w.settleAllJobs(ctx); err != nil {
		return err
	}
	_, _, err := w.s.waitUntilQuiet(ctx)
	return err
}

// buildJobSpec is the job as it is wanted.
func (w *userWorkload) buildJobSpec(u *workloadJob) *fleet.Job {
	job := newWorkloadJob(u.id, u.count, w.s.starts, u.disconnect)
	job.UI = &fleet.JobUI{Description: u.tag} // which its tasks survive
	group := &job.TaskGroups[0]
	// Tasks that crash are started again for as long as they do.
	group.RestartPolicy = &fleet.RestartPolicy{Attempts: 10_000, Interval: time.Hour, Delay: 300 * time.Millisecond, Mode: fleet.RestartModeDelay}
	group.EphemeralDisk.SizeMB = 10 // the disks are small
	group.ReschedulePolicy = &fleet.ReschedulePolicy{Delay: 5 * time.Second, DelayFunction: fleet.DelayConstant, Unlimited: true}
	task := &group.Tasks[0]
	task.LogConfig = fleet.LogConfig{MaxFiles: 1, MaxFileSizeMB: 1}
	task.Config["args"] = []any{"-c", campaignScript}
	task.Env["RUN"] = w.s.Dir
	task.Env["REVISION"] = strconv.Itoa(u.revised)
	task.Env["LASTS"] = strconv.Itoa(int((24 * time.Hour).Seconds()))
	if u.dress != nil {
		u.dress(job)
	}
	validate.FillDefaults(job)
	return job
}

// runUserActions does something now and then until ctx ends.
func (w *userWorkload) runUserActions(ctx context.Context) {
	var over sync.WaitGroup
	for client := range clientsOfIt {
		over.Go(func() { w.registerAndReadJobs(ctx, fmt.Sprintf("client-%d", client+1)) })
	}
	for _, habit := range []func(context.Context){w.registerLaunchedJobs, w.promotePeriodically, w.dispatchPeriodically, w.drainPeriodically} {
		over.Go(func() { habit(ctx) })
	}
	for pause(ctx, w.s.changeInterval()) == nil {
		w.changeOneJob(ctx)
	}
	over.Wait()
}

// changeInterval is how often a job changes: at least once in most rounds.
func (p CampaignConfig) changeInterval() time.Duration {
	if p.Rounds > 0 {
		return workEvery / 4
	}
	return workEvery
}

// changeOneJob changes one job, by asking any hub once.
func (w *userWorkload) changeOneJob(ctx context.Context) {
	u := w.drawJobChange()
	spec := w.buildJobSpec(u)
	soon, cancel := context.WithTimeout(ctx, answerBound)
	defer cancel()
	h := w.anyHub()
	var err error
	if u.stopped {
		err = h.Deregister(soon, u.id, false)
	} else {
		_, err = h.Register(soon, spec)
	}
	w.mu.Lock()
	u.sure = err == nil
	if u.sure && u.revises {
		w.done.versions++
	}
	w.mu.Unlock()
	if err == nil {
		w.observeWantedJob(u, spec)
	}
}

// drawJobChange draws what a user wants next.
func (w *userWorkload) drawJobChange() *workloadJob {
	w.mu.Lock()
	defer w.mu.Unlock()
	changing := slices.DeleteFunc(slices.Sorted(maps.Keys(w.jobs)), func(id fleet.JobID) bool { return w.jobs[id].launched })
	u := w.jobs[changing[rand.IntN(len(changing))]]
	switch {
	case u.comesGoes:
		u.stopped = !u.stopped
	case u.revises:
		u.revised++
	default:
		u.count = 1 + rand.IntN(2*w.s.Edges)
	}
	if !u.stopped {
		w.version++
		u.tag = strconv.Itoa(w.version)
	}
	u.sure = false
	return u
}

// observeWantedJob has the checkers know what was acknowledged.
func (w *userWorkload) observeWantedJob(u *workloadJob, spec *fleet.Job) {
	told := *spec
	told.Stop = u.stopped
	w.s.watch.judgeAndRecord(check.Observation{Job: &told})
}

func (w *userWorkload) anyHub() *cluster.Hub {
	return w.s.fleet.Hubs[rand.IntN(len(w.s.fleet.Hubs))]
}

// settleAllJobs looks for what was acknowledged, then asks for everything once more until it
// is acknowledged: what shall run is certain then. No edge is drained, and nobody waits
// for anything any more.
func (w *userWorkload) settleAllJobs(ctx context.Context) error {
	if err := w.undrainAllEdges(ctx); err != nil {
		return err
	}
	if err := w.submitAllUntilAcked(ctx); err != nil {
		return err
	}
	if err := w.promoteAll(ctx); err != nil {
		return err
	}
	w.mu.Lock()
	orphans := w.orphans
	w.mu.Unlock()
	if !orphans {
		return nil
	}
	// Also long after: a journal that is damaged may forget that somebody stopped what
	// no hub knows, and only people can say so again.
	return cluster.Eventually(ctx, w.s.settleBound, "what a restored cluster does not know is ended", func(ctx context.Context) string {
		return w.stopNextOrphan(ctx)
	})
}

func (w *userWorkload) submitAllUntilAcked(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.s.mu.Lock()
	rewound := w.s.rewound
	w.s.rewound = false
	w.orphans = w.orphans || rewound
	w.s.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(w.jobs)) {
		u := w.jobs[id]
		if u.sure && !rewound {
			if err := w.checkAcknowledgedJob(ctx, u); err != nil {
				return err
			}
		}
		u.stopped = u.stopped || u.launched
		if err := w.submitUntilAcked(ctx, u); err != nil {
			return err
		}
	}
	return nil
}

// checkAcknowledgedJob checks that the cluster has what it acknowledged.
func (w *userWorkload) checkAcknowledgedJob(ctx context.Context, u *workloadJob) error {
	var job *fleet.Job
	err := cluster.Eventually(ctx, quietBound, "read job "+string(u.id), func(ctx context.Context) string {
		var err error
		if job, err = w.anyHub().Job(ctx, u.id); err != nil {
			return err.Error()
		}
		return ""
	})
	if err != nil {
		return err
	}
	// Of a job that is stopped it is not known which registration was the last to come through.
	tag := ""
	if job.UI != nil {
		tag = job.UI.Description
	}
	if job.Stop != u.stopped || !job.Stop && tag != u.tag {
		w.s.watch.Violate(check.Violation{Invariant: check.AcknowledgedSurvives, Where: string(u.id), Message: fmt.Sprintf(
			"registration %s (stopped: %t) was acknowledged, the cluster has %s (stopped: %t)", u.tag, u.stopped, tag, job.Stop)})
	}
	return nil
}

// submitUntilAcked asks for what is wanted until it is acknowledged.
func (w *userWorkload) submitUntilAcked(ctx context.Context, u *workloadJob) error {
	if !u.stopped {
		spec := w.buildJobSpec(u)
		if err := w.s.registerAtAnyHub(ctx, spec); err != nil {
			return err
		}
		u.sure = true
		w.s.setWantedCount(u.id, u.expectedCount())
		w.observeWantedJob(u, spec)
		return nil
	}
	err := cluster.Eventually(ctx, quietBound, "stop job "+string(u.id), func(ctx context.Context) string {
		err := w.anyHub().Deregister(ctx, u.id, false)
		if err == nil || client.StatusOf(err) == http.StatusNotFound {
			return ""
		}
		return err.Error()
	})
	if err != nil {
		return err
	}
	// A job that a restored cluster does not know is not stopped there, either.
	u.sure = false
	w.s.setWantedCount(u.id, min(0, u.expectedCount()))
	w.observeWantedJob(u, w.buildJobSpec(u))
	return nil
}

// stopNextOrphan waits until edges are back, and has people end what they keep alone.
func (w *userWorkload) stopNextOrphan(ctx context.Context) string {
	f, err := w.s.fleet.Hubs[0].Fleet(ctx)
	if err != nil {
		return err.Error()
	}
	for _, n := range f.Nodes {
		if n.Status != fleet.NodeReady {
			return fmt.Sprintf("node %s is %s", n.Name, n.Status)
		}
		e := w.s.edgeByName(n.Name)
		for _, id := range n.Orphans {
			if !w.s.runsOn(ctx, e, id) {
				continue
			}
			if err := w.s.stopOrphanedAlloc(ctx, e, id); err != nil {
				return err.Error()
			}
			return fmt.Sprintf("%s still ran allocation %s", n.Name, fleet.Short(id))
		}
	}
	return ""
}

// registerAndReadJobs registers and reads small jobs until ctx ends, and tells what it was told.
func (w *userWorkload) registerAndReadJobs(ctx context.Context, client string) {
	for pause(ctx, time.Duration(float64(askEvery)*(0.5+rand.Float64()))) == nil {
		id := fleet.JobID(fmt.Sprintf("asked-%d", 1+rand.IntN(askedJobs)))
		op := check.Operation{Client: client, Job: id, Call: time.Since(w.s.began)}
		soon, cancel := context.WithTimeout(ctx, answerBound)
		if rand.IntN(3) == 0 {
			w.registerAskedJob(soon, &op)
		} else {
			w.readAskedJob(soon, &op)
		}
		cancel()
		w.s.watch.judgeAndRecord(check.Observation{Operation: &op})
	}
}

func (w *userWorkload) registerAskedJob(ctx context.Context, op *check.Operation) {
	w.mu.Lock()
	w.version++
	op.Does, op.Tag = check.OpRegister, op.Client+"-"+strconv.Itoa(w.version)
	w.mu.Unlock()
	job := workload(op.Job, 0, "", nil)
	job.Meta = map[string]string{metaTag: op.Tag}
	answer, err := w.anyHub().RegisterJob(ctx, job, api.JobRegisterRequest{})
	if op.Outcome = engine.OutcomeOf(err); err == nil {
		op.Modify = answer.JobModifyIndex
	}
}

func (w *userWorkload) readAskedJob(ctx context.Context, op *check.Operation) {
	op.Does = check.OpRead
	job, err := w.anyHub().Job(ctx, op.Job)
	if op.Outcome = engine.OutcomeOf(err); err == nil {
		op.Tag, op.Modify, op.Stopped = job.Meta[metaTag], job.JobModifyIndex, job.Stop
	}
}
