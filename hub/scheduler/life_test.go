package scheduler_test

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
)

// modelTest is a cluster that lives: lines say what befalls it, and after each line
// invariants are checked. A line about something that is not there does nothing, so
// that any part of a life is a life. testdata/lives/README.md has the language.
type modelTest struct {
	hub       *modelHub
	jobs      map[fleet.JobID]*fleet.Job
	before    *state.View
	mostNames map[fleet.DeploymentID]int // names that lived at once under it
	tally     tally
	trace     io.Writer // nil: nobody reads along
}

// errUnknownLine: a line is not one of the language.
var errUnknownLine = errors.New("not a line of a life")

// runTrace plays lines, and then the end of every life: all edges come back, there is
// room, time passes.
func runTrace(lines []string, trace io.Writer) (t tally, err error) {
	l := &modelTest{trace: trace, tally: tally{}, hub: newModelHub(), jobs: map[fleet.JobID]*fleet.Job{}, mostNames: map[fleet.DeploymentID]int{}}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
		l.hub.stop()
		t = l.tally
	}()
	l.hub.applyCommand(state.Pool{Pool: fleet.Pool{Name: "classic", DefaultDisconnect: fleet.DisconnectNomad}})
	l.before = l.hub.store.View()
	for _, line := range lines {
		if err := l.playLine(line); err != nil {
			return nil, fmt.Errorf("%s: %w", line, err)
		}
	}
	return nil, l.finishAndCheck()
}

// playLine lets a line happen, the hub deal with it, and judges what came of it.
func (l *modelTest) playLine(line string) error {
	words := strings.Fields(line)
	switch {
	case len(words) == 0 || words[0] == "#":
		return nil
	case words[0] == "rest":
		return l.settleWhileDisconnected()
	}
	before := l.hub.index
	if err := l.dispatchEvent(words[0], words[1:]); err != nil {
		return fmt.Errorf("%w: %w", errUnknownLine, err)
	}
	if err := l.hub.runUntilIdle(); err != nil {
		return err
	}
	l.hub.recordNeverStarted()
	v := l.hub.store.View()
	if before != l.hub.index {
		l.tally["events"]++
		l.tallyChanges(v)
	} else {
		l.tally["events that changed nothing"]++
	}
	l.traceEvent(v, line)
	err := l.checkAfterEvent(v, words)
	l.before = v
	return err
}

// traceEvent shows people what an event led to.
func (l *modelTest) traceEvent(v *state.View, line string) {
	if l.trace == nil {
		return
	}
	fmt.Fprintf(l.trace, "%s\n", line)
	for _, a := range slices.SortedFunc(v.Allocs("*", ""), byCreation) {
		n, _ := v.Node(a.NodeID)
		retired := ""
		if a.Retired {
			retired = " retired"
		}
		fmt.Fprintf(l.trace, "  %s %s on %s(%s) v%d %s/%s%s (%s)", a.Name, a.ID[:8], n.Name, n.Status, a.JobVersion, a.DesiredStatus, a.ClientStatus, retired, a.DesiredDescription)
		if a.DeploymentID != "" {
			fmt.Fprintf(l.trace, " in %s healthy=%t canary=%t", a.DeploymentID[:8], a.DeploymentStatus.IsHealthy(), a.DeploymentStatus.IsCanary())
		}
		fmt.Fprintln(l.trace)
	}
	for d := range v.Deployments("*", "") {
		fmt.Fprintf(l.trace, "  deployment %s of %s v%d %s: %s %+v\n", d.ID[:8], d.JobID, d.JobVersion, d.Status, d.StatusDescription, d.TaskGroups)
	}
	for e := range v.Evals("*", "") {
		if !e.Terminal() {
			fmt.Fprintf(l.trace, "  evaluation %s of %s %s %s until %s: %v\n", e.ID[:8], e.JobID, e.Status, e.TriggeredBy, e.WaitUntil, e.QueuedAllocations)
		}
	}
}

