package allocs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"skerry/edge/contract"
	"skerry/edge/journal"
	"skerry/fleet"
	"skerry/syncproto"
)

// DefaultKeepEnded is the number of ended allocations that keep their folder.
const DefaultKeepEnded = 50

// Journal is the part of *journal.Journal that Allocs uses. It is an interface because tests replace the disk.
// Methods without a context read or change memory only.
type Journal interface {
	contract.Recorder
	Desired(ctx context.Context) (journal.Desired, error)
	PutDesired(ctx context.Context, d syncproto.Desired) (missing []string, err error)
	Adopt(ctx context.Context, d syncproto.Desired) error
	Stop(ctx context.Context, stop syncproto.DesiredStop, ts ...fleet.Transition) error
	KeepStopped(ctx context.Context, ids []fleet.AllocID, kept bool, ts ...fleet.Transition) error
	Remove(ctx context.Context, id fleet.AllocID) error
	PutHandles(ctx context.Context, key string, handles map[fleet.AllocID][]byte) error
	HandlesUnder(ctx context.Context, key string) (map[fleet.AllocID][]byte, error)

	States() map[fleet.AllocID]journal.State
	Head() journal.Head
	Link() journal.Link
	Mono() time.Duration
	Away() time.Duration
	AwayAtMost() time.Duration
	TimeFloor() int64
	HubNow() (now time.Time, known bool)
	SetCheckpointInterval(d time.Duration)
}

// Config of Allocs. Journal, NewRunner, BootID and Dir are required.
type Config struct {
	Journal   Journal
	NewRunner contract.New
	BootID    fleet.BootID
	Dir       string // DATA/allocs, which has a folder for each allocation
	TasksDir  string // DATA/tasks: folders that runners keep until their allocation ends; "": none
	KeepEnded int    // ended allocations that keep their folder; 0: 50
	TimeZone  string // of the site, for update windows; "": UTC
	Checks    Checks // checks of services; nil: none, and health depends on tasks only
	// WhyFull returns why no new allocation may start on an almost full disk, or "". nil: the disk is never full.
	WhyFull func() string
	Now     func() time.Time // wall clock, for launches of periodic jobs; nil: time.Now
	Log     *slog.Logger
}

// Allocs gives each desired allocation a runner and stops runners. Its exported methods may be called from any
// goroutine.
type Allocs struct {
	cfg     Config
	log     *slog.Logger
	wakeups chan struct{} // makes Run reconcile; capacity 1
	watch   *recoveryWatch
	silence *silenceLimit
	runners sync.WaitGroup // one for each runner's goroutine

	registered []*activeAlloc // whose runners do not run yet; owned by Run

	mu     sync.Mutex
	active map[fleet.AllocID]*activeAlloc
	notes  map[fleet.AllocID]string // why a desired allocation does not run
	parked map[fleet.AllocID]bool   // held allocations of which nothing runs
	// runDeliveredAt is when a hub delivered an allocation to run that did not run here. It counts as contact with a hub until
	// the next answered heartbeat.
	runDeliveredAt map[fleet.AllocID]time.Time
	checked        map[fleet.AllocID]bool // allocations whose services are checked

	health   health
	launches launches
	moving   *movingData
}

// activeAlloc is an allocation that has a runner.
type activeAlloc struct {
	alloc   fleet.Alloc // as the runner knows it
	runner  contract.Runner
	stopped bool // Stop was called
	held    bool // Hold was called, if the runner has it

	// delaySkipped says that the stop skips the shutdown_delay, and that the runner was told so if it can do
	// that.
	delaySkipped bool // SkipDelay was called, if the runner has it

	launch *launchRecorder // nil: the allocation is not launched at times
}

