package virtual

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"skerry/chaos/check"
	"skerry/chaos/schedule"
	"skerry/edge/link"
)

// edgeInjectors are what happens to edges' processes, machines, disks and clocks.
var edgeInjectors = map[schedule.Kind]faultInjector{
	schedule.EdgeKill:   {onEdges(killEdge), []check.Effect{check.Halts}},
	schedule.EdgeReboot: {onEdges(rebootEdge), []check.Effect{check.Halts, check.Reboots}},
	schedule.PowerCut:   {onEdges(cutPower), []check.Effect{check.Halts, check.Reboots}},
	schedule.TornPage:   {onEdges(tearPage), []check.Effect{check.Halts, check.Reboots, check.Damages}},
	schedule.BitFlip:    {onEdges(flipBits), []check.Effect{check.Halts, check.Damages}},
	schedule.DiskFull:   {onEdges(fillEdge), []check.Effect{check.Chokes}},
	schedule.SlowDisk:   {slowDisks, []check.Effect{check.Chokes}},
	schedule.ClockJump:  {onEdges(jumpClock), []check.Effect{check.MovesTime}},
	schedule.Clock1970:  {onEdges(wakeIn1970), []check.Effect{check.MovesTime, check.Halts, check.Reboots}},
	schedule.Clone:      {onEdges(clone), []check.Effect{check.Clones, check.Halts}},
}

// startEdge starts an agent in the boot that the machine is in, unless it runs. One that
// finds no space on its disk is started again until it does, as a supervisor would.
func (r *run) startEdge(e *Edge) error {
	for e.currentLife() == nil {
		err := e.Start()
		if err == nil {
			r.observeProcess(e.Name, true, check.ProcessStart, e.BootID())
			return nil
		}
		if !errors.Is(err, syscall.ENOSPC) {
			return err
		}
		time.Sleep(time.Second)
	}
	return nil
}

func (r *run) bootEdge(e *Edge) error {
	e.beginNextBoot()
	return r.startEdge(e)
}

func killEdge(ctx context.Context, r *run, e *Edge, f schedule.Fault) (activeFault, error) {
	hit, err := r.endEdge(e, f, false)
	if err != nil {
		return activeFault{}, err
	}
	w, err := r.restartAfterFault(ctx, f, func(context.Context) error { return r.startEdge(e) })
	w.hits = hit
	return w, err
}

// endEdge kills the agent, or cuts its machine's power, at a step where the fault names one.
func (r *run) endEdge(e *Edge, f schedule.Fault, power bool) (hits func() uint64, err error) {
	hit := uint64(1)
	switch {
	case f.Params.Step != "":
		var at bool
		if at, err = e.KillAt(f.Params.Step, power, stepPatience); !at {
			hit = 0
		}
	case power:
		err = e.PowerCut()
	default:
		err = e.Kill()
	}
	what := check.ProcessKill
	if power {
		what = check.ProcessPowerCut
	}
	r.observeProcess(e.Name, true, what, "")
	return func() uint64 { return hit }, err
}

func rebootEdge(ctx context.Context, r *run, e *Edge, f schedule.Fault) (activeFault, error) {
	r.observeProcess(e.Name, true, check.ProcessReboot, "")
	if err := e.Shutdown(); err != nil {
		return activeFault{}, err
	}
	return r.restartAfterFault(ctx, f, func(context.Context) error { return r.bootEdge(e) })
}

func cutPower(ctx context.Context, r *run, e *Edge, f schedule.Fault) (activeFault, error) {
	hit, err := r.endEdge(e, f, true)
	if err != nil {
		return activeFault{}, err
	}
	w, err := r.restartAfterFault(ctx, f, func(context.Context) error { return r.bootEdge(e) })
	w.hits = hit
	return w, err
}

const pageSize = 4096