func (l *modelTest) dispatchEvent(verb string, args []string) error {
	arg := ""
	if len(args) > 0 {
		arg = args[0]
	}
	switch verb {
	case "config":
		l.configureScheduler(args)
	case "node":
		return l.addNodeFromArgs(args)
	case "job":
		return l.registerJobLine(args)
	case "stop", "purge":
		l.hub.applyCommand(state.JobDeregister{
			Namespace: fleet.DefaultNamespace, ID: fleet.JobID(arg), Purge: verb == "purge", Now: l.hub.now.UnixNano(),
			Eval: &fleet.Evaluation{ID: fleet.EvalID(l.hub.newID()), Status: fleet.EvalPending},
		})
	case "away", "open", "back", "respond", "drain", "undrain", "eligible", "ineligible":
		return l.applyNodeEvent(verb, args)
	case "say":
		return l.journalFromArgs(args)
	case "wait":
		d, err := time.ParseDuration(arg)
		l.hub.now = l.hub.now.Add(d)
		return err
	case "halt":
		if a := l.pickAlloc(arg, func(a *fleet.Alloc) bool { return !a.Terminal() }); a != nil {
			l.hub.applyCommand(state.AllocStop{Allocs: []fleet.AllocID{a.ID}, EvalSeed: l.hub.newID(), Now: l.hub.now.UnixNano()})
		}
	case "promote", "fail", "pause", "resume":
		l.changeDeployment(verb, fleet.JobID(arg))
	default:
		return fmt.Errorf("unknown verb")
	}
	return nil
}

func (l *modelTest) configureScheduler(args []string) {
	c := fleet.DefaultScheduling()
	for _, arg := range args {
		switch arg {
		case "spread":
			c.SchedulerAlgorithm = "spread"
		case "oversubscription":
			c.MemoryOversubscriptionEnabled = true
		case "race":
			l.hub.reverseEvalOrder = true
		case "preempt":
			c.PreemptionConfig = fleet.PreemptionConfig{
				SystemSchedulerEnabled: true, SysBatchSchedulerEnabled: true, BatchSchedulerEnabled: true, ServiceSchedulerEnabled: true,
			}
		}
	}
	l.hub.applyCommand(state.SchedulerConfig{Config: c})
}

// addNodeFromArgs reads CPU SITE POOL.
func (l *modelTest) addNodeFromArgs(args []string) error {
	if len(args) != 3 {
		return errors.New("node CPU SITE POOL")
	}
	cpu, err := strconv.Atoi(args[0])
	i := len(l.hub.nodes)
	n := &modelNode{healthReported: map[verdict]bool{}, neverStarts: map[fleet.AllocID]bool{}, desc: &fleet.Node{
		ID: fleet.NodeID(fmt.Sprintf("%08x-0000-4000-9000-000000000000", i+1)), Name: fmt.Sprintf("n%d", i),
		Datacenter: "dc1", NodePool: args[2], Site: args[1], Attributes: map[string]string{"kernel.name": "linux"},
		Resources:      fleet.Resources{CPU: cpu, MemoryMB: 4000, DiskMB: 4000},
		MinDynamicPort: 20000, MaxDynamicPort: 20002,
		Drivers: map[string]fleet.DriverInfo{"sim": {Detected: true, Healthy: true}},
	}}
	if cpu >= largeNodeCPU {
		n.desc.MaxDynamicPort = 20100
	}
	l.hub.nodes = append(l.hub.nodes, n)
	l.hub.openNodeSession(n)
	return err
}

// applyNodeEvent lets something happen to the node of a number.
func (l *modelTest) applyNodeEvent(verb string, args []string) error {
	if verb == "respond" && len(args) == 0 {
		for _, n := range l.hub.nodes {
			l.completeEdgeWork(n)
		}
		return nil
	}
	if len(args) == 0 {
		return errors.New("which node")
	}
	i, err := strconv.Atoi(args[0])
	if err != nil || len(l.hub.nodes) == 0 {
		return err
	}
	n, now := l.hub.nodes[i%len(l.hub.nodes)], l.hub.now
	switch verb {
	case "away":
		l.hub.disconnectNode(n)
	case "open":
		if n.disconnected && len(n.rows) > 0 {
			l.hub.openNodeSession(n)
		}
	case "back":
		if n.disconnected {
			l.hub.openNodeSession(n)
			l.hub.sendJournaledRows(n)
			n.disconnected = false
		}
	case "respond":
		l.completeEdgeWork(n)
	case "drain":
		if len(args) < 2 {
			return errors.New("drain NUMBER DEADLINE")
		}
		deadline, err := time.ParseDuration(args[1])
		if err != nil {
			return err
		}
		l.hub.applyCommand(state.NodeDrain{
			NodeID: n.desc.ID, Drain: fleet.NewDrain(deadline, len(args) > 2, now), EvalSeed: l.hub.newID(), Now: now.UnixNano(),
		})
	case "undrain":
		l.hub.applyCommand(state.NodeDrain{NodeID: n.desc.ID, MarkEligible: true, EvalSeed: l.hub.newID(), Now: now.UnixNano()})
	default:
		l.hub.applyCommand(state.NodeEligibility{NodeID: n.desc.ID, Eligibility: verb, EvalSeed: l.hub.newID(), Now: now.UnixNano()})
	}
	return nil
}

