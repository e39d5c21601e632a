package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"skerry/api"
	"skerry/chaos/check"
	"skerry/chaos/operator"
	"skerry/chaos/schedule"
	"skerry/client"
	"skerry/fleet"
)

// Users are the people and programs that use a fleet as a schedule says: they register its jobs,
// take its steps, drain edges, and make small registrations and reads for the linearizability
// checker. They ask one hub after the other.
type Users struct {
	Schedule schedule.Schedule
	Hubs     []operator.Hub
	Elapsed  func() time.Duration // since the schedule's start
	Observe  func(check.Observation)
	// Adapt makes a job of the schedule one that the platform runs; nil: it is one.
	Adapt func(*fleet.Job)

	mu     sync.Mutex
	wanted map[fleet.JobID]*fleet.Job // guarded by mu: as it was acknowledged last; nil: purged
	// copied is what was wanted when the copy for a restore was made, by the restore's time.
	copied map[time.Duration]map[fleet.JobID]*fleet.Job // guarded by mu
}

const (
	// retryEvery is how soon a user tries again what did not work.
	retryEvery = 2 * time.Second
	// lastCalls is how long a user goes on after the schedule's end with what was begun.
	lastCalls = time.Minute
	// callTimeout is how long a user waits for an answer.
	callTimeout = 10 * time.Second
	// promotePatience is how long somebody waits for canaries before they are given up on.
	promotePatience = 2 * time.Minute
)

// errUnknownEdge says that no hub that answers knows an edge.
var errUnknownEdge = errors.New("no hub knows it")

// Play has all users act until ctx ends, which is when the schedule's length is over.
func (u *Users) Play(ctx context.Context, g *errgroup.Group) {
	for _, j := range u.Schedule.Jobs {
		g.Go(func() error { return u.playJobSteps(ctx, j) })
	}
	u.startClients(ctx, g)
}

// playJobSteps does to a job what the schedule says, one thing after the other.
func (u *Users) playJobSteps(ctx context.Context, j schedule.Job) error {
	steps := []schedule.Step{{At: j.Start, Verb: schedule.Run, Job: j.ID}}
	for _, s := range u.Schedule.Steps {
		if s.Job == j.ID {
			steps = append(steps, s)
		}
	}
	for _, s := range steps {
		if !Pause(ctx, s.At-u.Elapsed()) {
			return nil
		}
		do := u.playJobStep
		if s.Verb == schedule.Promote {
			do = u.promoteCanaries
		}
		if err := do(ctx, s); err != nil {
			return err
		}
	}
	if j.Every > 0 { // else nothing would ever be quiet
		<-ctx.Done()
		return u.submitUntilAcked(ctx, schedule.Step{At: u.Schedule.Length, Verb: schedule.Stop, Job: j.ID}, &fleet.Job{ID: j.ID, Stop: true})
	}
	return nil
}

// promoteCanaries promotes a job's canaries, as soon as they are healthy. Where there are none
// for a while, nobody waits for them any longer.
func (u *Users) promoteCanaries(ctx context.Context, s schedule.Step) error {
	ctx, stop := context.WithTimeout(ctx, promotePatience)
	defer stop()
	for n := 0; ctx.Err() == nil; n++ {
		if u.promoteAt(ctx, u.hubOfTurn(n), s.Job) || !Pause(ctx, retryEvery) {
			return nil
		}
	}
	return nil
}

// promoteAt promotes the deployment of a job that waits for it, as a hub knows it.
func (u *Users) promoteAt(ctx context.Context, h operator.Hub, id fleet.JobID) bool {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	all, err := h.Deployments(ctx)
	i := slices.IndexFunc(all, func(d fleet.Deployment) bool { return d.JobID == id && d.RequiresPromotion() })
	if err != nil || i < 0 {
		return false
	}
	u.Observe(check.Observation{Request: &check.Request{What: check.AskPromote, Job: id}})
	_, err = h.PromoteDeployment(ctx, all[i].ID)
	return err == nil
}

// playJobStep carries one step out, at one hub after the other until it is acknowledged.
func (u *Users) playJobStep(ctx context.Context, s schedule.Step) error {
	job, err := u.Schedule.DesiredJob(s.Job, s.At)
	if err != nil {
		return err
	}
	if job != nil && u.Adapt != nil {
		u.Adapt(job)
	}
	return u.submitUntilAcked(ctx, s, job)
}

