package real

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"skerry/api"
	"skerry/chaos/check"
	"skerry/chaos/cluster"
	"skerry/client"
	"skerry/fleet"
)

// What people do in a storm besides changing jobs, and how often: canaries are promoted,
// jobs dispatched, edges drained.
const (
	promoteEvery  = 2 * time.Second
	dispatchEvery = 6 * time.Second
	drainEvery    = 12 * time.Second
	drainDeadline = 4 * time.Second
	drainLasts    = 8 * time.Second
	launchSpec    = "*/10 * * * * * *" // each ten seconds
	runsFor       = "2"                // seconds, of what ends by itself
)

// Jobs that are launched by the clock, and by whoever asks.
const (
	nightly fleet.JobID = "nightly"
	errand  fleet.JobID = "errand"
)

// tallied is how often people were told that what they asked for is done.
type tallied struct{ versions, promotions, dispatches, drains int }

func (t tallied) String() string {
	return fmt.Sprintf("%d versions, %d promotions, %d dispatches, %d drains", t.versions, t.promotions, t.dispatches, t.drains)
}

// rolled are the jobs that get new versions by other rules than most do, and those that
// are launched.
func rolled(edges int) []*workloadJob {
	return []*workloadJob{
		{id: "everywhere", count: 1, revises: true, uncounted: true, dress: func(j *fleet.Job) {
			j.Type = fleet.JobTypeSystem
			j.TaskGroups[0].ReschedulePolicy = nil
			u := quickUpdate(j.Type)
			u.MaxParallel, u.MaxUnavailablePerSite = 3, 1
			j.TaskGroups[0].Update = u
		}},
		{id: "canaries", count: edges, revises: true, dress: func(j *fleet.Job) {
			u := quickUpdate(j.Type)
			u.MaxParallel, u.Canary = 2, 1
			j.TaskGroups[0].Update = u
		}},
		{id: "sites", count: edges, revises: true, dress: func(j *fleet.Job) {
			u := quickUpdate(j.Type)
			u.MaxParallel, u.MaxUnavailablePerSite, u.AutoRevert = edges, 1, true
			j.TaskGroups[0].Update = u
		}},
		{id: nightly, count: 1, uncounted: true, launched: true, stopped: true, dress: func(j *fleet.Job) {
			ends(j)
			j.Periodic = &fleet.Periodic{Enabled: true, Spec: launchSpec, ProhibitOverlap: true}
		}},
		{id: errand, count: 1, uncounted: true, launched: true, stopped: true, dress: func(j *fleet.Job) {
			ends(j)
			j.ParameterizedJob = &fleet.ParameterizedJob{MetaOptional: []string{"for"}}
		}},
	}
}

// quickUpdate has rollouts be over within seconds, one way or the other.
func quickUpdate(jobType string) *fleet.Update {
	u := fleet.DefaultUpdate(jobType)
	u.MinHealthyTime, u.HealthyDeadline, u.ProgressDeadline = 500*time.Millisecond, 20*time.Second, 40*time.Second
	return u
}

// ends has a job's task end by itself.
func ends(j *fleet.Job) {
	j.Type = fleet.JobTypeBatch
	j.TaskGroups[0].Tasks[0].Env["LASTS"] = runsFor
}

// registerLaunchedJobs has the jobs be there that are launched.
func (w *userWorkload) registerLaunchedJobs(ctx context.Context) {
	for _, id := range []fleet.JobID{nightly, errand} {
		w.mu.Lock()
		u := w.jobs[id]
		u.stopped, u.sure = false, false
		w.version++
		u.tag = fmt.Sprint(w.version)
		spec := w.buildJobSpec(u)
		w.mu.Unlock()
		for {
			soon, cancel := context.WithTimeout(ctx, answerBound)
			_, err := w.anyHub().Register(soon, spec)
			cancel()
			if err == nil {
				w.mu.Lock()
				u.sure = true
				w.mu.Unlock()
				w.observeWantedJob(u, spec)
				break
			}
			if pause(ctx, time.Second) != nil {
				return
			}
		}
	}
}

// promotePeriodically has a person promote canaries now and then.
func (w *userWorkload) promotePeriodically(ctx context.Context) {
	for pause(ctx, promoteEvery) == nil {
		soon, cancel := context.WithTimeout(ctx, answerBound)
		_, _ = w.promoteOne(soon) // what was in the way tries again
		cancel()
	}
}