// completeEdgeWork lets an edge in sight do all that it was told, with success.
func (l *modelTest) completeEdgeWork(n *modelNode) {
	if n.disconnected {
		return
	}
	for _, a := range l.sortedAllocsOn(n) {
		switch {
		case a.EndedOnEdge():
		case a.ServerTerminal():
			l.reportClientStatus(n, a, fleet.ClientComplete)
		default:
			if a.ReportedStatus != fleet.ClientRunning {
				l.reportClientStatus(n, a, fleet.ClientRunning)
			}
			if a.DeploymentID != "" && !n.healthReported[verdict{a.ID, a.DeploymentID}] {
				l.reportAllocHealth(n, a, true)
			}
		}
	}
}

func (l *modelTest) sortedAllocsOn(n *modelNode) []*fleet.Alloc {
	return slices.SortedFunc(l.hub.store.View().AllocsByNode(n.desc.ID), byCreation)
}

func byCreation(a, b *fleet.Alloc) int {
	if a.CreateIndex != b.CreateIndex {
		return int(a.CreateIndex) - int(b.CreateIndex)
	}
	return strings.Compare(string(a.ID), string(b.ID))
}

func (l *modelTest) reportClientStatus(n *modelNode, a *fleet.Alloc, status string) {
	l.hub.journalTransition(n, fleet.Transition{Kind: fleet.TransitionAlloc, Alloc: a.ID, ClientStatus: status})
}

// reportAllocHealth is what an edge says of an allocation once for each of its deployments.
func (l *modelTest) reportAllocHealth(n *modelNode, a *fleet.Alloc, healthy bool) {
	n.healthReported[verdict{a.ID, a.DeploymentID}] = true
	l.hub.journalTransition(n, fleet.Transition{Kind: fleet.TransitionHealth, Alloc: a.ID, Deployment: a.DeploymentID, Healthy: &healthy})
}

// pickAlloc finds the allocation of a number among those for which ok holds.
func (l *modelTest) pickAlloc(number string, ok func(*fleet.Alloc) bool) *fleet.Alloc {
	i, err := strconv.Atoi(number)
	var list []*fleet.Alloc
	for a := range l.hub.store.View().Allocs("*", "") {
		if ok(a) {
			list = append(list, a)
		}
	}
	if err != nil || len(list) == 0 {
		return nil
	}
	slices.SortFunc(list, byCreation)
	return list[i%len(list)]
}

// journalFromArgs reads NUMBER WHAT: what the edge journals of an allocation that has not ended.
func (l *modelTest) journalFromArgs(args []string) error {
	if len(args) != 2 {
		return errors.New("say NUMBER WHAT")
	}
	a := l.pickAlloc(args[0], func(a *fleet.Alloc) bool { return !a.EndedOnEdge() })
	if a == nil {
		return nil
	}
	i := slices.IndexFunc(l.hub.nodes, func(n *modelNode) bool { return n.desc.ID == a.NodeID })
	n := l.hub.nodes[i]
	switch args[1] {
	case "healthy", "unhealthy":
		if a.DeploymentID != "" && !a.ServerTerminal() && !n.healthReported[verdict{a.ID, a.DeploymentID}] {
			l.reportClientStatus(n, a, fleet.ClientRunning)
			l.reportAllocHealth(n, a, args[1] == "healthy")
		}
	default:
		if n.neverStarts[a.ID] {
			return nil
		}
		l.reportClientStatus(n, a, args[1])
	}
	return nil
}

