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
	"skerry/chaos/engine"
	"skerry/chaos/schedule"
	"skerry/edge/link"
)

// StartEdge starts an agent in the boot that the machine is in, unless it runs. One that
// finds no space on its disk is started again until it does, as a supervisor would.
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

// BootEdge boots a machine.
func (r *run) BootEdge(ctx context.Context, name string) error {
	r.c.Edge(name).beginNextBoot()
	return r.StartEdge(ctx, name)
}

// KillEdge kills an agent.
func (r *run) KillEdge(_ context.Context, name, step string) (hit bool, err error) {
	return r.endEdge(r.c.Edge(name), step, false)
}

// CutPower cuts a machine's power.
func (r *run) CutPower(_ context.Context, name, step string) (hit bool, err error) {
	return r.endEdge(r.c.Edge(name), step, true)
}

// endEdge kills the agent, or cuts its machine's power, at a step where one is named.
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

// StopEdge stops an agent in good order.
func (r *run) StopEdge(_ context.Context, name string) error {
	r.observeProcess(name, true, check.ProcessKill)
	r.c.Edge(name).Stop()
	return nil
}

// ShutDown ends a machine in good order.
func (r *run) ShutDown(_ context.Context, name string) error {
	r.observeProcess(name, true, check.ProcessReboot)
	return r.c.Edge(name).Shutdown()
}

// PauseEdge is not to be had: an agent shares its process with the whole run.
func (r *run) PauseEdge(context.Context, string, schedule.Fault) (engine.Active, error) {
	return engine.Active{}, engine.ErrUnsupported
}

// DataDir is an edge's data directory.
func (r *run) DataDir(name string) string { return r.c.Edge(name).Dir }

const pageSize = 4096

// DamageEdge ends an edge's agent, and damages its journal.
func (r *run) DamageEdge(_ context.Context, name string, f schedule.Fault) (uint64, error) {
	e, rng := r.c.Edge(name), engine.Random(r.s.Seed, f)
	damage := func(b []byte) int { return flip(b, f.Params.Bits, rng) }
	if f.Kind == schedule.TornPage {
		damage = func(b []byte) int { return tearPage(b, rng) }
	}
	if _, err := r.endEdge(e, "", f.Kind == schedule.TornPage); err != nil {
		return 0, err
	}
	n, err := e.damageJournal(damage)
	return uint64(n), err
}

// tearPage leaves one page half written.
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

// CloneEdge starts a second machine with a copy of the edge's data directory, and takes one of
// the two away when it is healed: most often the second one. Which of them is the first
// machine no cluster can tell; where it went on with the second one's rows, a person gives
// that one's data to the machine that stays.
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
	other.cfg.Name = e.Name // it says what the first one says
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

// replaceWithClone gives a machine the data of its clone number n, and boots it.
func (r *run) replaceWithClone(ctx context.Context, e, by *Edge, n int64) error {
	f := check.Fault{
		ID: replacements + int(n), Kind: string(schedule.Clone), Detail: "its data is kept", Targets: []string{e.Name}, Effects: []check.Effect{check.Damages},
	}
	r.judgeAndRecord(check.Observation{Fault: &f})
	if _, err := r.endEdge(e, "", true); err != nil {
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
	return r.BootEdge(ctx, e.Name)
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
