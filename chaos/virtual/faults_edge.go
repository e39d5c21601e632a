package virtual

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"skerry/chaos/check"
	"skerry/chaos/engine"
	"skerry/chaos/schedule"
	"skerry/edge/link"
)

// StartEdge starts an agent in the machine's current boot, unless it runs. If the disk is full, it
// retries each second until there is space, as a supervisor would.
func (r *run) StartEdge(_ context.Context, name string) error {
	for e := r.c.Edge(name); e.currentLife() == nil; {
		err := e.Start()
		if err == nil {
			r.observeProcess(name, true, check.ProcessStart)
			return nil
		}
		if !errors.Is(err, syscall.ENOSPC) {
			return err
		}
		time.Sleep(time.Second)
	}
	return nil
}

// BootEdge begins a new boot of a machine and starts its agent.
func (r *run) BootEdge(ctx context.Context, name string) error {
	e := r.c.Edge(name)
	if e.currentLife() != nil {
		return nil
	}
	e.beginNextBoot()
	return r.StartEdge(ctx, name)
}

// KillEdge kills an agent, at the disk step with that label if it is not "". hit is false if the
// step did not come in time.
func (r *run) KillEdge(_ context.Context, name, step string) (hit bool, err error) {
	return r.endEdge(r.c.Edge(name), step, false)
}

// CutPower cuts a machine's power, at the agent's disk step with that label if it is not "". hit
// is false if the step did not come in time.
func (r *run) CutPower(_ context.Context, name, step string) (hit bool, err error) {
	return r.endEdge(r.c.Edge(name), step, true)
}

// endEdge kills the agent, or cuts its machine's power, at the disk step with that label if it is
// not "", and records that. hit is false if the step did not come in time.
func (r *run) endEdge(e *Edge, step string, power bool) (hit bool, err error) {
	hit = true
	what := check.ProcessKill
	if power {
		what = check.ProcessPowerCut
	}
	switch {
	case step != "":
		hit, err = e.KillAt(step, power, stepPatience)
	case power:
		err = e.PowerCut()
	default:
		err = e.Kill()
	}
	r.observeProcess(e.Name, true, what)
	return hit, err
}

// StopEdge stops an agent gracefully; its tasks live on.
func (r *run) StopEdge(_ context.Context, name string) error {
	r.observeProcess(name, true, check.ProcessKill)
	r.c.Edge(name).Stop()
	return nil
}

// ShutDown shuts a machine down gracefully, with its tasks.
func (r *run) ShutDown(_ context.Context, name string) error {
	r.observeProcess(name, true, check.ProcessReboot)
	return r.c.Edge(name).Shutdown()
}

// ReplaceEdge cuts the power of a machine, removes its data, and boots it: it joins as another node.
func (r *run) ReplaceEdge(ctx context.Context, name string) error {
	e := r.c.Edge(name)
	if _, err := r.endEdge(e, "", true); err != nil {
		return err
	}
	r.searchRevokedKey(e)
	if err := os.RemoveAll(e.Dir); err != nil {
		return fmt.Errorf("remove the data of %s: %w", name, err)
	}
	r.mu.Lock()
	delete(r.lastSeen, name)
	r.replaced[name] = true
	r.mu.Unlock()
	r.judgeAndRecord(check.Observation{Request: &check.Request{What: check.EdgeWiped, Edge: name}})
	return r.BootEdge(ctx, name)
}

// OnSite returns the local API of an edge; nil: its agent does not run.
func (r *run) OnSite(name string) engine.OnSite {
	if a := r.c.Edge(name).Agent(); a != nil {
		return a.Agent()
	}
	return nil
}

// PauseEdge returns engine.ErrUnsupported: all agents share the process of the run.
func (r *run) PauseEdge(context.Context, string, schedule.Fault) (engine.Active, error) {
	return engine.Active{}, engine.ErrUnsupported
}

// BreakDaemon returns engine.ErrUnsupported: containers are real.
func (r *run) BreakDaemon(context.Context, string, schedule.Fault) (engine.Active, error) {
	return engine.Active{}, engine.ErrUnsupported
}

// DataDir returns the path of an edge's data directory.
func (r *run) DataDir(name string) string { return r.c.Edge(name).Dir }

const pageSize = 4096

// DamageEdge kills an edge's agent, or cuts its power for a torn page, and damages its journal: it flips half of the
// bits in the database and half in SQLite's log, or tears a page of one of them. It returns the number of changed bits
// or pages.
func (r *run) DamageEdge(_ context.Context, name string, f schedule.Fault) (uint64, error) {
	e, rng := r.c.Edge(name), engine.Random(r.s.Seed, f)
	torn := f.Kind == schedule.TornPage
	damage := func(b []byte) int { return flip(b, max(f.Params.Bits/2, 1), rng) }
	if torn {
		damage = func(b []byte) int { return tearPage(b, rng) }
	}
	if _, err := r.endEdge(e, "", torn); err != nil {
		return 0, err
	}
	files := []string{filepath.Join(e.Dir, journalName), e.journalWALPath()}
	if rng.IntN(2) == 0 {
		slices.Reverse(files)
	}
	changed := 0
	for _, path := range files {
		if torn && changed > 0 {
			break
		}
		n, err := changeFile(path, damage)
		if err != nil {
			return uint64(changed), fmt.Errorf("damage the journal of %s: %w", name, err)
		}
		changed += n
	}
	return uint64(changed), nil
}

