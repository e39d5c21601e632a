package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"

	"skerry/api"
	"skerry/chaos/check"
	"skerry/client"
	"skerry/fleet"
	"skerry/fleet/validate"
)

// Clients of the linearizability checker, and the jobs that they fight over.
const (
	clientCount = 3
	keyCount    = 2
)

// startClients starts users who register and read small jobs of their own.
func (u *Users) startClients(ctx context.Context, g *errgroup.Group) {
	if u.Schedule.Operations == 0 {
		return
	}
	for i := range clientCount {
		c := &keyClient{
			u: u, name: fmt.Sprintf("client-%d", i+1), rng: rand.New(rand.NewPCG(u.Schedule.Seed, uint64(i))),
			every: time.Minute * clientCount / time.Duration(u.Schedule.Operations),
		}
		g.Go(func() error { c.runOperations(ctx); return nil })
	}
}

// keyClient is a client that reads and registers jobs of a few ids.
type keyClient struct {
	u     *Users
	name  string
	rng   *rand.Rand
	every time.Duration
	tags  int
	known map[fleet.JobID]fleet.Index // modify index that was read last
}

func (c *keyClient) runOperations(ctx context.Context) {
	c.known = map[fleet.JobID]fleet.Index{}
	for Pause(ctx, time.Duration((0.5+c.rng.Float64())*float64(c.every))) {
		o := c.callRandomOperation(context.WithoutCancel(ctx))
		if o.Does == check.OpRead && o.Outcome == check.OutcomeUnknown {
			continue // it says nothing
		}
		c.u.Observe(check.Observation{Operation: &o})
	}
}

// callRandomOperation carries out one that is drawn.
func (c *keyClient) callRandomOperation(ctx context.Context) check.Operation {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	h := c.u.hubOfTurn(c.rng.IntN(len(c.u.Hubs)))
	o := check.Operation{
		Client: c.name, Job: fleet.JobID(fmt.Sprintf("key-%d", 1+c.rng.IntN(keyCount))), Call: c.u.Elapsed(),
	}
	switch n := c.rng.IntN(10); {
	case n < 5:
		c.readKeyJob(ctx, h, &o)
	case n < 9:
		c.registerKeyJob(ctx, h, &o, n == 8)
	default:
		o.Does = check.OpDeregister
		answer, err := h.StopJob(ctx, o.Job, client.StopOptions{})
		o.Outcome = OutcomeOf(err)
		if o.Modify = answer.Index; o.Outcome == check.OutcomeOK && o.Modify == 0 {
			o.Outcome = check.OutcomeNotFound // no job of that name, and nothing done
		}
	}
	return o
}

func (c *keyClient) readKeyJob(ctx context.Context, h Hub, o *check.Operation) {
	o.Does = check.OpRead
	job, err := h.Job(ctx, o.Job)
	if o.Outcome = OutcomeOf(err); err == nil {
		o.Tag, o.Modify, o.Stopped = job.Meta["tag"], job.JobModifyIndex, job.Stop
		c.known[o.Job] = o.Modify
	}
}

func (c *keyClient) registerKeyJob(ctx context.Context, h Hub, o *check.Operation, enforce bool) {
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
	o.Outcome = OutcomeOf(err)
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