// promoteOne promotes the canaries of one deployment that waits for it, and says of which
// job; "": none does.
func (w *userWorkload) promoteOne(ctx context.Context) (fleet.JobID, error) {
	h := w.anyHub()
	all, err := h.Deployments(ctx)
	if err != nil {
		return "", err
	}
	for _, d := range all {
		if !d.RequiresPromotion() {
			continue
		}
		w.s.watch.judgeAndRecord(check.Observation{Request: &check.Request{What: check.AskPromote, Job: d.JobID}})
		_, err := h.PromoteDeployment(ctx, d.ID)
		if err == nil {
			w.mu.Lock()
			w.done.promotions++
			w.mu.Unlock()
		}
		return d.JobID, err
	}
	return "", nil
}

// promoteAll promotes until nothing waits for it.
func (w *userWorkload) promoteAll(ctx context.Context) error {
	return cluster.Eventually(ctx, w.s.settleBound, "nobody has to promote anything", func(ctx context.Context) string {
		id, err := w.promoteOne(ctx)
		switch {
		case err != nil:
			return err.Error()
		case id != "":
			return fmt.Sprintf("canaries of job %s were just promoted", id)
		}
		return ""
	})
}

// dispatchPeriodically has somebody dispatch a job now and then, and ask again where nobody answered:
// with the same token, so that it is done once.
func (w *userWorkload) dispatchPeriodically(ctx context.Context) {
	for n := 1; pause(ctx, time.Duration(float64(dispatchEvery)*(0.5+rand.Float64()))) == nil; n++ {
		token := fmt.Sprintf("%d-%d", time.Since(w.s.began).Milliseconds(), n)
		for {
			soon, cancel := context.WithTimeout(ctx, answerBound)
			_, err := w.anyHub().DispatchJob(soon, errand, token, api.JobDispatchRequest{Meta: map[string]string{"for": token}})
			cancel()
			status := client.StatusOf(err)
			if err == nil {
				w.mu.Lock()
				w.done.dispatches++
				w.mu.Unlock()
			}
			if err == nil || status > 0 && status < 500 || pause(ctx, time.Second) != nil {
				break // it is done, or the job is not there yet, or no longer
			}
		}
	}
}

// drainPeriodically has a person drain an edge now and then, and have it take work again.
func (w *userWorkload) drainPeriodically(ctx context.Context) {
	for pause(ctx, time.Duration(float64(drainEvery)*(0.5+rand.Float64()))) == nil {
		asked := api.DrainRequest{DrainSpec: &api.DrainSpec{Deadline: drainDeadline, IgnoreSystemJobs: rand.IntN(3) == 0}}
		e := w.s.fleet.Edges[rand.IntN(len(w.s.fleet.Edges))]
		if w.askDrain(ctx, e.Name, asked) != nil {
			continue
		}
		w.mu.Lock()
		w.done.drains++
		w.mu.Unlock()
		for err := pause(ctx, drainLasts); err == nil; err = pause(ctx, time.Second) {
			if w.askDrain(ctx, e.Name, api.DrainRequest{MarkEligible: true}) == nil {
				break
			}
		}
	}
}

// askDrain asks a hub once to change the drain of all nodes of a name ("": of all).
func (w *userWorkload) askDrain(ctx context.Context, name string, req api.DrainRequest) error {
	ctx, cancel := context.WithTimeout(ctx, answerBound)
	defer cancel()
	h := w.anyHub()
	f, err := h.Fleet(ctx)
	if err != nil {
		return err
	}
	for _, n := range f.Nodes {
		if name != "" && n.Name != name {
			continue
		}
		if _, err := h.DrainNode(ctx, n.ID, req); err != nil {
			return err
		}
	}
	return nil
}

// undrainAllEdges has all edges take work again, at whichever hub takes that.
func (w *userWorkload) undrainAllEdges(ctx context.Context) error {
	return cluster.Eventually(ctx, w.s.settleBound, "all edges take work again", func(ctx context.Context) string {
		if err := w.askDrain(ctx, "", api.DrainRequest{MarkEligible: true}); err != nil {
			return err.Error()
		}
		return ""
	})
}

// rolloutInvariants are those that a storm has to judge, or nothing was rolled out,
// launched or drained in it.
var rolloutInvariants = []check.Invariant{
	check.MaxParallel, check.Canaries, check.SiteBudget, check.NoneBetween, check.Deferred, check.LaunchedOnce, check.DrainsEnd, check.DeploymentsEnd,
}

// unjudgedInvariants names those of them that were never judged.
func (s *campaignRun) unjudgedInvariants() (never []string) {
	for _, v := range s.watch.Monitor.Verdicts() {
		for _, i := range rolloutInvariants {
			if v.Invariant == i && v.Judged == 0 {
				never = append(never, i.Slug())
			}
		}
	}
	return never
}

// userActionCounts is what people did until now.
func (w *userWorkload) userActionCounts() tallied {
	if w == nil {
		return tallied{}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.done
}
