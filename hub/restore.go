package hub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"skerry/fleet"
	"skerry/hub/rpc"
	"skerry/hub/state"
)

// restoreTimeout bounds the entry that restores a snapshot, which every hub applies
// by reading all of it.
const restoreTimeout = 5 * time.Minute

// methodRestore asks the leader for the entry that restores a snapshot whose parts are in
// the log. It is answered with the index of the entry.
const methodRestore rpc.Method[state.SnapshotRestore, fleet.Index] = "state.restore"

// exclusiveCommand is a command that the leader applies with nothing that leads beside it.
type exclusiveCommand struct {
	ctx     context.Context // of who waits for its answer
	command state.Command
	done    chan<- exclusiveResult // has room for it
}

type exclusiveResult struct {
	res state.Result
	err error
}

// Restore has a snapshot replace the state. Its parts travel through the log first,
// so that no hub can be without them; the one entry that replaces the state is the
// leader's to commit, while nothing leads there: what was decided on the state before
// must not be applied to the one after.
func (c cluster) Restore(ctx context.Context, snapshot io.Reader, size int64, sum []byte) (index fleet.Index, err error) {
	restore := fleet.NewUUID(nil)
	defer func() {
		if err != nil {
			c.dropSnapshotParts(restore)
		}
	}()
	if err := c.writeSnapshotParts(ctx, restore, snapshot); err != nil {
		return 0, err
	}
	cmd := state.SnapshotRestore{Restore: restore, Size: size, Sum: sum, EvalSeed: fleet.NewUUID(nil), Now: time.Now().UnixNano()}
	ctx, cancel := context.WithTimeout(ctx, restoreTimeout)
	defer cancel()
	index, err = methodRestore.OnLeader(ctx, c.h.peers, cmd, func(ctx context.Context, cmd state.SnapshotRestore) (fleet.Index, error) {
		return c.h.restoreAsLeader(ctx, string(c.h.hubID()), cmd)
	})
	if err != nil {
		return 0, err
	}
	if err := c.h.store.WaitIndex(ctx, index); err != nil {
		return 0, fleet.Errorf(fleet.CodeTimeout, "restore a snapshot: it is restored by entry %d, which hub %s has not come to yet", index, c.h.hubID())
	}
	return index, nil
}

// writeSnapshotParts has the parts of a snapshot in the log.
func (c cluster) writeSnapshotParts(ctx context.Context, restore string, snapshot io.Reader) error {
	part := make([]byte, state.SnapshotPartBytes)
	for number := uint64(0); ; number++ {
		n, err := io.ReadFull(snapshot, part)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("restore a snapshot: %w", err)
		}
		res, err := c.h.node.Apply(ctx, state.SnapshotPart{Restore: restore, Number: number, Data: part[:n]})
		if err = res.Failure(err); err != nil {
			return err
		}
	}
}

// dropSnapshotParts drops the parts of a restore that is not gone on with. Where that fails, the
// next leader does it.
func (c cluster) dropSnapshotParts(restore string) {
	ctx, cancel := context.WithTimeout(context.Background(), rpc.CallTimeout)
	defer cancel()
	if _, err := c.h.node.Apply(ctx, state.SnapshotDrop{Restore: restore}); err != nil {
		c.h.log.Warn("parts of a snapshot stay in the state until another hub leads", "error", err)
	}
}

// restoreAsLeader hands a restore to what runs the leader's rooms here.
func (h *Hub) restoreAsLeader(ctx context.Context, from string, c state.SnapshotRestore) (fleet.Index, error) {
	h.log.Info("snapshot is to be restored", "restore", c.Restore, "bytes", c.Size, "by", from)
	done := make(chan exclusiveResult, 1)
	select {
	case h.exclusiveCommands <- exclusiveCommand{ctx, c, done}:
	case <-ctx.Done():
		return 0, fleet.Errorf(fleet.CodeUnavailable, "restore a snapshot: hub %s does not lead yet: %v; nothing was changed", h.hubID(), ctx.Err())
	}
	select {
	case o := <-done:
		return o.res.Index, o.res.Failure(o.err)
	case <-ctx.Done():
		return 0, fleet.Errorf(fleet.CodeTimeout, "restore a snapshot: %v", ctx.Err()).
			WithHint("it may be restored nevertheless: look before you repeat it")
	}
}

// dropUnfinishedRestore drops the parts of a restore that an earlier leader did not finish.
func (h *Hub) dropUnfinishedRestore(ctx context.Context) error {
	restore, ok := h.store.View().Restoring()
	if !ok {
		return nil
	}
	_, err := h.node.Decide(ctx, state.SnapshotDrop{Restore: restore})
	if err != nil && ctx.Err() == nil {
		h.log.Warn("parts of a snapshot stay in the state until another hub leads", "error", err)
	}
	return nil
}
