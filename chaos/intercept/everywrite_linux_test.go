package intercept_test

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"skerry/api"
	"skerry/chaos/intercept"
	"skerry/client"
	"skerry/edge/local"
	"skerry/fleet"
)

// fault is played at one write of a round.
type fault string

const (
	none fault = ""
	// full fills the disk, so that the write fails, if it needs space, and those after it. The agent lives on.
	full fault = "full disk"
	// cut cuts the power before the write: data that was not synced is lost.
	cut fault = "power cut"
	// torn cuts the power in the middle of the write. The half and everything before it is on the disk.
	torn fault = "half a write"
)

// target says at which write of which kind a round plays its fault.
type target struct {
	kind  string
	nth   int // from 1
	fault fault
}

func (g target) String() string { return fmt.Sprintf("%s at %s, number %d", g.fault, g.kind, g.nth) }

// round is one life of an edge with one fault.
type round struct {
	t       *testing.T
	center  *center
	machine *machine
	target  target

	began time.Time
	node  fleet.NodeID
	// restarts counts the restarts on site that the agent has answered.
	restarts int

	mu     sync.Mutex
	counts map[string]int // guarded by mu: writes by kind
	struck bool           // guarded by mu: the fault was played
	mended bool           // guarded by mu: the machine is up again, or its disk has space
	broken error          // guarded by mu: why the fault could not be played
}

// handle counts a write, and plays the fault where it is the one.
func (r *round) handle(c *intercept.Call) syscall.Errno {
	r.mu.Lock()
	defer r.mu.Unlock()
	kind := kindOf(c)
	r.counts[kind]++
	if r.struck || r.target.fault == none || kind != r.target.kind || r.counts[kind] != r.target.nth {
		return 0
	}
	r.struck = true
	switch r.target.fault {
	case full:
		if _, r.broken = r.machine.disk.Fill(); c.Grows {
			return syscall.ENOSPC
		}
	case torn:
		if r.broken = c.PerformHalf(); r.broken == nil {
			r.broken = r.machine.powerCut()
		}
	case cut:
		r.broken = r.machine.powerCut()
	}
	return 0
}

// fullFor bounds how long a disk stays full after the agent could have said so.
const fullFor = 500 * time.Millisecond

// mend repairs the damage of the fault: it boots a machine that is off, and gives a full disk space.
func (r *round) mend() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.broken != nil {
		r.t.Fatalf("%s: %v", r.target, r.broken)
	}
	if !r.struck || r.mended {
		r.restartEnded()
		return
	}
	r.mended = true
	if r.target.fault == full {
		r.mu.Unlock()
		r.outlastFullDisk()
		r.mu.Lock()
		return
	}
	<-r.machine.ended
	if err := r.machine.start(r.handle); err != nil {
		r.t.Fatal(err)
	}
}

// restartEnded starts an agent again that has ended since the disk was full before it had an identity; a service manager
// does that. Any other agent lives on.
func (r *round) restartEnded() {
	if r.machine.alive() {
		return
	}
	_, err := os.Stat(filepath.Join(r.machine.dir, "identity", "cert.pem"))
	if !r.struck || r.target.fault != full || err == nil {
		r.t.Fatalf("%s: the agent ended: %v", r.target, r.machine.exit)
	}
	if err := r.machine.start(r.handle); err != nil {
		r.t.Fatal(err)
	}
}

// outlastFullDisk waits for a while, in which the agent has to live on, and then empties the disk.
func (r *round) outlastFullDisk() {
	until := time.After(fullFor)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for waiting := true; waiting; {
		select {
		case <-until:
			waiting = false
		case <-tick.C:
			s, err := r.machine.local().Status(r.t.Context())
			waiting = r.machine.alive() && (err != nil || !s.Disk.Full)
		}
	}
	if err := r.machine.disk.Empty(); err != nil {
		r.t.Fatal(err)
	}
}

// patience is how long a step of a round may take before it has failed.
const patience = 90 * time.Second