// tearPage cuts the power and leaves one page of the journal half written.
func tearPage(ctx context.Context, r *run, e *Edge, f schedule.Fault) (activeFault, error) {
	if _, err := r.endEdge(e, f, true); err != nil {
		return activeFault{}, err
	}
	rng := r.randomForFault(f)
	torn, err := e.damageJournal(func(b []byte) int {
		if len(b) < 2*pageSize {
			return 0
		}
		at := (1 + rng.IntN(len(b)/pageSize-1)) * pageSize
		half := b[at+pageSize/2 : at+pageSize]
		for i := range half {
			half[i] = byte(rng.Uint32())
		}
		return 1
	})
	if err != nil {
		return activeFault{}, err
	}
	w, err := r.restartAfterFault(ctx, f, func(context.Context) error { return r.bootEdge(e) })
	w.hits = func() uint64 { return uint64(torn) }
	return w, err
}

func flipBits(ctx context.Context, r *run, e *Edge, f schedule.Fault) (activeFault, error) {
	if _, err := r.endEdge(e, f, false); err != nil {
		return activeFault{}, err
	}
	flipped, err := e.damageJournal(func(b []byte) int { return flip(b, f.Params.Bits, r.randomForFault(f)) })
	if err != nil {
		return activeFault{}, err
	}
	w, err := r.restartAfterFault(ctx, f, func(context.Context) error { return r.startEdge(e) })
	w.hits = func() uint64 { return uint64(flipped) }
	return w, err
}

func flip(b []byte, bits int, rng *rand.Rand) int {
	if len(b) == 0 {
		return 0
	}
	for range bits {
		b[rng.IntN(len(b))] ^= 1 << rng.IntN(8)
	}
	return bits
}

// damageJournal changes the journal's larger file, while the agent is down.
func (e *Edge) damageJournal(change func(b []byte) int) (int, error) {
	path := filepath.Join(e.Dir, journalName)
	if size(e.journalWALPath()) > size(path) {
		path = e.journalWALPath()
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("damage the journal of %s: %w", e.Name, err)
	}
	n := change(b)
	if err := os.WriteFile(path, b, 0o600); err != nil {
		return 0, fmt.Errorf("damage the journal of %s: %w", e.Name, err)
	}
	return n, nil
}

func fillEdge(_ context.Context, _ *run, e *Edge, _ schedule.Fault) (activeFault, error) {
	before := e.Disk.Hits()
	e.Disk.Fill(true)
	return activeFault{
		heal: func(context.Context) error { e.Disk.Fill(false); return nil },
		hits: func() uint64 { return uint64(e.Disk.Hits() - before) },
	}, nil
}

// slowDisks makes each sync take long, of edges and of hubs.
func slowDisks(_ context.Context, r *run, f schedule.Fault) (activeFault, error) {
	var ws []activeFault
	var disks []*disk
	for _, e := range r.edgesOf(f) {
		disks = append(disks, &e.Disk)
	}
	for _, h := range r.hubsOf(f) {
		disks = append(disks, &h.Disk)
	}
	for _, d := range disks {
		before := d.Hits()
		d.Slow(f.Params.Sync)
		ws = append(ws, activeFault{
			heal: func(context.Context) error { d.Slow(0); return nil },
			hits: func() uint64 { return uint64(d.Hits() - before) },
		})
	}
	return combineFaults(ws), nil
}

func jumpClock(_ context.Context, r *run, e *Edge, f schedule.Fault) (activeFault, error) {
	e.Clock.Jump(f.Params.Jump)
	return r.untilRight(e, f), nil
}

// untilRight is the wound of a clock that is wrong, which hit if anybody asked it.
func (r *run) untilRight(e *Edge, f schedule.Fault) activeFault {
	before := e.Clock.asked.Load()
	w := activeFault{hits: func() uint64 { return e.Clock.asked.Load() - before }, late: true}
	if f.For > 0 {
		w.heal = func(context.Context) error { e.Clock.Right(); return nil }
	}
	return w
}

