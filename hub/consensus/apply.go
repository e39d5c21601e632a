package consensus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"skerry/fleet"
	"skerry/hub/state"
	"skerry/internal/codec"
)

const (
	// MaxCommand is the largest encoded command, in bytes. It travels in one message.
	MaxCommand = 12 << 20
	// applyTimeout bounds an Apply, even if the caller's context has more time.
	applyTimeout = 15 * time.Second
	// leaderWait bounds the time in which an Apply waits for a leader and tries again. An
	// election takes about two timeouts.
	leaderWait = 8 * time.Second
	// readYourWrites bounds the wait until this hub has applied a command that it forwarded.
	readYourWrites = 5 * time.Second
	// pollLeader is the interval of retries, for changes of the leader that raft does not report.
	pollLeader = 100 * time.Millisecond
)

// errNoLeader says that no leader is known. Exported methods convert it to a *fleet.Error.
var errNoLeader = errors.New("no leader is known")

// errOutdated says that a Decide was overtaken by an Alone, which may have replaced the state.
var errOutdated = errors.New("the state was replaced after the command was decided")

// errNoTurn says that the caller's context ended before the command was given to raft.
var errNoTurn = errors.New("the caller stopped waiting before the command was given to raft")

// allTurns is the number of turns for giving commands to raft. It is greater than the number of concurrent
// commands.
const allTurns = 1 << 40