// until polls a condition until it returns "", and mends the machine meanwhile.
func (r *round) until(what string, missing func() string) {
	r.t.Helper()
	end := time.After(patience)
	tick := time.NewTicker(25 * time.Millisecond)
	defer tick.Stop()
	for {
		r.mend()
		state := missing()
		if state == "" {
			return
		}
		select {
		case <-tick.C:
		case <-end:
			r.t.Fatalf("%s: %s: not within %s: %s", r.target, what, patience, state)
		}
	}
}

// play runs the whole life of an edge.
func (r *round) play() {
	if err := r.machine.start(r.handle); err != nil {
		r.t.Fatal(err)
	}
	r.until("the node is ready", r.nodeReady)
	for id, text := range map[string]string{"shop": shopJob, "guest": guestJob, "held": guestJob} {
		r.register(id, text)
	}
	for _, id := range []string{"shop", "guest", "held"} {
		r.until(id+" runs", func() string { return r.runs(id, 0) })
	}
	r.register("shop", strings.Replace(shopJob, `VERSION = "1"`, `VERSION = "2"`, 1))
	r.until("the new version runs", func() string { return r.runs("shop", 1) })
	r.until("a restart on site is accepted", r.restartOnSite)
	r.until("a stop on site is accepted", r.stopOnSite)
	if _, err := r.center.StopJob(r.t.Context(), fleet.JobID(r.jobID("guest")), client.StopOptions{}); err != nil {
		r.t.Fatal(err)
	}
	for _, id := range []string{"guest", "held"} {
		r.until(id+" has ended", func() string { return r.ended(id) })
	}
	r.restartAgent()
	r.until("the node is ready again", r.nodeReady)
	r.until("all is as it should be", r.settled)
	r.judge()
}

func (r *round) nodeReady() string {
	n, err := r.center.FindNode(r.t.Context(), r.machine.name)
	if err != nil {
		return err.Error()
	}
	r.node = n.ID
	for _, driver := range []string{"raw_exec", "exec", "wasm"} {
		if d := n.Drivers[driver]; !d.Healthy {
			return fmt.Sprintf("driver %s: %+v", driver, d)
		}
	}
	if n.Status != fleet.NodeReady {
		return string(n.Status)
	}
	return ""
}

// runs returns "" once exactly one allocation of a job runs and has that version, and otherwise the allocations that
// there are.
func (r *round) runs(id string, version uint64) string {
	list := r.allocs(id)
	var running int
	for _, a := range list {
		switch {
		case a.JobVersion == version && a.ClientStatus == fleet.ClientRunning && a.DesiredStatus == fleet.DesiredRun:
			running++
		case a.ClientStatus == fleet.ClientRunning || a.ClientStatus == fleet.ClientPending:
			return summarize(list)
		}
	}
	if running != 1 {
		return summarize(list)
	}
	return ""
}

// ended returns "" once no allocation of a job runs, and otherwise the allocations that there are.
func (r *round) ended(id string) string {
	list := r.allocs(id)
	for _, a := range list {
		// A held allocation waits until somebody starts it again.
		if a.ClientStatus == fleet.ClientRunning || a.ClientStatus == fleet.ClientPending && a.Held == nil {
			return summarize(list)
		}
	}
	return ""
}

func summarize(list []api.AllocStub) string {
	lines := []string{fmt.Sprintf("%d allocations", len(list))}
	for _, a := range list {
		lines = append(lines, fmt.Sprintf("%s v%d %s/%s %s %v", fleet.Short(a.ID), a.JobVersion, a.DesiredStatus, a.ClientStatus, a.ClientDescription, a.TaskStates))
	}
	return strings.Join(lines, "\n  ")
}

// current returns the allocation of a job that is to run.
func (r *round) current(id string) (fleet.AllocID, bool) {
	for _, a := range r.allocs(id) {
		if a.DesiredStatus == fleet.DesiredRun && a.ClientStatus == fleet.ClientRunning {
			return a.ID, true
		}
	}
	return "", false
}

