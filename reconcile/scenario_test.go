package reconcile_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/reconcile"
)

var rewrite = flag.Bool("rewrite", false, "write the scenarios' outputs instead of comparing them")

// TestScenarios runs testdata/*.txt. A file is a sequence of steps: lines of
// input, "----", lines of output, an empty line. The world lives on from step to
// step until "case" makes a new one. See testdata/README.md for the language.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) { runFile(t, file) })
	}
}

// TestHashIsOnlyAShortcut decides on allocations of two older versions, with and without the hashes of their versions: one
// changes the tasks and the other does not.
func TestHashIsOnlyAShortcut(t *testing.T) {
	decide := func(hashes bool) string {
		s := &script{}
		s.runScriptLines(t, "case\njob env=1\nnode n0..1 ready\nalloc a0 0 n0 running\njob env=2\nalloc a1 1 n1 running\njob touch=1 count=2")
		for _, id := range []fleet.AllocID{"a0", "a1"} {
			s.cluster.updateAlloc(id, func(a *fleet.Alloc) {
				if !hashes {
					a.JobHash = ""
				}
			})
		}
		return s.runScriptLines(t, "decide")
	}
	with, without := decide(true), decide(false)
	if with != without || !strings.Contains(with, "destructive 1") || !strings.Contains(with, "in-place 1") {
		t.Errorf("with hashes\n%s\nwithout\n%s\nwant the same, and a0 alone replaced", with, without)
	}
}