// Apply commits a command through the leader, wherever it is. It returns the command's result once this
// hub's state has applied it, or 5 s later. A refused command is no error: see Result.Err. It blocks up to
// 15 s.
// Errors are *fleet.Error: invalid (the command cannot be encoded, or is larger than MaxCommand),
// unavailable, timeout. The hint of the last two says whether the command may be committed nevertheless.
// Apply itself tries again only if the command is surely not committed, and after a state.Recheck, whose error it returns.
func (n *Node) Apply(ctx context.Context, c state.Command) (state.Result, error) {
	cmd, err := encodeCommand(c)
	if err != nil {
		return state.Result{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	giveUp := time.Now().Add(leaderWait)
	for again := n.lacksContact(); ; again = true {
		changed := n.leaderNotifier.nextChange()
		var err error
		if again {
			err = state.Recheck(ctx)
		}
		if err != nil && !isElection(err) {
			return state.Result{}, err
		}
		if err == nil {
			var res state.Result
			if res, err = n.commitOrForward(ctx, cmd); err == nil {
				return res, nil
			}
			if !isSurelyNotCommitted(err) {
				return state.Result{}, maybeCommittedError(err)
			}
		}
		select {
		case <-changed:
		case <-time.After(pollLeader):
		case <-ctx.Done():
			return state.Result{}, notCommittedError(err)
		}
		if time.Now().After(giveUp) {
			return state.Result{}, notCommittedError(err)
		}
	}
}

// lacksContact reports whether this hub follows, and has not heard of the leader for longer than an election takes to begin.
func (n *Node) lacksContact() bool {
	r := n.raft.Load()
	return r != nil && r.State() != raft.Leader && time.Since(r.LastContact()) > n.cfg.HeartbeatTimeout
}

// isElection reports whether an error may be over with the next leader.
func isElection(err error) bool {
	switch fleet.CodeOf(err) {
	case fleet.CodeUnavailable, fleet.CodeNotLeader, fleet.CodeTimeout:
		return true
	}
	return false
}

// Decide commits a command that this hub decided as the leader, from knowledge that only the leader has
// (plans in flight, deadlines). It is never forwarded: another leader has other knowledge. If this hub
// does not lead, or an Alone came first, the error is CodeNotLeader and the command is surely not
// committed.
func (n *Node) Decide(ctx context.Context, c state.Command) (state.Result, error) {
	generation := n.generation.Load()
	cmd, err := encodeCommand(c)
	if err != nil {
		return state.Result{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	return decisionResult(n.commitIf(ctx, cmd, func() bool { return n.generation.Load() == generation }))
}

// decisionResult converts the outcome of a Decide or Alone: CodeNotLeader if the command is surely not
// committed, otherwise an error that says that it may be.
func decisionResult(res state.Result, err error) (state.Result, error) {
	switch {
	case err == nil:
		return res, nil
	case isSurelyNotCommitted(err):
		return state.Result{}, fleet.Errorf(fleet.CodeNotLeader, "commit a command: %v", err)
	}
	return state.Result{}, maybeCommittedError(err)
}

// Alone is a Decide for a command that invalidates earlier decisions (a restored snapshot). Commands that
// were given to raft before are applied first, later ones wait, and a Decide that has not reached raft yet
// is refused. The caller must have stopped the components that decide on this hub. Only ctx bounds it.
func (n *Node) Alone(ctx context.Context, c state.Command) (state.Result, error) {
	cmd, err := encodeCommand(c)
	if err != nil {
		return state.Result{}, err
	}
	return decisionResult(resultFromResponse(call(ctx, n, func(r *raft.Raft) (any, error) {
		if n.applyTurns.Acquire(ctx, allTurns) != nil {
			return nil, errNoTurn
		}
		defer n.applyTurns.Release(allTurns)
		n.generation.Add(1)
		return n.applyToRaft(ctx, r, cmd)
	})))
}

// encodeCommand returns the bytes of a command, or an error if they exceed MaxCommand.
func encodeCommand(c state.Command) ([]byte, error) {
	cmd, err := state.Encode(c)
	if err != nil {
		return nil, fmt.Errorf("commit a command: %w", err)
	}
	if len(cmd) > MaxCommand {
		return nil, fleet.Errorf(fleet.CodeInvalid, "apply a command: %d bytes, at most %d are allowed", len(cmd), MaxCommand)
	}
	return cmd, nil
}

// ApplyEncoded commits a command that the Apply of another hub forwarded, and returns the encoded Result.
// If this hub does not lead, the error is CodeNotLeader and the command is surely not committed.
func (n *Node) ApplyEncoded(ctx context.Context, cmd []byte) ([]byte, error) {
	// A command of a newer release must not get into the log: it would stop every
	// hub that cannot read it.
	if _, err := state.Decode(cmd); err != nil {
		return nil, fleet.Errorf(fleet.CodeInvalid, "decode a forwarded command: %v", err)
	}
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	res, err := n.commitLocally(ctx, cmd)
	switch {
	case err != nil && isSurelyNotCommitted(err):
		return nil, fleet.Errorf(fleet.CodeNotLeader, "commit a command: %v", err)
	case err != nil:
		return nil, maybeCommittedError(err)
	}
	b, err := codec.Marshal(res)
	if err != nil {
		return nil, fmt.Errorf("encode a result: %w", err)
	}
	return b, nil
}

var resultDecoder = codec.NewDecoder(codec.Limits{})

// commitOrForward commits a command here if this hub leads, else on the leader. It tries once.
func (n *Node) commitOrForward(ctx context.Context, cmd []byte) (state.Result, error) {
	if _, leads := n.Leads(); leads {
		return n.commitLocally(ctx, cmd)
	}
	id, addr, ok := n.Leader()
	if !ok || id == n.cfg.ID {
		return state.Result{}, errNoLeader
	}
	b, err := n.cfg.Forward(ctx, addr, cmd)
	if err != nil {
		return state.Result{}, fmt.Errorf("forward to hub %s: %w", id, err)
	}
	var res state.Result
	if err := resultDecoder.Unmarshal(b, &res); err != nil {
		return state.Result{}, fmt.Errorf("decode the result of hub %s: %w", id, err)
	}
	n.waitForOwnState(ctx, res.Index)
	return res, nil
}

// waitForOwnState waits until this hub's state has applied index, so that the caller reads its own write.
// After readYourWrites it returns all the same: the command is committed.
func (n *Node) waitForOwnState(ctx context.Context, index fleet.Index) {
	ctx, cancel := context.WithTimeout(ctx, readYourWrites)
	defer cancel()
	if err := n.cfg.Store.WaitIndex(ctx, index); err != nil {
		n.log.Debug("own state is behind", "index", index, "error", err)
	}
}

// commitLocally commits a command on this hub, which must be the leader.
func (n *Node) commitLocally(ctx context.Context, cmd []byte) (state.Result, error) {
	return n.commitIf(ctx, cmd, func() bool { return true })
}

// commitIf commits a command on this hub. When its turn to be given to raft has come, it calls still, and
// fails with errOutdated if that returns false.
func (n *Node) commitIf(ctx context.Context, cmd []byte, still func() bool) (state.Result, error) {
	return resultFromResponse(call(ctx, n, func(r *raft.Raft) (any, error) {
		if n.applyTurns.Acquire(ctx, 1) != nil {
			return nil, errNoTurn
		}
		defer n.applyTurns.Release(1)
		if !still() {
			return nil, errOutdated
		}
		return n.applyToRaft(ctx, r, cmd)
	}))
}

// resultFromResponse converts the response of the state machine to a Result, or returns its error.
func resultFromResponse(response any, err error) (state.Result, error) {
	if err != nil {
		return state.Result{}, err
	}
	switch v := response.(type) {
	case state.Result:
		return v, nil
	case error: // the command is committed, and this hub stops because it cannot apply it
		return state.Result{}, v
	default:
		return state.Result{}, fmt.Errorf("apply a command: the state machine answered with a %T", v)
	}
}

// Barrier returns when this hub has applied everything that was committed before the call. If it does not
// lead, the error is CodeNotLeader.
func (n *Node) Barrier(ctx context.Context) error {
	_, err := call(ctx, n, func(r *raft.Raft) (struct{}, error) {
		return struct{}{}, r.Barrier(untilDeadline(ctx)).Error()
	})
	return raftError("wait for a barrier", err)
}

// call runs ask in a goroutine, which stopRaft waits for. It returns ctx's error if ctx ends first; ask
// then goes on, because raft's calls cannot be canceled. Before Run and while the Node stops it returns
// errNoLeader.
func call[T any](ctx context.Context, n *Node, ask func(*raft.Raft) (T, error)) (T, error) {
	var zero T
	r := n.raft.Load()
	if r == nil {
		return zero, errNoLeader
	}
	type outcome struct {
		value T
		err   error
	}
	done := make(chan outcome, 1)
	n.mu.Lock()
	if n.stopping {
		n.mu.Unlock()
		return zero, errNoLeader
	}
	n.calls.Go(func() {
		v, err := ask(r)
		done <- outcome{v, err}
	})
	n.mu.Unlock()
	select {
	case o := <-done:
		return o.value, o.err
	case <-ctx.Done():
		return zero, ctx.Err()
	}
}

// untilDeadline returns the time until ctx's deadline, at least 1 ns; 0: ctx has no deadline.
func untilDeadline(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return 0
	}
	return max(time.Until(deadline), 1)
}

// isSurelyNotCommitted reports whether a command that failed with err is not committed, and never will be.
func isSurelyNotCommitted(err error) bool {
	for _, e := range []error{errNoLeader, errOutdated, errNoTurn, errReplaced, raft.ErrNotLeader, raft.ErrEnqueueTimeout, raft.ErrLeadershipTransferInProgress} {
		if errors.Is(err, e) {
			return true
		}
	}
	var sent interface{ NotSent() bool }
	if errors.As(err, &sent) && sent.NotSent() {
		return true
	}
	return fleet.CodeOf(err) == fleet.CodeNotLeader
}

// notCommittedError is the error of a command that is surely not committed.
func notCommittedError(err error) *fleet.Error {
	return fleet.Errorf(fleet.CodeUnavailable, "commit a command: %v", err).
		WithHint("nothing was changed; most hubs have to be up and to reach each other")
}

// maybeCommittedError is the error of a command that may be committed. An error of the leader that has a
// hint is returned as it is.
func maybeCommittedError(err error) *fleet.Error {
	var e *fleet.Error
	if errors.As(err, &e) && e.Code != fleet.CodeInternal && e.Hint != "" {
		return e
	}
	code := fleet.CodeUnavailable
	if errors.Is(err, context.DeadlineExceeded) || fleet.CodeOf(err) == fleet.CodeTimeout {
		code = fleet.CodeTimeout
	}
	return fleet.Errorf(code, "commit a command: %v", err).
		WithHint("it may be committed nevertheless: look before you repeat it")
}

// raftError converts an error of raft to a *fleet.Error: not_leader, timeout or unavailable. verb says
// what was being done. A nil error stays nil, a canceled context stays that.
func raftError(verb string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, errNoLeader), errors.Is(err, raft.ErrLeadershipLost):
		return fleet.Errorf(fleet.CodeNotLeader, "%s: %v", verb, err)
	case errors.Is(err, raft.ErrEnqueueTimeout), errors.Is(err, context.DeadlineExceeded):
		return fleet.Errorf(fleet.CodeTimeout, "%s: %v", verb, err)
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("%s: %w", verb, err)
	}
	return fleet.Errorf(fleet.CodeUnavailable, "%s: %v", verb, err)
}
