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
	"skerry/chaos/hubclient"
	"skerry/chaos/schedule"
	"skerry/client"
	"skerry/fleet"
)

// Users are the people and programs that use a fleet during a run: they register the schedule's jobs, carry out
// its steps, drain edges, and make the operations for the linearizability checker. They call the hubs in turn.
type Users struct {
	Schedule schedule.Schedule
	Hubs     []hubclient.Hub
	Elapsed  func() time.Duration // since the schedule's start
	Observe  func(check.Observation)
	// Adapt changes a job of the schedule so that the platform can run it; nil: no change.
	Adapt func(*fleet.Job)
	// Access has the users' tokens; nil: access control is off.
	Access *Access
	// Marks get the secrets that users make; nil: nobody searches for them.
	Marks *SecretMarks

	mu     sync.Mutex
	wanted map[fleet.JobID]*fleet.Job // guarded by mu: each job as acknowledged last; nil: purged
	// copied has, by the time of each restore, what was wanted when its copy of the hubs was made.
	copied map[time.Duration]map[fleet.JobID]*fleet.Job // guarded by mu
	acked  map[schedule.Verb]int                        // guarded by mu: number of acknowledged steps
	// secrets are the variables that users have written, and secretNumber is the number of their last change.
	secrets      map[string]*secretVariable // guarded by mu
	secretNumber int                        // guarded by mu
	identities   []identityToken            // guarded by mu: the newest keptIdentities that hubs have sent to edges
}

const (
	// retryEvery is the pause before a user repeats a call that failed.
	retryEvery = 2 * time.Second
	// lastCalls is for how long after the schedule's end users repeat a call that they began before.
	lastCalls = time.Minute
	// callTimeout bounds the time for which a user waits for an answer.
	callTimeout = 10 * time.Second
	// promotePatience is how long a user waits for canaries that can be promoted.
	promotePatience = 2 * time.Minute
)

// errUnknownEdge is the error of a hub that knows no node with an edge's name.
var errUnknownEdge = errors.New("no hub knows it")

// Play starts all users in g. They act until ctx ends, at the end of the schedule's length.
func (u *Users) Play(ctx context.Context, g *errgroup.Group) {
	for _, j := range u.Schedule.Jobs {
		g.Go(func() error { return u.playJobSteps(ctx, j) })
	}
	u.startClients(ctx, g)
	u.startSecretClients(ctx, g)
	u.startProbes(ctx, g)
	u.startIdentityProbes(ctx, g)
}

// playJobSteps registers a job at its start and carries out its steps in order, each at its time. It blocks
// until then. A job with Every it stops when ctx ends.
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
		if j.Secret && s.Verb == schedule.Run {
			if err := u.ensureSecret(ctx, s); err != nil {
				return err
			}
		}
		do := u.playJobStep
		switch s.Verb {
		case schedule.Promote:
			do = u.promoteCanaries
		case schedule.Dispatch:
			do = u.dispatchJob
		case schedule.Store:
			do = u.storeSecret
		}
		if err := do(ctx, s); err != nil {
			return err
		}
	}
	if j.Every > 0 { // else the fleet would never settle
		<-ctx.Done()
		return u.submitUntilAcked(ctx, schedule.Step{At: u.Schedule.Length, Verb: schedule.Stop, Job: j.ID}, &fleet.Job{ID: j.ID, Stop: true})
	}
	return nil
}

// promoteCanaries promotes a job's canaries as soon as a deployment of it waits for that. It gives up without
// an error after promotePatience.
func (u *Users) promoteCanaries(ctx context.Context, s schedule.Step) error {
	ctx, stop := context.WithTimeout(ctx, promotePatience)
	defer stop()
	for n := 0; ctx.Err() == nil; n++ {
		promoted, err := u.promoteAt(ctx, u.hubOfTurn(n), s.Job)
		if promoted {
			u.countAckedStep(s)
			return nil
		}
		u.renewIfRefused(ctx, n, err)
		Pause(ctx, retryEvery)
	}
	return nil
}

// promoteAt promotes, at a hub, the deployment of a job that waits for promotion. It reports the request to the
// checkers. false: there is none, or the call failed.
func (u *Users) promoteAt(ctx context.Context, h hubclient.Hub, id fleet.JobID) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	all, err := h.ActiveDeployments(ctx)
	i := slices.IndexFunc(all, func(d fleet.Deployment) bool { return d.JobID == id && d.RequiresPromotion() })
	if err != nil || i < 0 {
		return false, err
	}
	u.Observe(check.Observation{Request: &check.Request{What: check.AskPromote, Job: id}})
	_, err = h.PromoteDeployment(ctx, all[i].ID)
	return err == nil, err
}

// playJobStep brings a job to the state that the schedule has after a step. It calls the hubs in turn until one
// acknowledges.
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

// RepeatAll registers or stops each job again, by the schedule's end: hubs that were put back to an older copy
// have lost a part of it.
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
		if j.Secret && s.Verb == schedule.Run {
			if err := u.ensureSecret(ctx, s); err != nil {
				return err
			}
		}
		if err := u.submitUntilAcked(ctx, s, job); err != nil {
			return err
		}
	}
	return nil
}