func wakeIn1970(ctx context.Context, r *run, e *Edge, f schedule.Fault) (activeFault, error) {
	r.observeProcess(e.Name, true, check.ProcessReboot, "")
	if err := e.Shutdown(); err != nil {
		return activeFault{}, err
	}
	e.Clock.Set(time.Unix(0, 0))
	pause(ctx, time.Second)
	return r.untilRight(e, f), r.bootEdge(e)
}

// clone starts a second machine with a copy of the edge's data directory, and takes one of
// the two away when it is healed: most often the second one. Which of them is the first
// machine no cluster can tell; where it went on with the second one's rows, a person gives
// that one's data to the machine that stays.
func clone(ctx context.Context, r *run, e *Edge, f schedule.Fault) (activeFault, error) {
	n := r.moves.Add(1)
	cfg := e.cfg
	cfg.Name = fmt.Sprintf("%s-clone-%d", e.Name, n)
	other, err := r.c.newEdge(cfg, 500+int(n), Observers{Refused: r.observeRefusal})
	if err != nil {
		return activeFault{}, err
	}
	time.Sleep(quietOffset)
	if err := copyEdge(e, other); err != nil {
		return activeFault{}, err
	}
	other.cfg.Name = e.Name // it says what the first one says
	if err := other.Start(); err != nil {
		return activeFault{}, err
	}
	hit := uint64(0)
	return activeFault{
		heal: func(context.Context) error {
			replaced := other.tookPlaceOf(e)
			if replaced || other.isFenced() {
				hit = 1
			}
			if err := other.PowerCut(); err != nil || !replaced {
				return err
			}
			return r.replaceWithClone(e, other, n)
		},
		hits: func() uint64 { return hit },
	}, nil
}

// replaceWithClone gives a machine the data of its clone number n, and boots it.
func (r *run) replaceWithClone(e, by *Edge, n int64) error {
	f := check.Fault{
		ID: replacements + int(n), Kind: string(schedule.Clone), Detail: "its data is kept", Targets: []string{e.Name}, Effects: []check.Effect{check.Damages},
	}
	r.judgeAndRecord(check.Observation{Fault: &f})
	if _, err := r.endEdge(e, schedule.Fault{}, true); err != nil {
		return err
	}
	if err := os.RemoveAll(e.Dir); err != nil {
		return fmt.Errorf("take away the data of %s: %w", e.Name, err)
	}
	if err := copyEdge(by, e); err != nil {
		return err
	}
	r.mu.Lock()
	delete(r.lastSeen, e.Name) // its journal has other rows now
	r.replaced[e.Name] = true
	r.mu.Unlock()
	over := f
	over.End, over.Hits = true, 1
	r.judgeAndRecord(check.Observation{Fault: &over})
	return r.bootEdge(e)
}

// replacements is above the numbers of a schedule's own faults.
const replacements = 1_000_000

// isFenced reports whether the cluster takes the machine for a clone.
func (e *Edge) isFenced() bool {
	a := e.Agent()
	if a == nil {
		return false
	}
	link, _ := a.SyncStatus()
	return link.Fenced != ""
}

// tookPlaceOf reports whether the cluster went on with the rows of a clone instead of the
// machine's: it has refused the machine as a fork, or will once the machine, which is away,
// connects again.
func (e *Edge) tookPlaceOf(original *Edge) bool {
	switch {
	case e.isFenced() || e.Agent() == nil:
		return false
	case original.isFenced():
		return true
	case original.Agent() == nil:
		return false
	}
	connection, journal := original.Agent().SyncStatus()
	_, cloned := e.Agent().SyncStatus()
	return connection.State != string(link.StateConnected) && cloned.Acknowledged > journal.Acknowledged
}

// copyEdge copies an edge's data directory to a machine that has none.
func copyEdge(from, to *Edge) error {
	if err := os.CopyFS(to.Dir, os.DirFS(from.Dir)); err != nil {
		return fmt.Errorf("copy the data directory of %s: %w", from.Name, err)
	}
	if err := os.Remove(filepath.Join(to.Dir, journalName+"-shm")); err != nil && !os.IsNotExist(err) {
		return err
	}
	return nil
}
