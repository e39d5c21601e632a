package state

import (
	"fmt"
	"reflect"
	"strings"
	"unicode"

	"skerry/fleet"
	"skerry/internal/codec"
)

// entryVersion is a log entry's first byte, Kind its second; the command as CBOR
// follows.
const entryVersion = 1

// MaxEntry bounds a log entry, in bytes. Whoever makes commands keeps them far
// below it: an entry is fsynced and sent to every hub as one piece.
const MaxEntry = 8 << 20

// ErrTooLarge is wrapped by Encode's error for a command that no entry holds: more than
// MaxEntry bytes, or more items than a hub decodes.
var ErrTooLarge = fleet.Errorf(fleet.CodeInvalid, "too large for an entry of the log")

// Encode returns a command as the bytes of a log entry. A command that is too large is
// refused with ErrTooLarge (CodeInvalid).
func Encode(c Command) ([]byte, error) {
	if _, ok := newCommandOf(c.Kind()); !ok {
		return nil, fleet.Errorf(fleet.CodeInternal, "encode command %T: no such kind %d", c, c.Kind())
	}
	b := codec.AppendLean([]byte{entryVersion, byte(c.Kind())}, c)
	if len(b) > MaxEntry {
		return nil, fmt.Errorf("encode command %T: %d bytes, at most %d: %w", c, len(b), MaxEntry, ErrTooLarge)
	}
	if err := codec.CheckBounds(b[2:], maxItems, maxNesting); err != nil {
		return nil, fmt.Errorf("encode command %T: %v: %w", c, err, ErrTooLarge)
	}
	return b, nil
}

// Decode is the inverse of Encode; the command is a value, as Encode takes it.
// What a newer release wrote is refused with CodeVersion, what is malformed or
// too large with CodeInvalid.
func Decode(b []byte) (Command, error) {
	switch {
	case len(b) > MaxEntry:
		return nil, fleet.Errorf(fleet.CodeInvalid, "decode log entry: %d bytes are more than an entry holds", len(b))
	case len(b) < 2:
		return nil, fleet.Errorf(fleet.CodeInvalid, "decode log entry: truncated at %d bytes", len(b))
	case b[0] != entryVersion:
		return nil, newerReleaseError("decode log entry: version %d", b[0])
	}
	c, ok := newCommandOf(Kind(b[1]))
	if !ok {
		return nil, newerReleaseError("decode log entry: unknown command %d", b[1])
	}
	if err := decode(b[2:], c.Interface()); err != nil {
		if codec.IsUnknownField(err) {
			return nil, newerReleaseError("decode log entry of command %d: %v", b[1], err)
		}
		return nil, fleet.Errorf(fleet.CodeInvalid, "decode log entry of command %d: %v", b[1], err)
	}
	return c.Elem().Interface().(Command), nil
}

func newerReleaseError(format string, args ...any) error {
	return fleet.Errorf(fleet.CodeVersion, "%s", fmt.Sprintf(format, args...)).
		WithHint("a newer release wrote it; upgrade this hub")
}

// newCommandOf makes a pointer to the command of a kind.
func newCommandOf(k Kind) (reflect.Value, bool) {
	t, ok := commands[k]
	if !ok {
		return reflect.Value{}, false
	}
	return reflect.New(t), true
}

// String is what a kind is called where commands are counted: job_register.
func (k Kind) String() string {
	t, ok := commands[k]
	if !ok {
		return fmt.Sprintf("kind_%d", uint8(k))
	}
	var name strings.Builder
	for i, r := range t.Name() {
		if unicode.IsUpper(r) && i > 0 {
			name.WriteByte('_')
		}
		name.WriteRune(unicode.ToLower(r))
	}
	return name.String()
}

var commands = map[Kind]reflect.Type{
	KindJobRegister:   reflect.TypeFor[JobRegister](),
	KindJobDeregister: reflect.TypeFor[JobDeregister](),
	KindNodeRegister:  reflect.TypeFor[NodeRegister](),
	KindSessionOpen:   reflect.TypeFor[SessionOpen](),
	KindNodeStatus:    reflect.TypeFor[NodeStatus](),
	KindAllocUpdates:  reflect.TypeFor[AllocUpdates](),
	KindPlan:          reflect.TypeFor[Plan](),
	KindEvals:         reflect.TypeFor[Evals](),
	KindAllocStop:     reflect.TypeFor[AllocStop](),
	KindPool:          reflect.TypeFor[Pool](),
	KindClusterInit:   reflect.TypeFor[ClusterInit](),
	KindToken:         reflect.TypeFor[Token](),
	KindFence:         reflect.TypeFor[Fence](),
	KindNodeResync:    reflect.TypeFor[NodeResync](),
	KindEvalDelete:    reflect.TypeFor[EvalDelete](),
	KindNodeEligible:  reflect.TypeFor[NodeEligibility](),
	KindCertificate:   reflect.TypeFor[Certificate](),
	KindHub:           reflect.TypeFor[Hub](),

	KindDeploymentStatus:  reflect.TypeFor[DeploymentStatus](),
	KindDeploymentPromote: reflect.TypeFor[DeploymentPromote](),
	KindAllocHealth:       reflect.TypeFor[AllocHealth](),
	KindDeploymentDelete:  reflect.TypeFor[DeploymentDelete](),
	KindNodeDrain:         reflect.TypeFor[NodeDrain](),
	KindDrainStep:         reflect.TypeFor[DrainStep](),
	KindNodePurge:         reflect.TypeFor[NodePurge](),
	KindNodeEvaluate:      reflect.TypeFor[NodeEvaluate](),
	KindSchedulerConfig:   reflect.TypeFor[SchedulerConfig](),
	KindCollect:           reflect.TypeFor[Collect](),
	KindPeriodicLaunch:    reflect.TypeFor[PeriodicLaunch](),
	KindJobDispatch:       reflect.TypeFor[JobDispatch](),
	KindJobScale:          reflect.TypeFor[JobScale](),
	KindJobEvaluate:       reflect.TypeFor[JobEvaluate](),
	KindJobTag:            reflect.TypeFor[JobTag](),
	KindJobStable:         reflect.TypeFor[JobStable](),
	KindNamespaceStore:    reflect.TypeFor[NamespaceStore](),
	KindPoolDelete:        reflect.TypeFor[PoolDelete](),
	KindNamespaceDelete:   reflect.TypeFor[NamespaceDelete](),
	KindSnapshotPart:      reflect.TypeFor[SnapshotPart](),
	KindSnapshotRestore:   reflect.TypeFor[SnapshotRestore](),
	KindSnapshotDrop:      reflect.TypeFor[SnapshotDrop](),
	KindNodeRevoke:        reflect.TypeFor[NodeRevoke](),
	KindNodeReadmit:       reflect.TypeFor[NodeReadmit](),
	KindClusterSeal:       reflect.TypeFor[ClusterSeal](),
}
