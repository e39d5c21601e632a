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
	"skerry/chaos/schedule"
	"skerry/client"
	"skerry/fleet"
)

// Users are the people and programs that use a fleet as a schedule says: they register its jobs,
// take its steps, drain edges, and make small registrations and reads for the linearizability
// checker. They ask one hub after the other.
type Users struct {
	Schedule schedule.Schedule
	Hubs     []Hub
	Elapsed  func() time.Duration // since the schedule's start
	Observe  func(check.Observation)
	// Adapt makes a job of the schedule one that the platform runs; nil: it is one.
	Adapt func(*fleet.Job)

	mu     sync.Mutex
	wanted map[fleet.JobID]*fleet.Job // guarded by mu: as it was acknowledged last; nil: purged
	// copied is what was wanted when the copy for a restore was made, by the restore's time.
	copied map[time.Duration]map[fleet.JobID]*fleet.Job // guarded by mu
	acked  map[schedule.Verb]int                        // guarded by mu: steps
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
		switch s.Verb {
		case schedule.Promote:
			do = u.promoteCanaries
		case schedule.Dispatch:
			do = u.dispatchJob
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
		if u.promoteAt(ctx, u.hubOfTurn(n), s.Job) {
			u.countAckedStep(s)
			return nil
		}
		Pause(ctx, retryEvery)
	}
	return nil
}

// promoteAt promotes the deployment of a job that waits for it, as a hub knows it.
func (u *Users) promoteAt(ctx context.Context, h Hub, id fleet.JobID) bool {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	all, err := h.ActiveDeployments(ctx)
	i := slices.IndexFunc(all, func(d fleet.Deployment) bool { return d.JobID == id && d.RequiresPromotion() })
	if err != nil || i < 0 {
		return false
	}
	u.Observe(check.Observation{Request: &check.Request{What: check.AskPromote, Job: id}})
	_, err = h.PromoteDeployment(ctx, all[i].ID)
	return err == nil
}

// dispatchJob launches a parameterized job, once: all attempts have the same token.
func (u *Users) dispatchJob(ctx context.Context, s schedule.Step) error {
	token := fmt.Sprintf("%d-%s", u.Schedule.Seed, s.At)
	_, err := u.askUntilAcked(ctx, s, func(ctx context.Context, h Hub) error {
		_, err := h.DispatchJob(ctx, s.Job, token, api.JobDispatchRequest{})
		return err
	})
	return err
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

// RepeatAll asks once more for all that is wanted at the schedule's end: a restored cluster forgot
// a part of it.
func (u *Users) RepeatAll(ctx context.Context) error {
	for _, j := range u.Schedule.Jobs {
		s := schedule.Step{At: u.Schedule.Length, Verb: schedule.Run, Job: j.ID}
		job, err := u.Schedule.DesiredJob(j.ID, s.At)
		if err != nil {
			return err
		}
		if job == nil || job.Stop || j.Every > 0 {
			job, s.Verb = &fleet.Job{ID: j.ID, Stop: true}, schedule.Stop
		} else if u.Adapt != nil {
			u.Adapt(job)
		}
		if err := u.submitUntilAcked(ctx, s, job); err != nil {
			return err
		}
	}
	return nil
}

// submitUntilAcked carries a step out that makes a job (nil: purged) what it then is.
func (u *Users) submitUntilAcked(ctx context.Context, s schedule.Step, job *fleet.Job) error {
	acked, err := u.askUntilAcked(ctx, s, func(ctx context.Context, h Hub) error { return sendJobStep(ctx, h, s, job) })
	if err != nil || !acked {
		return err
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

// askUntilAcked asks one hub after the other for a step until it is acknowledged; false: no hub did in
// time.
func (u *Users) askUntilAcked(ctx context.Context, s schedule.Step, ask func(context.Context, Hub) error) (bool, error) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), max(0, u.Schedule.Length-u.Elapsed())+lastCalls)
	defer stop()
	for n := int(s.At / time.Second); ; n++ {
		asked, cancel := context.WithTimeout(ctx, callTimeout)
		err := ask(asked, u.hubOfTurn(n))
		cancel()
		status := client.StatusOf(err)
		switch {
		case err == nil:
			u.countAckedStep(s)
			return true, nil
		case status == http.StatusNotFound && s.Verb != schedule.Run:
			return true, nil // it was purged before; nothing is left to be done
		case status > 0 && status < 500 && status != http.StatusTooManyRequests:
			return false, fmt.Errorf("%s job %s: %w", s.Verb, s.Job, err)
		case !Pause(ctx, retryEvery):
			return false, nil
		}
	}
}

func (u *Users) countAckedStep(s schedule.Step) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.acked == nil {
		u.acked = map[schedule.Verb]int{}
	}
	u.acked[s.Verb]++
}

// AckedSteps is how many steps of each verb were acknowledged.
func (u *Users) AckedSteps() map[schedule.Verb]int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return maps.Clone(u.acked)
}

func sendJobStep(ctx context.Context, h Hub, s schedule.Step, job *fleet.Job) error {
	switch s.Verb {
	case schedule.Stop:
		_, err := h.StopJob(ctx, s.Job, client.StopOptions{})
		return err
	case schedule.Purge:
		_, err := h.StopJob(ctx, s.Job, client.StopOptions{Purge: true})
		return err
	}
	_, err := h.RegisterJob(ctx, job, api.JobRegisterRequest{})
	return err
}

// hubOfTurn is the hub that is asked at the n-th attempt.
func (u *Users) hubOfTurn(n int) Hub { return u.Hubs[n%len(u.Hubs)] }

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

// keepWantedJobs remembers what is wanted when the copy is made to which a restore puts the hubs
// back.
func (u *Users) keepWantedJobs(restore schedule.Fault) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.copied == nil {
		u.copied = map[time.Duration]map[fleet.JobID]*fleet.Job{}
	}
	u.copied[restore.At] = maps.Clone(u.wanted)
}

// rewindWantedJobs makes wanted what the copy of a restore knows: the rest is forgotten, and nobody
// registers it again.
func (u *Users) rewindWantedJobs(restore schedule.Fault) {
	u.mu.Lock()
	known := maps.Clone(u.copied[restore.At])
	u.wanted = maps.Clone(known)
	u.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(known)) {
		u.observeWantedJob(id, known[id])
	}
}

// drainEdge empties an edge, and has it take work again when the fault is over. Where no hub leads
// for all of that time, it does not hit. That the edge takes work again is asked for until a hub
// takes it: no other fault lasts beyond the schedule's end.
func (u *Users) drainEdge(ctx context.Context, edge string, f schedule.Fault) Active {
	trying, stop := context.WithTimeout(ctx, f.For)
	defer stop()
	asked := api.DrainRequest{DrainSpec: &api.DrainSpec{Deadline: f.Params.Deadline, IgnoreSystemJobs: f.Params.KeepSystem}}
	failed := u.drainUntilAcked(trying, edge, asked)
	return Active{
		Heal: func(ctx context.Context) error {
			ctx, stop := context.WithTimeout(ctx, max(0, u.Schedule.Length-u.Elapsed())+lastCalls)
			defer stop()
			if err := u.drainUntilAcked(ctx, edge, api.DrainRequest{MarkEligible: true}); err != nil {
				failed = fmt.Errorf("%s does not take work again: %w", edge, err)
			}
			return nil
		},
		Evidence: func() (uint64, string) {
			if failed != nil {
				return 0, failed.Error()
			}
			return 1, ""
		},
	}
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

func askDrain(ctx context.Context, h Hub, edge string, req api.DrainRequest) error {
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