func (r *round) restartOnSite() string {
	id, ok := r.current("shop")
	if !ok {
		return summarize(r.allocs("shop"))
	}
	if err := r.machine.local().Restart(r.t.Context(), id, "raw", "to try it"); err != nil {
		return err.Error()
	}
	r.restarts++
	return ""
}

func (r *round) stopOnSite() string {
	id, ok := r.current("held")
	if !ok {
		list := r.allocs("held")
		if len(list) == 1 && strings.HasPrefix(list[0].ClientDescription, "stopped on site") {
			return "" // the fault came between the stop and its answer
		}
		return summarize(list)
	}
	if err := r.machine.local().Stop(r.t.Context(), local.StopRequest{Alloc: id, Reason: "too loud"}); err != nil {
		return err.Error()
	}
	return ""
}

// restartAgent ends the agent in good order, and starts it again. Its tasks run on.
func (r *round) restartAgent() {
	r.mend()
	if r.machine.alive() {
		_ = syscall.Kill(r.machine.agent.PID(), syscall.SIGTERM) // the fault may have ended it
	}
	select {
	case <-r.machine.ended:
	case <-time.After(patience):
		r.t.Fatalf("%s: the agent does not end", r.target)
	}
	r.mu.Lock()
	off := r.struck && !r.mended && r.target.fault != full
	r.mu.Unlock()
	if off {
		return // the next step boots the machine
	}
	if err := r.machine.start(r.handle); err != nil {
		r.t.Fatal(err)
	}
}

// settled returns "" once the edge and the hub agree and the disk has its reserve, and otherwise the difference.
func (r *round) settled() string {
	for _, missing := range []string{r.runs("shop", 1), r.ended("guest"), r.ended("held")} {
		if missing != "" {
			return missing
		}
	}
	s, err := r.machine.local().Status(r.t.Context())
	if err != nil {
		return err.Error()
	}
	rows, _ := r.center.appliedRows(r.node)
	if s.Journal.Unacknowledged > 0 || s.Journal.Last != fleet.Seq(len(rows)) {
		return fmt.Sprintf("the hub has %d rows, the journal %+v", len(rows), s.Journal)
	}
	if s.Disk.Full || s.Disk.Reserve == 0 {
		return fmt.Sprintf("the disk: %+v", s.Disk)
	}
	for _, a := range s.Allocs {
		if strings.HasPrefix(a.Name, r.jobID("held")) && a.Held == nil {
			return fmt.Sprintf("an allocation that was stopped on site is not held: %+v", a)
		}
	}
	return r.processesMissing()
}

// processesMissing says which tasks do not run once, or run although they should not.
func (r *round) processesMissing() string {
	allocs := map[fleet.AllocID]bool{}
	for _, id := range []string{"shop", "guest", "held"} {
		for _, a := range r.allocs(id) {
			allocs[a.ID] = true
		}
	}
	shop, _ := r.current("shop")
	got, err := running(allocs)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, task := range []string{"raw", "box", "mod"} {
		if got[string(shop)+"/"+task] != 1 {
			return fmt.Sprintf("task %s of %s: processes are %v", task, shop, got)
		}
	}
	if len(got) != 3 {
		return fmt.Sprintf("more than three tasks run: %v", got)
	}
	return ""
}

