package virtual

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"skerry/api"
	"skerry/chaos/check"
	"skerry/chaos/engine"
	"skerry/chaos/schedule"
	"skerry/client"
	"skerry/fleet"
	"skerry/fleet/validate"
)

// retryEvery is how soon a user tries again what did not work.
const retryEvery = 2 * time.Second

// lastCalls is how long a user goes on after the schedule's end with what was begun.
const lastCalls = time.Minute

// callTimeout is how long a user waits for an answer.
const callTimeout = 10 * time.Second

// playJobSteps does to a job what the schedule says, one thing after the other.
func (r *run) playJobSteps(ctx context.Context, j schedule.Job) error {
	steps := []schedule.Step{{At: j.Start, Verb: schedule.Run, Job: j.ID}}
	for _, s := range r.s.Steps {
		if s.Job == j.ID {
			steps = append(steps, s)
		}
	}
	for _, s := range steps {
		if !r.waitUntilTime(ctx, s.At) {
			return nil
		}
		do := r.playJobStep
		if s.Verb == schedule.Promote {
			do = r.promoteCanaries
		}
		if err := do(ctx, s); err != nil {
			return err
		}
	}
	if j.Every > 0 { // else nothing would ever be quiet
		<-ctx.Done()
		return r.stopPeriodicJob(ctx, j)
	}
	return nil
}

// stopPeriodicJob stops a job that is launched by the clock, when the schedule is over.
func (r *run) stopPeriodicJob(ctx context.Context, j schedule.Job) error {
	return r.submitStepUntilAcked(ctx, schedule.Step{At: r.s.Length, Verb: schedule.Stop, Job: j.ID}, &fleet.Job{ID: j.ID, Stop: true})
}

// patience is how long somebody waits for canaries before they are given up on.
const patience = 2 * time.Minute

// promoteCanaries promotes a job's canaries, as soon as they are healthy. Where there are none
// for a while, nobody waits for them any longer.
func (r *run) promoteCanaries(ctx context.Context, s schedule.Step) error {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	for n := 0; ctx.Err() == nil; n++ {
		h := r.c.Hubs[n%len(r.c.Hubs)]
		if d := r.deploymentToPromote(h, s.Job); d != "" {
			r.judgeAndRecord(check.Observation{Request: &check.Request{What: check.AskPromote, Job: s.Job}})
			asked, cancel := context.WithTimeout(ctx, callTimeout)
			_, err := h.PromoteDeployment(asked, d)
			cancel()
			if err == nil {
				return nil
			}
		}
		if !engine.Pause(ctx, retryEvery) {
			return nil
		}
	}
	return nil
}

// deploymentToPromote is the deployment of a job whose canaries wait to be promoted, as a hub knows
// it; "": none.
func (r *run) deploymentToPromote(h *Hub, id fleet.JobID) fleet.DeploymentID {
	d := h.runningDaemon()
	if d == nil {
		return ""
	}
	for dep := range d.State().View().DeploymentsByJob(fleet.DefaultNamespace, id) {
		if dep.RequiresPromotion() {
			return dep.ID
		}
	}
	return ""
}

// playJobStep carries one step out, at one hub after the other until it is acknowledged.
func (r *run) playJobStep(ctx context.Context, s schedule.Step) error {
	job, err := r.s.DesiredJob(s.Job, s.At)
	if err != nil {
		return err
	}
	return r.submitStepUntilAcked(ctx, s, job)
}

// submitStepUntilAcked carries a step out that makes a job (nil: purged) what it then is.
func (r *run) submitStepUntilAcked(ctx context.Context, s schedule.Step, job *fleet.Job) error {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), r.s.Length-r.elapsedTime()+lastCalls)
	defer stop()
	for n := 0; ; n++ {
		h := r.c.Hubs[(n+int(s.At/time.Second))%len(r.c.Hubs)]
		err := r.sendJobStep(ctx, h, s, job)
		if err == nil {
			break
		}
		status := client.StatusOf(err)
		if status == http.StatusNotFound && s.Verb != schedule.Run {
			break // it was purged before; nothing is left to be done
		}
		if status > 0 && status < 500 && status != http.StatusTooManyRequests {
			return fmt.Errorf("%s job %s: %w", s.Verb, s.Job, err)
		}
		if !engine.Pause(ctx, retryEvery) {
			return nil
		}
	}
	r.mu.Lock()
	r.wanted[s.Job] = job
	r.mu.Unlock()
	known := &fleet.Job{ID: s.Job, Stop: true}
	if job != nil {
		known = job
	}
	r.judgeAndRecord(check.Observation{Job: known})
	return nil
}

