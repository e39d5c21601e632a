package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"

	"skerry/api"
	"skerry/chaos/check"
	"skerry/chaos/hubclient"
	"skerry/client"
	"skerry/fleet"
	"skerry/fleet/validate"
)

// clientCount is the number of clients for the linearizability checker, and keyCount the
// number of jobs that they all register and read.
const (
	clientCount = 3
	keyCount    = 2
)

// startClients starts, in g, clients that register, read and stop small jobs until ctx ends. It starts none
// where the schedule asks for no operations.
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

// keyClient is a client that registers, reads and stops a few jobs that all clients share. One goroutine owns
// it.
type keyClient struct {
	u     *Users
	name  string
	rng   *rand.Rand
	every time.Duration               // mean pause between operations
	tags  int                         // number of tags that were used
	known map[fleet.JobID]fleet.Index // job modify index that was read last
}

// runOperations carries out random operations until ctx ends, and reports each to Users.Observe, but for reads
// without an answer. An operation that began is not cancelled by ctx.
func (c *keyClient) runOperations(ctx context.Context) {
	c.known = map[fleet.JobID]fleet.Index{}
	for Pause(ctx, time.Duration((0.5+c.rng.Float64())*float64(c.every))) {
		o := c.callRandomOperation(context.WithoutCancel(ctx))
		if o.Does == check.OpRead && o.Outcome == check.OutcomeUnknown {
			continue // it shows nothing
		}
		c.u.Observe(check.Observation{Operation: &o})
	}
}

// callRandomOperation chooses an operation, a job and a hub at random, calls the hub, and returns the operation
// with its outcome. It takes at most callTimeout.
func (c *keyClient) callRandomOperation(ctx context.Context) check.Operation {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	turn := c.rng.IntN(len(c.u.Hubs))
	h := c.u.hubOfTurn(turn)
	o := check.Operation{
		Client: c.name, Job: fleet.JobID(fmt.Sprintf("key-%d", 1+c.rng.IntN(keyCount))), Call: c.u.Elapsed(),
	}
	switch n := c.rng.IntN(10); {
	case n < 5:
		c.u.renewIfRefused(ctx, turn, c.readKeyJob(ctx, h, &o))
	case n < 9:
		c.u.renewIfRefused(ctx, turn, c.registerKeyJob(ctx, h, &o, n == 8))
	default:
		o.Does = check.OpDeregister
		answer, err := h.StopJob(ctx, o.Job, client.StopOptions{})
		o.Outcome = OutcomeOf(err)
		c.u.renewIfRefused(ctx, turn, err)
		if o.Modify = answer.Index; o.Outcome == check.OutcomeOK && o.Modify == 0 {
			o.Outcome = check.OutcomeNotFound // there was no such job, and nothing changed
		}
	}
	return o
}

// readKeyJob reads the job of o at a hub, and sets the outcome, tag and index of o.
func (c *keyClient) readKeyJob(ctx context.Context, h hubclient.Hub, o *check.Operation) error {
	o.Does = check.OpRead
	job, err := h.Job(ctx, o.Job)
	if o.Outcome = OutcomeOf(err); err == nil {
		o.Tag, o.Modify, o.Stopped = job.Meta["tag"], job.JobModifyIndex, job.Stop
		c.known[o.Job] = o.Modify
	}
	return err
}

// registerKeyJob registers the job of o with a new tag at a hub, and sets the outcome and index of o. With
// enforce it demands the modify index that it read last.
func (c *keyClient) registerKeyJob(ctx context.Context, h hubclient.Hub, o *check.Operation, enforce bool) error {
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
	return err
}

// keyJob returns a job with a count of 0, which places nothing, and with a tag in its meta.
func keyJob(id fleet.JobID, tag string) *fleet.Job {
	job := &fleet.Job{
		ID: id, Type: fleet.JobTypeService, Meta: map[string]string{"tag": tag},
		TaskGroups: []fleet.TaskGroup{{Name: "none", Tasks: []fleet.Task{{Name: "none", Driver: "sim"}}}},
	}
	validate.FillDefaults(job)
	job.TaskGroups[0].Count = 0
	return job
}
