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
	// MaxCommand bounds an encoded command, in bytes: it travels in one message.
	MaxCommand = 12 << 20
	// applyTimeout bounds an Apply, also of a caller that would wait longer.
	applyTimeout = 15 * time.Second
	// leaderWait is how long an Apply waits for a leader at most. An election takes
	// about two timeouts.
	leaderWait = 8 * time.Second
	// readYourWrites bounds the wait for this hub's own state.
	readYourWrites = 5 * time.Second
	// pollLeader is for changes of the leader that raft does not tell of.
	pollLeader = 100 * time.Millisecond
)

// errNoLeader is within this package: who asks gets a *fleet.Error.
var errNoLeader = errors.New("no leader is known")

// errOutdated is of a decision that was made before another command went alone.
var errOutdated = errors.New("the state was replaced since that was decided")

// errNoTurn is of a command whose caller had left before it could be given to raft.
var errNoTurn = errors.New("nobody waited for it any more when its turn came")

// allTurns is all turns that there are to give commands to raft: more than commands.
const allTurns = 1 << 40

// Apply commits a command, through the leader wherever it is, and returns what
// applying it gave, when this hub's own state has applied it, too (or 5 s later).
// An error means that it is not known to be committed; a refusal is in
// Result.Err. Errors are *fleet.Error: invalid (it cannot be encoded, or is over
// MaxCommand), unavailable, timeout. The last two have a hint, which says whether
// it may be committed nevertheless; only what surely is not is tried again here.
func (n *Node) Apply(ctx context.Context, c state.Command) (state.Result, error) {
	cmd, err := encode(c)
	if err != nil {
		return state.Result{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	giveUp := time.Now().Add(leaderWait)
	for {
		changed := n.leaderNotifier.nextChange()
		res, err := n.commitOrForward(ctx, cmd)
		if err == nil {
			return res, nil
		}
		if !isSurelyNotCommitted(err) {
			return state.Result{}, maybeCommittedError(err)
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

// Decide is Apply for what this hub decides as the leader, on what only the leader
// knows (plans in flight, deadlines). It is committed here or nowhere: another
// leader has its own picture. Not on the leader: CodeNotLeader, and the command is
// surely not committed.
func (n *Node) Decide(ctx context.Context, c state.Command) (state.Result, error) {
	era := n.generation.Load()
	cmd, err := encode(c)
	if err != nil {
		return state.Result{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	return decisionResult(n.commitIf(ctx, cmd, func() bool { return n.generation.Load() == era }))
}

func decisionResult(res state.Result, err error) (state.Result, error) {
	switch {
	case err == nil:
		return res, nil
	case isSurelyNotCommitted(err):
		return state.Result{}, fleet.Errorf(fleet.CodeNotLeader, "commit a command: %v", err)
	}
	return state.Result{}, maybeCommittedError(err)
}

// Alone is Decide for a command after which nothing holds that was decided before
// (a restored snapshot): whatever was given to raft earlier is applied first, what
// comes meanwhile waits, and a Decide that was called before and has not been
// given to raft is refused. Who calls it has ended what decides on this hub. It
// takes as long as applying does; ctx alone bounds it, and where that ends before it
// has its turn, it is not committed.
func (n *Node) Alone(ctx context.Context, c state.Command) (state.Result, error) {
	cmd, err := encode(c)
	if err != nil {
		return state.Result{}, err
	}
	return decisionResult(resultFromResponse(call(ctx, n, func(r *raft.Raft) (any, error) {
		if n.applyTurns.Acquire(ctx, allTurns) != nil {
			return nil, errNoTurn
		}
		defer n.applyTurns.Release(allTurns)
		n.generation.Add(1)
		return applyToRaft(r, cmd, untilDeadline(ctx))
	})))
}

func encode(c state.Command) ([]byte, error) {
	cmd, err := state.Encode(c)
	if err != nil {
		return nil, fmt.Errorf("commit a command: %w", err)
	}
	if len(cmd) > MaxCommand {
		return nil, fleet.Errorf(fleet.CodeInvalid, "apply a command: %d bytes, at most %d are allowed", len(cmd), MaxCommand)
	}
	return cmd, nil
}

// ApplyEncoded commits a command that another hub's Apply forwarded, and gives
// the encoded Result. Not on the leader: CodeNotLeader, and the command is surely
// not committed.
func (n *Node) ApplyEncoded(ctx context.Context, cmd []byte) ([]byte, error) {
	// A command of a newer release must not get into the log: it would stop every
	// hub that cannot read it.
	if _, err := state.Decode(cmd); err != nil {
		return nil, fleet.Errorf(fleet.CodeInvalid, "decode a forwarded command: %v", err)
	}
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

// commitOrForward commits a command here or on the leader, once.
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

// waitForOwnState waits until this hub's state has applied index, so that its caller
// reads its own write. That it takes too long is no error: it is committed.
func (n *Node) waitForOwnState(ctx context.Context, index fleet.Index) {
	ctx, cancel := context.WithTimeout(ctx, readYourWrites)
	defer cancel()
	if err := n.cfg.Store.WaitIndex(ctx, index); err != nil {
		n.log.Debug("own state is behind", "index", index, "error", err)
	}
}

// commitLocally commits a command on this hub as the leader.
func (n *Node) commitLocally(ctx context.Context, cmd []byte) (state.Result, error) {
	return n.commitIf(ctx, cmd, func() bool { return true })
}

// commitIf is commit, where still holds when its turn has come.
func (n *Node) commitIf(ctx context.Context, cmd []byte, still func() bool) (state.Result, error) {
	return resultFromResponse(call(ctx, n, func(r *raft.Raft) (any, error) {
		if n.applyTurns.Acquire(ctx, 1) != nil {
			return nil, errNoTurn
		}
		defer n.applyTurns.Release(1)
		if !still() {
			return nil, errOutdated
		}
		return applyToRaft(r, cmd, untilDeadline(ctx))
	}))
}

func applyToRaft(r *raft.Raft, cmd []byte, timeout time.Duration) (any, error) {
	f := r.Apply(cmd, timeout)
	if err := f.Error(); err != nil {
		return nil, err
	}
	return f.Response(), nil
}

// resultFromResponse is what the state machine said.
func resultFromResponse(response any, err error) (state.Result, error) {
	if err != nil {
		return state.Result{}, err
	}
	switch v := response.(type) {
	case state.Result:
		return v, nil
	case error: // it is committed, and this hub stops for it
		return state.Result{}, v
	default:
		return state.Result{}, fmt.Errorf("apply a command: the state machine answered with a %T", v)
	}
}

// Barrier returns when everything committed before the call is applied here.
// Not on the leader: CodeNotLeader.
func (n *Node) Barrier(ctx context.Context) error {
	_, err := call(ctx, n, func(r *raft.Raft) (struct{}, error) {
		return struct{}{}, r.Barrier(untilDeadline(ctx)).Error()
	})
	return raftError("wait for a barrier", err)
}

// call asks raft, and stops waiting for its answer when ctx ends; raft has no way
// to be told.
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

// untilDeadline is the time that ctx leaves, 0 where it has no end.
func untilDeadline(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return 0
	}
	return max(time.Until(deadline), 1)
}

// isSurelyNotCommitted reports whether a command that failed with err was surely not
// committed, and will not be.
func isSurelyNotCommitted(err error) bool {
	for _, e := range []error{errNoLeader, errOutdated, errNoTurn, raft.ErrNotLeader, raft.ErrEnqueueTimeout, raft.ErrLeadershipTransferInProgress} {
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

// maybeCommittedError is the error of a command that may be committed, or the leader's own
// word on it.
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

// raftError names what raft answered to something that is not a command.
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