// judge checks that no transition was lost, and that the files of the task are whole.
func (r *round) judge() {
	t := r.t
	rows, wrong := r.center.appliedRows(r.node)
	for _, w := range wrong {
		t.Errorf("%s: %s", r.target, w)
	}
	s, err := r.machine.local().Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if s.Journal.Lost != "" || len(s.Journal.Quarantined) > 0 || s.Journal.Dropped > 0 || s.Link.Fenced != "" {
		t.Errorf("%s: the journal says %+v, the link %+v", r.target, s.Journal, s.Link)
	}
	kept, err := r.machine.local().History(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	for i := range kept {
		if kept[i].Seq > fleet.Seq(len(rows)) {
			break // it came a moment later
		}
		if got, want := fmt.Sprintf("%+v", rows[kept[i].Seq-1]), fmt.Sprintf("%+v", kept[i]); describe(rows[kept[i].Seq-1]) != describe(kept[i]) {
			t.Errorf("%s: the hub has\n%s, the journal\n%s", r.target, got, want)
		}
	}
	judgeOrder(t, r.target, rows)
	r.judgeActions(rows)
	shop, _ := r.current("shop")
	for name, want := range map[string]string{"local/notes/motd": motd, "local/conf": "I am " + string(shop) + "\n"} {
		b, err := os.ReadFile(filepath.Join(r.machine.dir, "allocs", string(shop), "raw", name))
		if err != nil || string(b) != want {
			t.Errorf("%s: %s has %d bytes (%v), want %d", r.target, name, len(b), err, len(want))
		}
	}
}

// describe returns the parts of a row that travel as they are.
func describe(t fleet.Transition) string {
	text := fmt.Sprintf("%d %s %s %s %s %s", t.Seq, t.Kind, t.Alloc, t.ClientStatus, t.Task, t.Message)
	if t.Event != nil {
		text += " " + t.Event.Type
	}
	return text
}

// judgeOrder checks that an allocation's status only goes forward.
func judgeOrder(t *testing.T, g target, rows []fleet.Transition) {
	t.Helper()
	last := map[fleet.AllocID]string{}
	for _, row := range rows {
		if row.Kind == fleet.TransitionGap {
			t.Errorf("%s: rows were lost: %+v", g, row)
		}
		if row.ClientStatus == "" {
			continue
		}
		switch before := last[row.Alloc]; before {
		case fleet.ClientComplete, fleet.ClientFailed:
			if row.ClientStatus != before {
				t.Errorf("%s: allocation %s was %s, and then %s", g, row.Alloc, before, row.ClientStatus)
			}
		}
		if row.ClientStatus == fleet.ClientFailed {
			t.Errorf("%s: an allocation failed: %s; its rows until then:\n%s", g, describe(row), strings.Join(listRowsOf(rows, row.Alloc, row.Seq), "\n"))
		}
		last[row.Alloc] = row.ClientStatus
	}
}

// listRowsOf describes the rows of an allocation up to one of them.
func listRowsOf(rows []fleet.Transition, alloc fleet.AllocID, last fleet.Seq) (lines []string) {
	for _, row := range rows {
		if row.Alloc == alloc && row.Seq <= last {
			line := describe(row)
			if row.Event != nil {
				line += ": " + row.Event.DisplayMessage
			}
			lines = append(lines, line)
		}
	}
	return lines
}

// judgeActions checks that the hub knows the actions of people on site.
func (r *round) judgeActions(rows []fleet.Transition) {
	restarts, stops := 0, 0
	for _, row := range rows {
		if row.Event != nil && row.Event.Type == fleet.TaskRestartSignal {
			restarts++
		}
		if row.Kind == fleet.TransitionOperator && row.Hold != nil {
			stops++
		}
	}
	if restarts < r.restarts || stops != 1 {
		r.t.Errorf("%s: the hub knows of %d of %d restarts and of %d stops on site, want one", r.target, restarts, r.restarts, stops)
	}
}

// merged are the parts of a path that make no difference here: the temporary name of a file that is replaced, the
// task, the attempt, and the folders and FIFOs that are made or removed together.
var merged = []struct {
	pattern *regexp.Regexp
	name    string
}{
	{regexp.MustCompile(`/\.([^/]+)\.NUMBER$`), "/$1.new"},
	{regexp.MustCompile(`^(.*tasks/UUID)/(raw|box|mod)\b`), "$1/TASK"},
	{regexp.MustCompile(`^(.*tasks/UUID/TASK)/[0-9]+\b`), "$1/N"},
	{regexp.MustCompile(`logs/(raw|box|mod)\.`), "logs/TASK."},
	{regexp.MustCompile(`^(agent unlink .*tasks/UUID).*`), "$1"},
	{regexp.MustCompile(`^(agent mkdir edge/(allocs|store|tasks)).*`), "$1"},
	{regexp.MustCompile(`^(agent mknod .*TASK/N).*`), "$1"},
}

// kindOf returns the kind of a call.
func kindOf(c *intercept.Call) string {
	kind := c.Kind()
	for _, m := range merged {
		kind = m.pattern.ReplaceAllString(kind, m.name)
	}
	return kind
}

// mustPlay plays a round. It returns how many writes of each kind it had, and whether its fault was played.
func mustPlay(t *testing.T, c *center, name string, g target) (counts map[string]int, struck bool) {
	t.Helper()
	r := &round{began: time.Now(), t: t, center: c, target: g, counts: map[string]int{}}
	r.machine = mustMachine(t, name, c.QUICAddr(), c.token)
	r.play()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts, r.struck
}

// sample are the rounds of a short test, one of each fault.
var sample = []target{
	{"agent pwrite edge/journal.db-wal", 40, cut},
	{"agent write edge/allocs/UUID/raw/local/notes/motd", 2, torn},
	{"agent rename edge/store/keys/HASH", 1, full},
}

// faultsAt are the faults that a call can meet. Each other fault would leave the same disk as one at an earlier or a
// later call: a chmod needs no space, and a cut before the opening of a file loses the same data as a cut before its
// rename.
var faultsAt = map[string][]fault{
	"write": {full, torn}, "pwrite": {full, cut, torn}, "copy_file_range": {full, torn}, "sendfile": {full, torn}, "splice": {full, torn},
	"open": {full}, "mkdir": {full, cut, torn}, "mknod": {full, torn}, "symlink": {full, torn}, "link": {full, torn}, "fallocate": {full, cut},
	"rename": {full, cut, torn}, "truncate": {cut, torn}, "unlink": {cut, torn}, "fsync": {cut}, "syncfs": {cut}, "chmod": nil, "chown": nil, "utimes": nil,
}

// mostRounds bounds the rounds of one kind and fault: the first and the last of its writes, and others between them.
const mostRounds = 6

// plan returns the rounds for all kinds.
func plan(t *testing.T, counts map[string]int) (all []target) {
	t.Helper()
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		call := strings.Fields(kind)[1]
		faults, known := faultsAt[call]
		if !known {
			t.Errorf("no fault is known for the call of %s", kind)
		}
		rounds := 1
		if counts[kind] >= 16 {
			rounds = min(mostRounds, counts[kind]/8)
		}
		for i := range rounds {
			for _, f := range faults {
				all = append(all, target{kind, 1 + i*counts[kind]/rounds, f})
			}
		}
	}
	return all
}

// A whole edge meets a full disk, a power cut and half a write at each kind of write. Each time it heals: its tasks run
// once, and the hub has each row of its journal once and in order.
func TestEveryWrite(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root: no disk can be mounted, and no container made")
	}
	for _, program := range []string{"mkfs.ext4", "mount", "runc"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(err)
		}
	}
	c := mustCenter(t)
	rounds := sample
	if !testing.Short() {
		counts, _ := mustPlay(t, c, "w", target{})
		rounds = plan(t, counts)
		for _, kind := range slices.Sorted(maps.Keys(counts)) {
			t.Logf("%5d %s", counts[kind], kind)
		}
		t.Logf("all: %s", countRounds(rounds))
	}
	if *playFor > 0 {
		rounds = drawOrder(rounds, *playSeed)
		t.Logf("the order of seed %d, for %s", *playSeed, *playFor)
	}
	begun, missed := playRounds(t, c, rounds, *playFor)
	t.Logf("played: %s", countRounds(begun))
	if missed > len(begun)/5 {
		t.Errorf("%d of %d rounds had no fault", missed, len(begun))
	}
}