// New makes Allocs. It does no I/O and starts no goroutine.
func New(cfg Config) (*Allocs, error) {
	if cfg.Journal == nil || cfg.NewRunner == nil || cfg.Dir == "" || cfg.BootID == "" {
		return nil, errors.New("run allocations: a journal, a factory of runners, a folder and a boot id are required")
	}
	cfg.KeepEnded = cmp.Or(cfg.KeepEnded, DefaultKeepEnded)
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	if cfg.WhyFull == nil {
		cfg.WhyFull = func() string { return "" }
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	a := &Allocs{
		cfg: cfg, log: cfg.Log,
		wakeups:        make(chan struct{}, 1),
		watch:          newRecoveryWatch(cfg.Journal),
		silence:        newSilenceLimit(),
		active:         map[fleet.AllocID]*activeAlloc{},
		notes:          map[fleet.AllocID]string{},
		parked:         map[fleet.AllocID]bool{},
		runDeliveredAt: map[fleet.AllocID]time.Time{},
		moving:         newMovingData(),
		health:         health{started: map[fleet.AllocID]healthStart{}},
	}
	a.watch.recorded = a.wakeForHealthRows
	return a, nil
}

// reconcileRetry is how soon Run reconciles again if a deadline is near or the journal failed.
const reconcileRetry = 5 * time.Second

// Run recovers and starts the allocations of the journal, and then follows the desired state until ctx ends.
// When it returns, always nil, the runners have returned and the tasks go on.
func (a *Allocs) Run(ctx context.Context) error {
	defer a.runners.Wait()
	if a.cfg.Checks != nil {
		defer a.cfg.Checks.Wait()
	}
	a.removeIncomplete()
	first := true
	for {
		next, err := a.reconcileAllocs(ctx, first)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			a.log.Error("some allocations could not be reconciled: trying again", "error", err)
			next = reconcileRetry
		} else if first {
			first = false
			a.watch.stopExpecting()
		}
		timer := time.NewTimer(next)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-a.wakeups:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// Recovered returns a channel that is closed when every task that the first reconciliation started or recovered
// runs or has ended.
func (a *Allocs) Recovered() <-chan struct{} { return a.watch.done }

// TriggerReconcile makes Run reconcile now. It does not wait for that.
func (a *Allocs) TriggerReconcile() {
	select {
	case a.wakeups <- struct{}{}:
	default: // a wake-up is pending already
	}
}

// Deliver journals a hub's delivery; Run acts on it later. It returns the hashes of job bodies that the journal lacks
// (missing), and for a full delivery the unfinished allocations that it does not name (holdings). An end that the hub
// had acknowledged is recorded again if the hub still names the allocation: the cluster lost it.
func (a *Allocs) Deliver(ctx context.Context, d syncproto.Desired) (missing []string, holdings []fleet.AllocID, err error) {
	states := a.cfg.Journal.States()
	for _, r := range d.Run {
		if s, known := states[r.ID]; !known || s.Terminal() {
			a.noteRunDelivered(r.ID)
		}
	}
	missing, err = a.cfg.Journal.PutDesired(ctx, d)
	if err != nil {
		return nil, nil, fmt.Errorf("journal desired state %d: %w", d.Index, err)
	}
	a.TriggerReconcile()
	states, acknowledged := a.cfg.Journal.States(), a.cfg.Journal.Head().Acknowledged
	mentioned := map[fleet.AllocID]bool{}
	ended := map[fleet.AllocID]journal.State{}
	for _, r := range d.Run {
		mentioned[r.ID] = true
		if s := states[r.ID]; s.Terminal() && s.Seq <= acknowledged {
			ended[r.ID] = s
		}
	}
	if err := a.restateAllocs(ctx, ended); err != nil {
		return nil, nil, err
	}
	if !d.Full {
		return missing, nil, nil
	}
	for _, s := range d.Stop {
		mentioned[s.ID] = true
	}
	desired, err := a.readDesired(ctx)
	if err != nil {
		return nil, nil, err
	}
	for id, w := range desired {
		if !mentioned[id] && !w.Stop && !states[id].Terminal() {
			holdings = append(holdings, id)
		}
	}
	for id, s := range states {
		// A damaged journal lost both the desired state and the end of this allocation: only a hub
		// knows if it is still needed.
		if _, wanted := desired[id]; !wanted && !mentioned[id] && !s.Terminal() {
			holdings = append(holdings, id)
		}
	}
	return missing, sortIDs(holdings), err
}

// Restate appends rows that repeat the state of every allocation, for a cluster that has lost them.
func (a *Allocs) Restate(ctx context.Context) error {
	return a.restateAllocs(ctx, a.cfg.Journal.States())
}

// restateAllocs appends rows that repeat the given states.
func (a *Allocs) restateAllocs(ctx context.Context, states map[fleet.AllocID]journal.State) error {
	ts := journal.Restatement(states, a.currentMoment(), "repeated: the cluster has lost it")
	if len(ts) == 0 {
		return nil
	}
	if err := a.cfg.Journal.Record(ctx, ts...); err != nil {
		return fmt.Errorf("record the states of allocations again: %w", err)
	}
	return nil
}

// currentMoment returns the machine's boot and clocks as rows have them.
func (a *Allocs) currentMoment() journal.Moment {
	return journal.Moment{Boot: a.cfg.BootID, Mono: a.cfg.Journal.Mono(), Wall: time.Now()}
}

// readDesired returns the desired allocations as journaled, stops that wait for an update window included.
func (a *Allocs) readDesired(ctx context.Context) (map[fleet.AllocID]journal.DesiredAlloc, error) {
	d, err := a.cfg.Journal.Desired(ctx)
	return d.Allocs, err
}

// Order is a request to restart or signal running tasks.
type Order struct {
	Alloc  fleet.AllocID
	Task   string // "": all running tasks
	Signal string // signal to send; "": restart
	// Everything refuses the order if one of the tasks has ended, because an ended task would not be started again.
	Everything bool
	// OnSite says that the order comes from an operator on site and not from a hub; it is journaled then.
	OnSite bool
	// Why is the reason that events show.
	Why string
}

// Order restarts or signals tasks of an allocation that has a runner. It returns when a restart is journaled,
// or a signal is sent.
func (a *Allocs) Order(ctx context.Context, o Order) error {
	u, err := a.findActiveAlloc(ctx, o.Alloc)
	if err != nil {
		return err
	}
	if o.Everything {
		for name, s := range a.cfg.Journal.States()[o.Alloc].TaskStates {
			if s.State == fleet.TaskDead {
				return fleet.Errorf(fleet.CodeUnsupported, "restart all tasks of allocation %s: task %q has ended and cannot start again in this allocation",
					fleet.Short(o.Alloc), name).WithHint("stop the allocation: its job then gets a new one")
			}
		}
	}
	if o.OnSite {
		if err := checkAllowed(&u.alloc, fleet.LocalRestart); err != nil {
			return err
		}
		row := fleet.Transition{Kind: fleet.TransitionOperator, Alloc: o.Alloc, Task: o.Task, Message: o.Why}
		if err := a.cfg.Journal.Record(ctx, row); err != nil {
			return fmt.Errorf("restart allocation %s: %w", fleet.Short(o.Alloc), err)
		}
	}
	if o.Signal != "" {
		return u.runner.Signal(ctx, o.Task, o.Signal, o.Why)
	}
	return u.runner.Restart(ctx, o.Task, o.Why)
}

// findUnfinishedAlloc returns a desired allocation that has not ended. It returns fleet.CodeNotFound for an unknown
// one and fleet.CodeConflict for an ended one.
func (a *Allocs) findUnfinishedAlloc(ctx context.Context, id fleet.AllocID) (journal.DesiredAlloc, error) {
	desired, _, err := a.desiredAllocs(ctx)
	if err != nil {
		return journal.DesiredAlloc{}, err
	}
	w, ok := desired[id]
	if !ok {
		return journal.DesiredAlloc{}, fleet.Errorf(fleet.CodeNotFound, "allocation %s is not on this edge", id)
	}
	if s := a.cfg.Journal.States()[id]; s.Terminal() {
		return journal.DesiredAlloc{}, fleet.Errorf(fleet.CodeConflict, "allocation %s has ended, its status is %s", fleet.Short(id), s.ClientStatus)
	}
	return w, nil
}

// Status is the desired and the actual state of one allocation.
type Status struct {
	Desired journal.DesiredAlloc
	State   journal.State
	Note    string        // why it does not run, or still runs, against the desired state; "" if they agree
	StopsIn time.Duration // until stop_on_client_after stops it; 0: never
	// BetweenLaunches says that this edge launches it periodically, and that no launch of it runs now.
	BetweenLaunches bool
}

// Status returns the status of all desired allocations of this edge, also of ended ones that are not removed
// yet.
func (a *Allocs) Status(ctx context.Context) (map[fleet.AllocID]Status, error) {
	desired, held, err := a.desiredAllocs(ctx)
	if err != nil {
		return nil, err
	}
	states, away := a.cfg.Journal.States(), a.cfg.Journal.AwayAtMost()
	all := make(map[fleet.AllocID]Status, len(desired))
	for id, w := range desired {
		s := Status{Desired: w, State: states[id], Note: cmp.Or(held.heldStopReason(id), heldNote(w, states[id]), a.noteOf(id))}
		if after, ok := stopAfter(w); ok && !w.Stop && !s.State.Terminal() {
			s.StopsIn = max(time.Nanosecond, after-a.timeWithoutHub(id, away))
		}
		s.BetweenLaunches = runsAtEdge(&w) && a.launches.recordFor(&w.Alloc).Alloc != id
		all[id] = s
	}
	return all, nil
}