func (r *run) sendJobStep(ctx context.Context, h *Hub, s schedule.Step, job *fleet.Job) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	switch s.Verb {
	case schedule.Stop:
		return h.Deregister(ctx, s.Job, false)
	case schedule.Purge:
		return h.Deregister(ctx, s.Job, true)
	}
	_, err := h.Register(ctx, job)
	return err
}

// Clients of the linearizability checker, and the jobs that they fight over.
const (
	clientCount = 3
	keyCount    = 2
)

// startClients starts users who register and read small jobs of their own.
func (r *run) startClients(ctx context.Context, g *errgroup.Group) {
	if r.s.Operations == 0 {
		return
	}
	for i := range clientCount {
		c := &keyClient{
			r: r, name: fmt.Sprintf("client-%d", i+1), rng: rand.New(rand.NewPCG(r.s.Seed, uint64(i))),
			every: time.Minute * clientCount / time.Duration(r.s.Operations),
		}
		g.Go(func() error { c.runOperations(ctx); return nil })
	}
}

// keyClient is a client that reads and registers jobs of a few ids.
type keyClient struct {
	r     *run
	name  string
	rng   *rand.Rand
	every time.Duration
	tags  int
	known map[fleet.JobID]fleet.Index // modify index that was read last
}

func (c *keyClient) runOperations(ctx context.Context) {
	c.known = map[fleet.JobID]fleet.Index{}
	for engine.Pause(ctx, time.Duration((0.5+c.rng.Float64())*float64(c.every))) {
		o := c.callRandomOperation(context.WithoutCancel(ctx))
		if o.Does == check.OpRead && o.Outcome == check.OutcomeUnknown {
			continue // it says nothing
		}
		c.r.judgeAndRecord(check.Observation{Operation: &o})
	}
}

// callRandomOperation carries out one that is drawn.
func (c *keyClient) callRandomOperation(ctx context.Context) check.Operation {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	h := c.r.c.Hubs[c.rng.IntN(len(c.r.c.Hubs))]
	o := check.Operation{
		Client: c.name, Job: fleet.JobID(fmt.Sprintf("key-%d", 1+c.rng.IntN(keyCount))), Call: c.r.elapsedTime(),
	}
	switch n := c.rng.IntN(10); {
	case n < 5:
		c.readKeyJob(ctx, h, &o)
	case n < 9:
		c.registerKeyJob(ctx, h, &o, n == 8)
	default:
		o.Does = check.OpDeregister
		answer, err := h.StopJob(ctx, o.Job, client.StopOptions{})
		o.Outcome = engine.OutcomeOf(err)
		if o.Modify = answer.Index; o.Outcome == check.OutcomeOK && o.Modify == 0 {
			o.Outcome = check.OutcomeNotFound // no job of that name, and nothing done
		}
	}
	return o
}

func (c *keyClient) readKeyJob(ctx context.Context, h *Hub, o *check.Operation) {
	o.Does = check.OpRead
	job, err := h.Job(ctx, o.Job)
	if o.Outcome = engine.OutcomeOf(err); err == nil {
		o.Tag, o.Modify, o.Stopped = job.Meta["tag"], job.JobModifyIndex, job.Stop
		c.known[o.Job] = o.Modify
	}
}

func (c *keyClient) registerKeyJob(ctx context.Context, h *Hub, o *check.Operation, enforce bool) {
	o.Does = check.OpRegister
	c.tags++
	o.Tag = fmt.Sprintf("%s-%d", c.name, c.tags)
	job := keyJob(o.Job, o.Tag)
	var req api.JobRegisterRequest
	if enforce {
		o.Enforces, o.Check = true, c.known[o.Job]
		req.EnforceIndex, req.JobModifyIndex = true, o.Check
	}
	answer, err := h.RegisterJob(ctx, job, req)
	o.Outcome = engine.OutcomeOf(err)
	o.Modify = answer.Index
}

// keyJob is a job that places nothing; its tag is what a registration writes.
func keyJob(id fleet.JobID, tag string) *fleet.Job {
	job := &fleet.Job{
		ID: id, Type: fleet.JobTypeService, Meta: map[string]string{"tag": tag},
		TaskGroups: []fleet.TaskGroup{{Name: "none", Tasks: []fleet.Task{{Name: "none", Driver: "sim"}}}},
	}
	validate.FillDefaults(job)
	job.TaskGroups[0].Count = 0
	return job
}