// submitUntilAcked carries out a step until a hub acknowledges it. It then records job as what is wanted (nil:
// the job is purged) and reports it to the checkers. Without an acknowledgement in time it does neither.
func (u *Users) submitUntilAcked(ctx context.Context, s schedule.Step, job *fleet.Job) error {
	acked, err := u.askUntilAcked(ctx, s, func(ctx context.Context, h hubclient.Hub) error { return sendJobStep(ctx, h, s, job) })
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

// observeWantedJob reports to the checkers a job as it was acknowledged; nil: it was purged.
func (u *Users) observeWantedJob(id fleet.JobID, job *fleet.Job) {
	if job == nil {
		job = &fleet.Job{ID: id, Stop: true}
	}
	u.Observe(check.Observation{Job: job})
}

// askUntilAcked calls ask with one hub after another until it succeeds, and reports false if none did until
// lastCalls after the schedule's end. It returns an error where a hub rejects the request.
func (u *Users) askUntilAcked(ctx context.Context, s schedule.Step, ask func(context.Context, hubclient.Hub) error) (bool, error) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), max(0, u.Schedule.Length-u.Elapsed())+lastCalls)
	defer stop()
	for n := int(s.At / time.Second); ; n++ {
		asked, cancel := context.WithTimeout(ctx, callTimeout)
		err := ask(asked, u.hubOfTurn(n))
		cancel()
		renewed := u.renewIfRefused(ctx, n, err)
		status := client.StatusOf(err)
		switch {
		case err == nil:
			u.countAckedStep(s)
			return true, nil
		case renewed:
		case status == http.StatusNotFound && s.Verb != schedule.Run:
			return true, nil // it was purged before, and nothing is left to do
		case status > 0 && status < 500 && status != http.StatusTooManyRequests && (u.Access == nil || status != http.StatusForbidden):
			return false, fmt.Errorf("%s job %s: %w", s.Verb, s.Job, err)
		case !Pause(ctx, retryEvery):
			return false, nil
		}
	}
}

// countAckedStep adds one to the number of acknowledged steps of the step's verb.
func (u *Users) countAckedStep(s schedule.Step) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.acked == nil {
		u.acked = map[schedule.Verb]int{}
	}
	u.acked[s.Verb]++
}

// AckedSteps returns how many steps of each verb were acknowledged so far.
func (u *Users) AckedSteps() map[schedule.Verb]int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return maps.Clone(u.acked)
}

// sendJobStep calls a hub once for a step: it stops or purges the job, or registers it.
func sendJobStep(ctx context.Context, h hubclient.Hub, s schedule.Step, job *fleet.Job) error {
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

// hubOfTurn returns the hub to call in the n-th attempt, with the users' token if access control is on.
func (u *Users) hubOfTurn(n int) hubclient.Hub {
	h := u.Hubs[n%len(u.Hubs)]
	if u.Access == nil {
		return h
	}
	return u.Access.Operator(h)
}

// renewIfRefused gets another token for the users if the error of the n-th call says that theirs does not count any more,
// and reports whether it did.
func (u *Users) renewIfRefused(ctx context.Context, n int, err error) bool {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return u.Access.renewIfRefused(ctx, u.Hubs[n%len(u.Hubs)], err)
}

// WantedCounts returns how many allocations of each service job have to run, by what was acknowledged. Jobs of
// other types are in it, with 0, only after they were stopped.
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

// keepWantedJobs records the present wanted jobs for a restore, at the time at which its copy of the hubs is
// made.
func (u *Users) keepWantedJobs(restore schedule.Fault) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.copied == nil {
		u.copied = map[time.Duration]map[fleet.JobID]*fleet.Job{}
	}
	u.copied[restore.At] = maps.Clone(u.wanted)
}

// rewindWantedJobs makes the jobs of a restore's copy the wanted ones, and reports them to the checkers. Other
// jobs are forgotten: nobody registers them again.
func (u *Users) rewindWantedJobs(restore schedule.Fault) {
	u.mu.Lock()
	known := maps.Clone(u.copied[restore.At])
	u.wanted = maps.Clone(known)
	u.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(known)) {
		u.observeWantedJob(id, known[id])
	}
}

// drainEdge drains an edge: it calls the hubs until one acknowledges, at most for the fault's duration. The
// fault hits where one did. Its Heal makes the edge eligible again, and repeats that until lastCalls after the
// schedule's end.
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
				failed = fmt.Errorf("make %s eligible again: %w", edge, err)
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

// drainUntilAcked asks one hub after another to change an edge's drain until one acknowledges. When ctx ends it
// returns the last error.
func (u *Users) drainUntilAcked(ctx context.Context, edge string, req api.DrainRequest) error {
	for n := 0; ; n++ {
		err := askDrain(ctx, u.hubOfTurn(n), edge, req)
		if err == nil {
			return nil
		}
		u.renewIfRefused(ctx, n, err)
		if !Pause(ctx, retryEvery) {
			return err
		}
	}
}

// askDrain asks a hub once to change the drain of the edge with a name.
func askDrain(ctx context.Context, h hubclient.Hub, edge string, req api.DrainRequest) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	id, err := nodeNamed(ctx, h, edge)
	if err != nil {
		return err
	}
	_, err = h.DrainNode(ctx, id, req)
	return err
}