// submitUntilAcked carries a step out that makes a job (nil: purged) what it then is.
func (u *Users) submitUntilAcked(ctx context.Context, s schedule.Step, job *fleet.Job) error {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), u.Schedule.Length-u.Elapsed()+lastCalls)
	defer stop()
	for n := int(s.At / time.Second); ; n++ {
		err := sendJobStep(ctx, u.hubOfTurn(n), s, job)
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
		if !Pause(ctx, retryEvery) {
			return nil
		}
	}
	u.mu.Lock()
	if u.wanted == nil {
		u.wanted = map[fleet.JobID]*fleet.Job{}
	}
	u.wanted[s.Job] = job
	u.mu.Unlock()
	u.observeWantedJob(s.Job, job)
	return nil
}

// observeWantedJob has the checkers know what was acknowledged of a job; nil: it is purged.
func (u *Users) observeWantedJob(id fleet.JobID, job *fleet.Job) {
	if job == nil {
		job = &fleet.Job{ID: id, Stop: true}
	}
	u.Observe(check.Observation{Job: job})
}

func sendJobStep(ctx context.Context, h operator.Hub, s schedule.Step, job *fleet.Job) error {
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

// hubOfTurn is the hub that is asked at the n-th attempt.
func (u *Users) hubOfTurn(n int) operator.Hub { return u.Hubs[n%len(u.Hubs)] }

// WantedCounts is how many allocations of each service shall run, as it was acknowledged.
func (u *Users) WantedCounts() map[fleet.JobID]int {
	u.mu.Lock()
	defer u.mu.Unlock()
	counts := map[fleet.JobID]int{}
	for id, j := range u.wanted {
		switch {
		case j == nil || j.Stop:
			counts[id] = 0
		case j.Type == fleet.JobTypeService:
			for _, g := range j.TaskGroups {
				counts[id] += g.Count
			}
		}
	}
	return counts
}

// KeepWantedJobs remembers what is wanted when the copy is made to which a restore puts the hubs
// back.
func (u *Users) KeepWantedJobs(restore schedule.Fault) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.copied == nil {
		u.copied = map[time.Duration]map[fleet.JobID]*fleet.Job{}
	}
	u.copied[restore.At] = maps.Clone(u.wanted)
}

// RewindWantedJobs makes wanted what the copy of a restore knows: the rest is forgotten, and nobody
// registers it again.
func (u *Users) RewindWantedJobs(restore schedule.Fault) {
	u.mu.Lock()
	known := maps.Clone(u.copied[restore.At])
	u.wanted = maps.Clone(known)
	u.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(known)) {
		u.observeWantedJob(id, known[id])
	}
}

// DrainEdge empties an edge, and has it take work again when the fault is over. Where no hub leads
// for all of that time, it does not hit. That the edge takes work again is asked for until a hub
// takes it: no other fault lasts beyond the schedule's end.
func (u *Users) DrainEdge(ctx context.Context, edge string, f schedule.Fault) (Active, error) {
	trying, stop := context.WithTimeout(ctx, f.For)
	defer stop()
	asked := api.DrainRequest{DrainSpec: &api.DrainSpec{Deadline: f.Params.Deadline, IgnoreSystemJobs: f.Params.KeepSystem}}
	a := Done(0, "")
	if u.drainUntilAcked(trying, edge, asked) == nil {
		a = Done(1, "")
	}
	a.Heal = func(ctx context.Context) error {
		ctx, stop := context.WithTimeout(ctx, max(0, u.Schedule.Length-u.Elapsed())+lastCalls)
		defer stop()
		if err := u.drainUntilAcked(ctx, edge, api.DrainRequest{MarkEligible: true}); err != nil {
			return fmt.Errorf("have %s take work again: %w", edge, err)
		}
		return nil
	}
	return a, nil
}

// drainUntilAcked asks for a change of an edge's drain, one hub after the other, until it is
// acknowledged.
func (u *Users) drainUntilAcked(ctx context.Context, edge string, req api.DrainRequest) error {
	for n := 0; ; n++ {
		err := askDrain(ctx, u.hubOfTurn(n), edge, req)
		if err == nil {
			return nil
		}
		if !Pause(ctx, retryEvery) {
			return err
		}
	}
}

func askDrain(ctx context.Context, h operator.Hub, edge string, req api.DrainRequest) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	f, err := h.Fleet(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(f.Nodes, func(n api.NodeLine) bool { return n.Name == edge })
	if i < 0 {
		return errUnknownEdge
	}
	_, err = h.DrainNode(ctx, f.Nodes[i].ID, req)
	return err
}
