package real

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"skerry/chaos/check"
	"skerry/chaos/cluster"
	"skerry/edge/local"
	"skerry/fleet"
)

// Damage kills an edge's agent while tasks run and rows wait to be sent, damages
// its journal, and starts it again. The edge has to be ready without a person, its
// tasks have to run on, and what is lost has to be said.
type Damage struct{ Ground }

// damages are the ways, in the order in which they are done.
var damages = []struct {
	name string
	do   func(journal string) error
}{
	{"bits flipped in the pages of the database", flipPages},
	{"bits flipped in the middle of its log", func(j string) error { return flipMiddle(j + "-wal") }},
	{"both truncated", func(j string) error { return errors.Join(halve(j), halve(j+"-wal")) }},
	{"the log deleted", func(j string) error { return os.Remove(j + "-wal") }},
	{"database and log deleted", func(j string) error { return errors.Join(os.Remove(j), os.Remove(j+"-wal")) }},
	{"everything deleted that has the journal's name", removeAll},
}

// Run plays all of them, one after the other, with one hub.
func (d Damage) Run(ctx context.Context) error {
	return d.runOnFleet(ctx, fast(1, 1), func(s *fleetRun) error {
		if err := s.runJobUntilQuiet(ctx, workload("damaged", 3, s.starts, nil)); err != nil {
			return err
		}
		for i, way := range damages {
			if err := d.damageOnce(ctx, s, i+1, way.name, way.do); err != nil {
				return fmt.Errorf("%s: %w", way.name, err)
			}
		}
		return s.judgeWhenQuiet(ctx)
	})
}

// damageOnce does the n-th damage.
func (d Damage) damageOnce(ctx context.Context, s *fleetRun, n int, name string, do func(journal string) error) error {
	e := s.fleet.Edges[0]
	if err := d.prepareJournal(ctx, s, e); err != nil {
		return err
	}
	before, err := taskPids(e)
	if err != nil {
		return err
	}
	rows, err := e.Local().History(ctx, "")
	if err != nil {
		return err
	}
	s.rowsBeforeDamage[e.Name] = append(s.rowsBeforeDamage[e.Name], rows...)
	e.Kill()
	if err := do(filepath.Join(e.Dir, "journal.db")); err != nil {
		return err
	}
	if err := e.Heal(); err != nil {
		return err
	}
	if err := e.Start(); err != nil {
		return err
	}
	took, _, err := s.waitUntilQuiet(ctx)
	if err != nil {
		return err
	}
	after, err := taskPids(e)
	if err != nil {
		return err
	}
	if !maps.EqualFunc(before, after, slices.Equal) {
		return fmt.Errorf("%w: its tasks' processes were %v and are %v", ErrViolated, before, after)
	}
	gap, err := d.checkDamageShown(ctx, s, e, n)
	if err != nil {
		return err
	}
	d.printLine("%s: settled after %s, same processes; %s", name, took.Round(time.Millisecond), gap)
	return nil
}

// prepareJournal has the database hold rows, its log newer ones, and some of those wait
// behind a cut link.
func (d Damage) prepareJournal(ctx context.Context, s *fleetRun, e *cluster.Edge) error {
	if err := e.Stop(); err != nil { // moves the log into the database
		return err
	}
	if err := e.Start(); err != nil {
		return err
	}
	if _, _, err := s.waitUntilQuiet(ctx); err != nil {
		return err
	}
	if err := e.Cut(); err != nil {
		return err
	}
	st, err := e.Local().Status(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(st.Allocs, func(a local.Alloc) bool { return a.ClientStatus == fleet.ClientRunning })
	if i < 0 {
		return fmt.Errorf("%w: nothing runs on %s", ErrVoid, e.Name)
	}
	id := st.Allocs[i].ID
	restarts := restartsOf(st.Allocs[i])
	if err := e.Local().Restart(ctx, id, "", "rows to lose"); err != nil {
		return err
	}
	return cluster.Eventually(ctx, quietBound, "the task runs again", func(ctx context.Context) string {
		st, err := e.Local().Status(ctx)
		if err != nil {
			return err.Error()
		}
		i := slices.IndexFunc(st.Allocs, func(a local.Alloc) bool { return a.ID == id })
		if i < 0 || restartsOf(st.Allocs[i]) == restarts || st.Allocs[i].Tasks["main"].State != fleet.TaskRunning {
			return "it does not"
		}
		live, err := processes(e)
		if err != nil {
			return err.Error()
		}
		if live[check.TaskKey{Alloc: id, Task: "main"}] != 1 {
			return "it has no process of its own yet"
		}
		return ""
	})
}

func restartsOf(a local.Alloc) uint64 { return a.Tasks["main"].Restarts }

// checkDamageShown checks that edge and hub tell of the n-th damage, and returns the hub's
// words for what is lost.
func (d Damage) checkDamageShown(ctx context.Context, s *fleetRun, e *cluster.Edge, n int) (string, error) {
	st, err := e.Local().Status(ctx)
	if err != nil {
		return "", err
	}
	switch kept := st.Journal.Quarantined; {
	case len(kept) == 0:
		return "", fmt.Errorf("%w: the edge tells of no damage", ErrViolated)
	case st.Link.Fenced != "" || st.Journal.Lost != "":
		return "", fmt.Errorf("%w: the edge is fenced (%q) or has not gone on (%q)", ErrViolated, st.Link.Fenced, st.Journal.Lost)
	default:
		if _, err := os.Stat(kept[len(kept)-1].Path); err != nil {
			return "", fmt.Errorf("%w: the damaged database is not kept: %w", ErrViolated, err)
		}
	}
	history, err := s.fleet.Hubs[0].NodeHistory(ctx, st.NodeID)
	if err != nil {
		return "", err
	}
	damaged, gaps, words := 0, 0, ""
	for _, entry := range history {
		if entry.Event == "journal damaged" {
			damaged++
		}
		if t := entry.Transition; t != nil && t.Kind == fleet.TransitionGap && len(t.Message) > len("the journal was damaged") {
			gaps++
			words = t.Message
		}
	}
	if damaged < n || gaps != n {
		return "", fmt.Errorf("%w: after %d damages the node's record tells of %d, and of %d gaps", ErrViolated, n, damaged, gaps)
	}
	return words, nil
}

// flipPages inverts the end of each page, where its content lies.
func flipPages(path string) error {
	const page, part = 4096, 64
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	for i := range b {
		if i%page >= page-part {
			b[i] = ^b[i]
		}
	}
	return os.WriteFile(path, b, 0o600)
}

// flipMiddle inverts 64 bytes in the middle of a file.
func flipMiddle(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	for i := len(b) / 2; i < min(len(b)/2+64, len(b)); i++ {
		b[i] = ^b[i]
	}
	return os.WriteFile(path, b, 0o600)
}

// halve cuts a file in the middle.
func halve(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	return os.Truncate(path, info.Size()/2)
}

// removeAll removes a journal with everything beside it, but what earlier damages
// left.
func removeAll(journal string) error {
	var errs []error
	for _, suffix := range []string{"", "-wal", ".seen"} {
		if err := os.Remove(journal + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
