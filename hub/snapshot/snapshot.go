// Package snapshot has a snapshot replace the cluster's state, as the HTTP API is asked to.
//
// Restore runs in its caller's goroutine, on any hub. Its chunks travel through the log
// first, so that no hub can be without them. The one entry that replaces the state is the
// leader's to commit, while nothing leads there: what was decided on the state before must
// not be applied to the one after. So the hub's leader loop takes it from Commands, stops
// the leader's tasks, applies it, and starts them again. The package persists nothing.
package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"skerry/fleet"
	"skerry/hub/rpc"
	"skerry/hub/state"
	"skerry/internal/pace"
)

// restoreTimeout bounds the wait for the entry that restores a snapshot. Every hub reads the whole snapshot to
// apply it.
const restoreTimeout = 5 * time.Minute

// electionPoll is the pause before the next try while no hub leads.
const electionPoll = 100 * time.Millisecond

// methodRestore asks the leader to commit the entry that restores a snapshot whose chunks are in the log. The
// answer is the entry's index.
const methodRestore rpc.Method[state.SnapshotRestore, fleet.Index] = "state.restore"

// Config configures a Restorer. All fields are required.
type Config struct {
	Hub   fleet.HubID
	State *state.Store
	Apply state.Applier // commits commands from any hub
	Lead  state.Applier // commits commands only while this hub leads
	Peers *rpc.Peers
	Log   *slog.Logger
}

// Restorer restores snapshots of the cluster's state.
type Restorer struct {
	cfg      Config
	commands chan Command
}

// New returns a Restorer of this hub.
func New(cfg Config) *Restorer { return &Restorer{cfg: cfg, commands: make(chan Command)} }

// Command is a command that the leader loop applies while no leader task runs.
type Command struct {
	Context context.Context // of the caller that waits for the answer
	Command state.Command
	answer  chan<- answer // has room for it
}

type answer struct {
	res state.Result
	err error
}

// Answer passes the result of the command to the caller that waits for it. It must be called once and does not
// block.
func (c Command) Answer(res state.Result, err error) { c.answer <- answer{res, err} }

// Commands returns the channel of commands that the leader loop must apply while no leader task runs.
func (r *Restorer) Commands() <-chan Command { return r.commands }

// ServeCalls registers the handler for the calls of other hubs.
func (r *Restorer) ServeCalls() { methodRestore.Handle(r.cfg.Peers, r.restoreAsLeader) }

// Restore replaces the state of all hubs by a snapshot of size bytes with the given SHA-256 sum. It waits until
// this hub has applied the entry that does so, and returns the entry's index. If it fails, it removes the chunks
// from the state. During an election it begins again until a hub leads, for rpc.CallTimeout at most.
func (r *Restorer) Restore(ctx context.Context, snapshot io.ReadSeeker, size int64, sum []byte) (fleet.Index, error) {
	ctx, cancel := context.WithTimeout(ctx, restoreTimeout)
	defer cancel()
	election, cancel := context.WithTimeout(ctx, rpc.CallTimeout)
	defer cancel()
	for {
		index, err := r.restoreOnce(ctx, snapshot, size, sum)
		if !rpc.IsNoLeader(err) || !pace.Rest(election, electionPoll) {
			return index, err
		}
		// The leader that comes removes the chunks, so they are written again.
		if _, err := snapshot.Seek(0, io.SeekStart); err != nil {
			return 0, fmt.Errorf("restore a snapshot: %w", err)
		}
	}
}

// restoreOnce is Restore without the wait for a leader.
func (r *Restorer) restoreOnce(ctx context.Context, snapshot io.Reader, size int64, sum []byte) (index fleet.Index, err error) {
	restore := fleet.NewUUID(nil)
	defer func() {
		if err != nil {
			r.dropSnapshotParts(restore)
		}
	}()
	if err := r.writeSnapshotParts(ctx, restore, snapshot); err != nil {
		return 0, err
	}
	cmd := state.SnapshotRestore{Restore: restore, Size: size, Sum: sum, EvalSeed: fleet.NewUUID(nil), Now: time.Now().UnixNano()}
	index, err = methodRestore.OnLeader(ctx, r.cfg.Peers, cmd, func(ctx context.Context, cmd state.SnapshotRestore) (fleet.Index, error) {
		return r.restoreAsLeader(ctx, string(r.cfg.Hub), cmd)
	})
	if err != nil {
		return 0, err
	}
	if err := r.cfg.State.WaitIndex(ctx, index); err != nil {
		return 0, fleet.Errorf(fleet.CodeTimeout, "restore a snapshot: it is restored by entry %d, which hub %s has not come to yet", index, r.cfg.Hub)
	}
	return index, nil
}

// writeSnapshotParts commits the snapshot in chunks, under the id restore.
func (r *Restorer) writeSnapshotParts(ctx context.Context, restore string, snapshot io.Reader) error {
	part := make([]byte, state.SnapshotPartBytes)
	for number := uint64(0); ; number++ {
		n, err := io.ReadFull(snapshot, part)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("restore a snapshot: %w", err)
		}
		res, err := r.cfg.Apply.Apply(ctx, state.SnapshotPart{Restore: restore, Number: number, Data: part[:n]})
		if err = res.Failure(err); err != nil {
			return err
		}
	}
}

// dropSnapshotParts commits the removal of an abandoned restore's chunks. If that fails, it logs it, and the next
// leader removes them.
func (r *Restorer) dropSnapshotParts(restore string) {
	ctx, cancel := context.WithTimeout(context.Background(), rpc.CallTimeout)
	defer cancel()
	if _, err := r.cfg.Apply.Apply(ctx, state.SnapshotDrop{Restore: restore}); err != nil {
		r.cfg.Log.Warn("parts of a snapshot stay in the state until another hub leads", "error", err)
	}
}

// restoreAsLeader handles methodRestore: it passes the command to this hub's leader loop and waits for the answer.
// from names the hub that asks.
func (r *Restorer) restoreAsLeader(ctx context.Context, from string, c state.SnapshotRestore) (fleet.Index, error) {
	r.cfg.Log.Info("snapshot is to be restored", "restore", c.Restore, "bytes", c.Size, "by", from)
	done := make(chan answer, 1)
	select {
	case r.commands <- Command{ctx, c, done}:
	case <-ctx.Done():
		return 0, fleet.Errorf(fleet.CodeUnavailable, "restore a snapshot: hub %s does not lead yet: %v; nothing was changed", r.cfg.Hub, ctx.Err())
	}
	select {
	case a := <-done:
		return a.res.Index, a.res.Failure(a.err)
	case <-ctx.Done():
		return 0, fleet.Errorf(fleet.CodeTimeout, "restore a snapshot: %v", ctx.Err()).
			WithHint("it may be restored nevertheless: look before you repeat it")
	}
}

// DropUnfinished is a leader task: it removes the chunks of a restore that an earlier leader did not finish. It
// always returns nil; a failure is logged.
func (r *Restorer) DropUnfinished(ctx context.Context) error {
	restore, ok := r.cfg.State.View().Restoring()
	if !ok {
		return nil
	}
	_, err := r.cfg.Lead.Apply(ctx, state.SnapshotDrop{Restore: restore})
	if err != nil && ctx.Err() == nil {
		r.cfg.Log.Warn("parts of a snapshot stay in the state until another hub leads", "error", err)
	}
	return nil
}