// tearPage overwrites the second half of one page with random bytes; the first page is spared. It
// returns the number of torn pages.
func tearPage(b []byte, rng *rand.Rand) int {
	if len(b) < 2*pageSize {
		return 0
	}
	at := (1 + rng.IntN(len(b)/pageSize-1)) * pageSize
	half := b[at+pageSize/2 : at+pageSize]
	for i := range half {
		half[i] = byte(rng.Uint32())
	}
	return 1
}

// flip inverts random bits of b and returns their number; 0: b is empty.
func flip(b []byte, bits int, rng *rand.Rand) int {
	if len(b) == 0 {
		return 0
	}
	for range bits {
		b[rng.IntN(len(b))] ^= 1 << rng.IntN(8)
	}
	return bits
}

// changeFile applies change to a file and returns its result; 0: there is no such file.
func changeFile(path string, change func(b []byte) int) (int, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	n := change(b)
	return n, os.WriteFile(path, b, 0o600)
}

// CloneEdge starts a second machine with a copy of the edge's data directory. Healing removes one of
// the two: the clone, unless the cluster went on with the clone's rows. In that case the first
// machine gets the clone's data, as an operator would do, and boots.
func (r *run) CloneEdge(_ context.Context, name string, _ schedule.Fault) (engine.Active, error) {
	e := r.c.Edge(name)
	n := r.moves.Add(1)
	cfg := e.cfg
	cfg.Name = fmt.Sprintf("%s-clone-%d", e.Name, n)
	other, err := r.c.newEdge(cfg, 500+int(n), Observers{Refused: r.observeRefusal})
	if err != nil {
		return engine.Active{}, err
	}
	time.Sleep(quietOffset)
	if err := copyEdge(e, other); err != nil {
		return engine.Active{}, err
	}
	other.cfg.Name = e.Name // the clone registers with the name of the first machine
	if err := other.Start(); err != nil {
		return engine.Active{}, err
	}
	hit := uint64(0)
	return engine.Active{
		Heal: func(ctx context.Context) error {
			replaced := other.tookPlaceOf(e)
			if replaced || other.isFenced() {
				hit = 1
			}
			if err := other.PowerCut(); err != nil || !replaced {
				return err
			}
			return r.replaceWithClone(ctx, e, other, n)
		},
		Evidence: engine.Counted(func() uint64 { return hit }),
	}, nil
}

// replaceWithClone cuts the power of machine e, replaces its data by that of its clone number n, and
// boots it. It records this as a fault of its own.
func (r *run) replaceWithClone(ctx context.Context, e, by *Edge, n int64) error {
	f := check.Fault{
		ID: replacements + int(n), Kind: string(schedule.Clone), Detail: "its data is kept", Targets: []string{e.Name}, Effects: []check.Effect{check.Damages},
	}
	r.judgeAndRecord(check.Observation{Fault: &f})
	if _, err := r.endEdge(e, "", true); err != nil {
		return err
	}
	if err := os.RemoveAll(e.Dir); err != nil {
		return fmt.Errorf("remove the data of %s: %w", e.Name, err)
	}
	if err := copyEdge(by, e); err != nil {
		return err
	}
	r.mu.Lock()
	delete(r.lastSeen, e.Name) // its journal has the clone's rows now
	r.replaced[e.Name] = true
	r.mu.Unlock()
	over := f
	over.End, over.Hits = true, 1
	r.judgeAndRecord(check.Observation{Fault: &over})
	return r.BootEdge(ctx, e.Name)
}

// replacements is larger than the numbers of a schedule's own faults, so that the faults of
// replaceWithClone have other numbers.
const replacements = 1_000_000

// isFenced reports whether the cluster has refused the machine's agent as a clone.
func (e *Edge) isFenced() bool {
	a := e.Agent()
	if a == nil {
		return false
	}
	link, _ := a.SyncStatus()
	return link.Fenced != ""
}

// tookPlaceOf reports whether the cluster went on with the clone's rows in place of the original's.
// Then it has refused the original as a fork, or will when the original connects again.
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

// copyEdge copies an edge's data directory to a machine that has none, without SQLite's shared
// memory file.
func copyEdge(from, to *Edge) error {
	if err := os.CopyFS(to.Dir, os.DirFS(from.Dir)); err != nil {
		return fmt.Errorf("copy the data directory of %s: %w", from.Name, err)
	}
	if err := os.Remove(filepath.Join(to.Dir, journalName+"-shm")); err != nil && !os.IsNotExist(err) {
		return err
	}
	return nil
}