func runFile(t *testing.T, file string) {
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s := &script{cluster: newSimCluster()}
	var written strings.Builder
	for _, step := range strings.Split(strings.TrimRight(string(content), "\n"), "\n\n") {
		input, want, ok := strings.Cut(step+"\n", "\n----\n")
		if !ok {
			written.WriteString(step + "\n\n") // a comment
			continue
		}
		got := s.runScriptLines(t, input)
		if got != strings.TrimRight(want, "\n") && !*rewrite {
			t.Errorf("%s\n--- got\n%s\n--- want\n%s", input, got, want)
		}
		fmt.Fprintf(&written, "%s\n----\n%s\n\n", input, got)
	}
	if *rewrite {
		if err := os.WriteFile(file, []byte(strings.TrimRight(written.String(), "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// script interprets the scenarios' language.
type script struct {
	cluster  *simCluster
	versions map[uint64]*fleet.Job
}

func (s *script) runScriptLines(t *testing.T, input string) string {
	var out strings.Builder
	for _, line := range strings.Split(input, "\n") {
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(line, "#") {
			continue
		}
		if err := s.executeCommand(words[0], words[1:], &out); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
	}
	return strings.TrimRight(out.String(), "\n")
}

func (s *script) executeCommand(verb string, args []string, out *strings.Builder) error {
	w := s.cluster
	switch verb {
	case "case":
		s.cluster, s.versions = newSimCluster(), map[uint64]*fleet.Job{}
		return nil
	case "job":
		return s.registerNextVersion(args)
	case "purge":
		w.job = nil
		return nil
	case "node":
		return s.addOrUpdateNodes(args)
	case "forget":
		delete(w.nodes, fleet.NodeID(args[0]))
		return nil
	case "pool":
		w.pools[args[0]] = args[1]
		return nil
	case "unsuited", "unsuited-now":
		w.unsuited[fleet.NodeID(args[0])] = strings.Join(args[1:], " ")
		w.passing[fleet.NodeID(args[0])] = verb == "unsuited-now"
		return nil
	case "window":
		return s.setNodeWindows(args)
	case "full":
		w.full = args[0] == "yes"
		return nil
	case "crowded":
		w.crowded[fleet.NodeID(args[0])] = true
		return nil
	case "behind":
		w.behind[fleet.NodeID(args[0])] = true
		return nil
	case "advance":
		d, err := time.ParseDuration(args[0])
		w.now = w.now.Add(d)
		return err
	case "alloc":
		return s.addAllocations(args)
	case "set":
		var err error
		w.updateAlloc(fleet.AllocID(args[0]), func(a *fleet.Alloc) { err = s.setAllocFields(a, args[1:]) })
		return err
	case "healthy", "unhealthy":
		for _, id := range args {
			ids, err := expandRange(id)
			if err != nil {
				return err
			}
			for _, id := range ids {
				w.updateAlloc(fleet.AllocID(id), func(a *fleet.Alloc) {
					is := verb == "healthy"
					a.DeploymentStatus = &fleet.AllocDeployment{Healthy: &is, Canary: a.DeploymentStatus.IsCanary()}
					if is {
						a.ClientStatus, a.ReportedStatus = fleet.ClientRunning, fleet.ClientRunning
					}
				})
			}
		}
		return nil
	case "deployment":
		w.deployment = w.deployment.Copy()
		w.deployment.Status = args[0]
		return nil
	case "promote":
		w.promoteCanaries()
		return nil
	case "decide":
		eval := fleet.EvalID("e")
		if len(args) > 0 {
			eval = fleet.EvalID(args[0])
		}
		o := w.decideAndApply(eval)
		out.WriteString(o.Describe())
		return nil
	case "show":
		s.showAllocs(out)
		return nil
	}
	return fmt.Errorf("unknown command %q", verb)
}

// setNodeWindows opens the windows of nodes, or closes them for a time.
func (s *script) setNodeWindows(args []string) error {
	ids, err := expandRange(args[0])
	if err != nil {
		return err
	}
	state := reconcile.Window{}
	switch args[1] {
	case "open":
	case "never":
		state.Closed = true
	default:
		d, err := time.ParseDuration(args[1])
		if err != nil {
			return err
		}
		state = reconcile.Window{Closed: true, Opens: s.cluster.now.Add(d)}
	}
	for _, id := range ids {
		s.cluster.windows[fleet.NodeID(id)] = state
	}
	return nil
}

// registerNextVersion makes the next version of the job: what is not said is as before.
func (s *script) registerNextVersion(args []string) error {
	job := &fleet.Job{
		ID: "job", Namespace: fleet.DefaultNamespace, Type: fleet.JobTypeService, Priority: 50, CreateIndex: 10,
		TaskGroups: []fleet.TaskGroup{{Name: "web", Count: 1, Tasks: []fleet.Task{
			{Name: "main", Driver: "sim", KillTimeout: 5 * time.Second},
		}}},
	}
	if old := s.cluster.job; old != nil {
		c := *old
		c.TaskGroups = slices.Clone(old.TaskGroups)
		for i := range c.TaskGroups {
			c.TaskGroups[i].Tasks = slices.Clone(c.TaskGroups[i].Tasks)
			if b := c.TaskGroups[i].Disconnect; b != nil {
				block := *b
				c.TaskGroups[i].Disconnect = &block
			}
		}
		c.Version++
		job = &c
	}
	for _, arg := range args {
		key, value, _ := strings.Cut(arg, "=")
		if err := setJobField(job, key, value); err != nil {
			return fmt.Errorf("%s: %w", arg, err)
		}
	}
	spec, err := json.Marshal([]any{job.TaskGroups, job.Type, job.Datacenters})
	if err != nil {
		return err
	}
	job.SpecHash = string(spec)
	if s.cluster.job.Stopped() && !job.Stop {
		s.cluster.startAfresh()
	}
	s.cluster.job = job
	s.versions[job.Version] = job
	return nil
}

// groupOf finds the group that GROUP.FIELD is about, which it adds where it is not
// there; the first one for a FIELD alone.
func groupOf(job *fleet.Job, key string) (*fleet.TaskGroup, string) {
	name, field, ok := strings.Cut(key, ".")
	if !ok {
		return &job.TaskGroups[0], key
	}
	if job.Group(name) == nil {
		g := job.TaskGroups[0]
		g.Name, g.Update, g.Tasks = name, nil, slices.Clone(g.Tasks)
		job.TaskGroups = append(job.TaskGroups, g)
	}
	return job.Group(name), field
}

func setJobField(job *fleet.Job, key, value string) (err error) {
	g, key := groupOf(job, key)
	block := func() *fleet.Disconnect {
		if g.Disconnect == nil {
			g.Disconnect = &fleet.Disconnect{}
		}
		return g.Disconnect
	}
	duration := func() *time.Duration {
		var d time.Duration
		d, err = time.ParseDuration(value)
		return &d
	}
	switch key {
	case "type":
		job.Type = value
	case "count":
		g.Count, err = strconv.Atoi(value)
	case "stopped":
		job.Stop = true
	case "started":
		job.Stop = false
	case "create":
		var n int
		n, err = strconv.Atoi(value)
		job.CreateIndex = fleet.Index(n)
	case "disconnect":
		block()
	case "lost_after":
		block().LostAfter = duration()
	case "stop_on_client_after":
		block().StopOnClientAfter = duration()
	case "replace":
		replace := value == "true"
		block().Replace = &replace
	case "reconcile":
		block().Reconcile = value
	case "reschedule":
		g.ReschedulePolicy, err = parseReschedulePolicy(value)
	case "env":
		g.Tasks[0].Env = map[string]string{"V": value}
	case "touch":
		g.Tasks[0].KillSignal = "SIG" + value
	case "dc":
		job.Datacenters = strings.Split(value, ",")
	case "until":
		g.LocalControl = &fleet.LocalControl{Until: value}
	case "leader":
		g.Tasks[0].Leader = true
	case "canary":
		ownUpdateBlock(g).Canary, err = strconv.Atoi(value)
	case "wait_for":
		ownUpdateBlock(g).WaitFor = value
	case "per_site":
		ownUpdateBlock(g).MaxUnavailablePerSite, err = strconv.Atoi(value)
	case "windows":
		ownUpdateBlock(g).Windows = []fleet.UpdateWindow{{Cron: value, Duration: time.Hour}}
	case "auto_promote":
		ownUpdateBlock(g).AutoPromote = value == "true"
	case "max_parallel":
		g.Update = &fleet.Update{}
		g.Update.MaxParallel, err = strconv.Atoi(value)
	case "side": // a second task
		g.Tasks = append(g.Tasks, fleet.Task{Name: value, Driver: "sim"})
	case "group": // renames the group: the old one is gone
		g.Name = value
	default:
		return fmt.Errorf("unknown field")
	}
	return err
}

// ownUpdateBlock is a group's update block, its own.
func ownUpdateBlock(g *fleet.TaskGroup) *fleet.Update {
	u := fleet.Update{}
	if g.Update != nil {
		u = *g.Update
	}
	g.Update = &u
	return g.Update
}

// expandRange reads p01 or p01..05.
func expandRange(arg string) ([]string, error) {
	first, last, isRange := strings.Cut(arg, "..")
	if !isRange {
		return []string{arg}, nil
	}
	digits := strings.TrimLeft(first, "abcdefghijklmnopqrstuvwxyz")
	from, err1 := strconv.Atoi(digits)
	to, err2 := strconv.Atoi(last)
	if err1 != nil || err2 != nil {
		return nil, fmt.Errorf("a range is like p01..09")
	}
	var ids []string
	for i := from; i <= to; i++ {
		ids = append(ids, fmt.Sprintf("%s%0*d", strings.TrimSuffix(first, digits), len(digits), i))
	}
	return ids, nil
}

// parseReschedulePolicy reads ATTEMPTS/INTERVAL/DELAY[/FUNCTION[/MAX]]; ATTEMPTS "unlimited".
func parseReschedulePolicy(s string) (*fleet.ReschedulePolicy, error) {
	if s == "none" {
		return &fleet.ReschedulePolicy{}, nil
	}
	parts := append(strings.Split(s, "/"), "", "")
	p := &fleet.ReschedulePolicy{DelayFunction: fleet.DelayConstant}
	var err error
	if p.Unlimited = parts[0] == "unlimited"; !p.Unlimited {
		if p.Attempts, err = strconv.Atoi(parts[0]); err != nil {
			return nil, err
		}
	}
	if p.Interval, err = time.ParseDuration(parts[1]); err != nil {
		return nil, err
	}
	if p.Delay, err = time.ParseDuration(parts[2]); err != nil {
		return nil, err
	}
	if parts[3] != "" {
		p.DelayFunction = parts[3]
	}
	if parts[4] != "" {
		p.MaxDelay, err = time.ParseDuration(parts[4])
	}
	return p, err
}

// addOrUpdateNodes reads ID[..ID] STATUS FIELD….
func (s *script) addOrUpdateNodes(args []string) error {
	if first, last, isRange := strings.Cut(args[0], ".."); isRange {
		from, err1 := strconv.Atoi(strings.TrimLeft(first, "abcdefghijklmnopqrstuvwxyz"))
		to, err2 := strconv.Atoi(last)
		if err1 != nil || err2 != nil {
			return fmt.Errorf("a range is like n0..9")
		}
		for i := from; i <= to; i++ {
			one := append([]string{fmt.Sprintf("%s%d", strings.TrimRight(first, "0123456789"), i)}, args[1:]...)
			if err := s.addOrUpdateNodes(one); err != nil {
				return err
			}
		}
		return nil
	}
	id, status := fleet.NodeID(args[0]), fleet.NodeStatus(args[1])
	if s.cluster.nodes[id] == nil {
		s.cluster.nodes[id] = &fleet.Node{ID: id, NodePool: fleet.DefaultPool}
	}
	for _, arg := range args[2:] {
		n := s.cluster.nodes[id]
		switch key, value, _ := strings.Cut(arg, "="); key {
		case "pool":
			n.NodePool = value
		case "dc":
			n.Datacenter = value
		case fleet.NodeEligible, fleet.NodeIneligible:
			n.SchedulingEligibility = key
		case "revoked":
			n.Revoked = &fleet.Revocation{}
		default:
			return fmt.Errorf("%s: unknown field", arg)
		}
	}
	s.cluster.setNode(id, status)
	return nil
}

// addAllocations reads ID[..ID] INDEX NODE STATUS FIELD…; a range makes one for each.
func (s *script) addAllocations(args []string) error {
	first, last, isRange := strings.Cut(args[0], "..")
	if !isRange {
		return s.oneAlloc(args[0], args)
	}
	from, err1 := strconv.Atoi(strings.TrimLeft(first, "abcdefghijklmnopqrstuvwxyz"))
	to, err2 := strconv.Atoi(last)
	if err1 != nil || err2 != nil {
		return fmt.Errorf("a range is like a0..9")
	}
	index, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	for i := from; i <= to; i++ {
		one := slices.Clone(args)
		one[1] = strconv.Itoa(index + i - from)
		if prefix, ok := strings.CutSuffix(args[2], "*"); ok { // each on a node of its own
			one[1], one[2] = args[1], fmt.Sprintf("%s%d", prefix, i)
		}
		if err := s.oneAlloc(fmt.Sprintf("%s%d", strings.TrimRight(first, "0123456789"), i), one); err != nil {
			return err
		}
	}
	return nil
}

func (s *script) oneAlloc(id string, args []string) error {
	g := s.cluster.job.TaskGroups[0]
	for _, arg := range args[4:] {
		if name, ok := strings.CutPrefix(arg, "in="); ok {
			g = *s.cluster.job.Group(name)
		}
	}
	status := args[3]
	a := &fleet.Alloc{
		ID: fleet.AllocID(id), Name: fmt.Sprintf("job.%s[%s]", g.Name, args[1]), TaskGroup: g.Name,
		Namespace: fleet.DefaultNamespace, JobID: "job", NodeID: fleet.NodeID(args[2]),
		Job: s.cluster.job, JobVersion: s.cluster.job.Version, JobHash: s.cluster.job.SpecHash, DesiredStatus: fleet.DesiredRun,
		ClientStatus: status, ReportedStatus: status, CreateIndex: fleet.Index(100 + len(s.cluster.allocs)),
		CreateTime: s.cluster.now.UnixNano(), ModifyTime: s.cluster.now.UnixNano(),
	}
	switch status {
	case fleet.ClientUnknown:
		a.ReportedStatus = fleet.ClientRunning
		a.AllocStates = []fleet.AllocState{{Field: fleet.AllocStateClientStatus, Value: status, Time: s.cluster.now}}
	case fleet.ClientLost:
		a.ReportedStatus = fleet.ClientRunning
	}
	s.cluster.allocs[a.ID] = a
	return s.setAllocFields(a, args[4:])
}

func (s *script) setAllocFields(a *fleet.Alloc, args []string) error {
	for _, arg := range args {
		key, value, _ := strings.Cut(arg, "=")
		if err := s.setAllocField(a, key, value); err != nil {
			return fmt.Errorf("%s: %w", arg, err)
		}
	}
	return nil
}

func (s *script) setAllocField(a *fleet.Alloc, key, value string) (err error) {
	switch key {
	case "in": // the group, see oneAlloc
	case "desired":
		a.DesiredStatus, a.AllocModifyIndex = value, s.cluster.index
	case "client": // known to the hub and true
		a.ClientStatus, a.ReportedStatus = value, value
	case "reports": // true on the edge
		a.ReportedStatus = value
	case "states": // unknown@-10s,running@-5s
		a.AllocStates, err = s.parseAllocStates(value)
	case "version":
		var v uint64
		v, err = strconv.ParseUint(value, 10, 64)
		job, ok := s.versions[v]
		if !ok {
			return fmt.Errorf("no such version")
		}
		a.Job, a.JobVersion, a.JobHash = job, v, job.SpecHash
	case "score":
		a.Score, err = strconv.ParseFloat(value, 64)
	case "runs": // TASK:DURATION,…
		a.TaskStates = map[string]fleet.TaskState{}
		for _, task := range strings.Split(value, ",") {
			name, dur, _ := strings.Cut(task, ":")
			var d time.Duration
			d, err = time.ParseDuration(dur)
			a.TaskStates[name] = fleet.TaskState{State: fleet.TaskRunning, RunningFor: d, RunningSince: s.cluster.now.Add(-d).UnixNano()}
		}
	case "tracker": // DELAY@TIME,…
		a.RescheduleTracker, err = s.parseTracker(value)
	case "deployment": // of the world's deployment, maybe as its canary
		a.DeploymentID = s.cluster.deployment.ID
		a.DeploymentStatus = &fleet.AllocDeployment{Canary: value == "canary"}
	case "held": // the version of the job that was stopped on site; none: it was started again
		if a.Held = nil; value != "none" {
			a.Held = &fleet.Hold{By: "anna", Reason: "smoke"}
			a.Held.JobVersion, err = strconv.ParseUint(value, 10, 64)
		}
	case "stopped-on-edge":
		a.StoppedOnEdge = value == "true"
	case "migrate":
		a.DesiredTransition.Migrate = true
	case "reschedule":
		a.DesiredTransition.Reschedule = true
	default:
		return fmt.Errorf("unknown field")
	}
	return err
}

func (s *script) parseAllocStates(value string) (states []fleet.AllocState, err error) {
	for _, one := range strings.Split(value, ",") {
		status, at, _ := strings.Cut(one, "@")
		d, err := time.ParseDuration(at)
		if err != nil {
			return nil, err
		}
		states = append(states, fleet.AllocState{Field: fleet.AllocStateClientStatus, Value: status, Time: s.cluster.now.Add(d)})
	}
	return states, nil
}

func (s *script) parseTracker(value string) (*fleet.RescheduleTracker, error) {
	t := &fleet.RescheduleTracker{}
	for _, one := range strings.Split(value, ",") {
		delay, at, _ := strings.Cut(one, "@")
		d, err := time.ParseDuration(delay)
		if err != nil {
			return nil, err
		}
		when, err := time.ParseDuration(at)
		if err != nil {
			return nil, err
		}
		t.Events = append(t.Events, fleet.RescheduleEvent{
			RescheduleTime: s.cluster.now.Add(when).UnixNano(), PrevAllocID: "x", PrevNodeID: "nx", Delay: d,
		})
	}
	return t, nil
}

// showAllocs prints the allocations.
func (s *script) showAllocs(out *strings.Builder) {
	for _, id := range slices.Sorted(maps.Keys(s.cluster.allocs)) {
		a := s.cluster.allocs[id]
		fmt.Fprintf(out, "%-4s %s %s v%d %s/%s", a.ID, a.Name, a.NodeID, a.JobVersion, a.DesiredStatus, a.ClientStatus)
		if a.Retired {
			out.WriteString(" retired")
		}
		if a.DeploymentID != "" {
			fmt.Fprintf(out, " in %s", a.DeploymentID)
		}
		if a.DeploymentStatus.IsCanary() {
			out.WriteString(" canary")
		}
		if a.PreviousAllocation != "" {
			fmt.Fprintf(out, " after %s", a.PreviousAllocation)
		}
		if a.FollowupEvalID != "" {
			fmt.Fprintf(out, " waits for %s", a.FollowupEvalID)
		}
		if t := a.RescheduleTracker; t != nil {
			out.WriteString(" attempts")
			for _, e := range t.Events {
				fmt.Fprintf(out, " %s", e.Delay)
			}
		}
		for i, st := range a.AllocStates {
			sep := " "
			if i == 0 {
				sep = " was "
			}
			out.WriteString(sep + st.Value)
		}
		out.WriteString("\n")
	}
}