// changeDeployment is what a person does with the newest one of a job.
func (l *modelTest) changeDeployment(verb string, id fleet.JobID) {
	d := l.hub.store.View().LatestDeployment(fleet.DefaultNamespace, id)
	if d == nil {
		return
	}
	eval := &fleet.Evaluation{ID: fleet.EvalID(l.hub.newID()), TriggeredBy: fleet.TriggerDeploymentWatcher, Status: fleet.EvalPending}
	now := l.hub.now.UnixNano()
	status := func(to, why string) {
		l.hub.applyCommand(state.DeploymentStatus{Update: fleet.DeploymentUpdate{DeploymentID: d.ID, Status: to, StatusDescription: why}, Eval: eval, Now: now})
	}
	switch verb {
	case "promote":
		l.hub.applyCommand(state.DeploymentPromote{DeploymentID: d.ID, Eval: eval, Now: now})
	case "fail":
		u, back := d.Fail(l.hub.store.View().JobVersions(d.Namespace, d.JobID), fleet.DescFailedByUser)
		l.hub.applyCommand(state.DeploymentStatus{Update: u, Rollback: back, Eval: eval, Now: now})
	case "pause":
		status(fleet.DeploymentPaused, fleet.DescPaused)
	case "resume":
		status(fleet.DeploymentRunning, fleet.DescRunning)
	}
}

// registerJobLine reads ID KEY=VALUE…; types are those of the ids' first letters.
func (l *modelTest) registerJobLine(args []string) error {
	id := (append(args, "-"))[0]
	if jobTypeByLetter[id[:1]] == "" {
		return errors.New("job ID KEY=VALUE…")
	}
	j := job(1, func(j *fleet.Job) {
		j.ID, j.Name, j.Type, j.NodePool = fleet.JobID(id), id, jobTypeByLetter[id[:1]], fleet.AllPools
		if fleet.RunsEverywhere(j.Type) {
			j.TaskGroups[0].ReschedulePolicy = nil
		}
		task(j).Resources.MemoryMB, task(j).Resources.DiskMB = 100, 10
	})
	for _, arg := range args[1:] {
		key, value, _ := strings.Cut(arg, "=")
		if err := setJobField(j, key, value); err != nil {
			return fmt.Errorf("%s: %w", arg, err)
		}
	}
	l.jobs[j.ID] = j
	l.hub.applyCommand(state.JobRegister{Job: j, Now: l.hub.now.UnixNano(), Eval: &fleet.Evaluation{
		ID: fleet.EvalID(l.hub.newID()), TriggeredBy: fleet.TriggerJobRegister, Status: fleet.EvalPending,
	}})
	return nil
}

func setJobField(j *fleet.Job, key, value string) (err error) {
	g, t := &j.TaskGroups[0], task(j)
	if g.Update == nil && slices.Contains([]string{"canary", "promote", "revert", "site", "waits", "progress"}, key) {
		return errors.New("parallel comes before it")
	}
	if g.Disconnect == nil && slices.Contains([]string{"lost", "noreplace", "stopafter", "keep"}, key) {
		g.Disconnect = &fleet.Disconnect{}
	}
	number := func() (n int) { n, err = strconv.Atoi(value); return n }
	duration := func() (d time.Duration) { d, err = time.ParseDuration(value); return d }
	switch key {
	case "count":
		g.Count = number()
	case "cpu":
		t.Resources.CPU = number()
	case "env":
		t.Env = map[string]string{"v": value}
	case "touch":
		t.KillSignal = "SIG" + value
	case "priority":
		j.Priority = number()
	case "port":
		g.Networks = []fleet.NetworkResource{{ReservedPorts: []fleet.Port{{Label: "a", Value: number()}}}}
	case "dynamic":
		g.Networks = []fleet.NetworkResource{{DynamicPorts: []fleet.Port{{Label: "b"}}}}
	case "parallel":
		g.Update = &fleet.Update{MaxParallel: number()}
	case "canary":
		g.Update.Canary = number()
	case "promote":
		g.Update.AutoPromote = true
	case "revert":
		g.Update.AutoRevert = true
	case "site":
		g.Update.MaxUnavailablePerSite = number()
	case "waits":
		g.Update.WaitFor = value
	case "progress":
		g.Update.ProgressDeadline = duration()
	case "attempts":
		g.ReschedulePolicy = &fleet.ReschedulePolicy{Attempts: number(), Interval: 24 * time.Hour, Delay: 5 * time.Second, DelayFunction: fleet.DelayConstant}
	case "delay":
		g.ReschedulePolicy = &fleet.ReschedulePolicy{Unlimited: true, Delay: duration(), DelayFunction: fleet.DelayConstant}
	case "lost":
		d := duration()
		g.Disconnect.LostAfter = &d
	case "stopafter":
		d := duration()
		g.Disconnect.StopOnClientAfter = &d
	case "noreplace":
		no := false
		g.Disconnect.Replace = &no
	case "keep":
		g.Disconnect.Reconcile = value
	default:
		return errors.New("unknown field")
	}
	return err
}
