package state

import (
	"fmt"
	"reflect"
	"strings"
	"unicode"

	"skerry/fleet"
	"skerry/internal/codec"
)

// entryVersion is the first byte of a log entry. The Kind is the second, the command as CBOR
// follows.
const entryVersion = 1

// MaxEntry is the largest log entry, in bytes. Callers keep commands far below it, because an entry is
// fsynced and sent to every hub as one piece.
const MaxEntry = 8 << 20

// ErrTooLarge is wrapped by Encode's error if a command does not fit into a log entry: it has more than
// MaxEntry bytes, or more items than a hub decodes.
var ErrTooLarge = fleet.Errorf(fleet.CodeInvalid, "too large for an entry of the log")

// Encode returns a command as the bytes of a log entry. Its error wraps ErrTooLarge (CodeInvalid) if the
// command is too large.
func Encode(c Command) ([]byte, error) {
	if commands[KindOf(c)].name == "" {
		return nil, fleet.Errorf(fleet.CodeInternal, "encode command %T: no such kind %d", c, KindOf(c))
	}
	b := codec.AppendLean([]byte{entryVersion, byte(KindOf(c))}, c)
	if len(b) > MaxEntry {
		return nil, fmt.Errorf("encode command %s: %d bytes, at most %d: %w", KindOf(c), len(b), MaxEntry, ErrTooLarge)
	}
	if err := codec.CheckBounds(b[2:], maxItems, maxNesting); err != nil {
		return nil, fmt.Errorf("encode command %s: %v: %w", KindOf(c), err, ErrTooLarge)
	}
	return b, nil
}

// Decode returns the command of a log entry, as a value. Its error has CodeVersion if a newer release
// wrote the entry, CodeInvalid if the entry is malformed or too large.
func Decode(b []byte) (Command, error) {
	switch {
	case len(b) > MaxEntry:
		return nil, fleet.Errorf(fleet.CodeInvalid, "decode log entry: %d bytes are more than an entry holds", len(b))
	case len(b) < 2:
		return nil, fleet.Errorf(fleet.CodeInvalid, "decode log entry: truncated at %d bytes", len(b))
	case b[0] != entryVersion:
		return nil, newerReleaseError("decode log entry: version %d", b[0])
	}
	declared := commands[b[1]]
	if declared.name == "" {
		return nil, newerReleaseError("decode log entry: unknown command %d", b[1])
	}
	c, err := declared.decode(b[2:])
	switch {
	case codec.IsUnknownField(err):
		return nil, newerReleaseError("decode log entry of command %d: %v", b[1], err)
	case err != nil:
		return nil, fleet.Errorf(fleet.CodeInvalid, "decode log entry of command %d: %v", b[1], err)
	}
	return c, nil
}

// newerReleaseError returns an error with CodeVersion and the hint to upgrade this hub.
func newerReleaseError(format string, args ...any) error {
	return fleet.Errorf(fleet.CodeVersion, "%s", fmt.Sprintf(format, args...)).
		WithHint("a newer release wrote it; upgrade this hub")
}

// KindOf returns the kind of a command, or 0 if its type is not declared.
func KindOf(c Command) Kind { return kinds[reflect.TypeOf(c)] }

// String returns the name of a kind for metrics, such as job_register.
func (k Kind) String() string {
	if name := commands[k].name; name != "" {
		return name
	}
	return fmt.Sprintf("kind_%d", uint8(k))
}

// commandType is the declaration of one kind of command: its number, name, decoder, and the method that
// applies it.
type commandType struct {
	kind   Kind
	of     reflect.Type
	name   string
	decode func(body []byte) (Command, error)
	apply  func(t *tx, c Command) Result
}

// declareCommand declares the command type C with its number and the method that applies it.
func declareCommand[C Command](kind Kind, apply func(*tx, C) Result) commandType {
	return commandType{
		kind: kind,
		of:   reflect.TypeFor[C](),
		name: snakeCase(reflect.TypeFor[C]().Name()),
		decode: func(body []byte) (Command, error) {
			var c C
			err := decode(body, &c)
			return c, err
		},
		apply: func(t *tx, c Command) Result { return apply(t, c.(C)) },
	}
}

// snakeCase converts a Go name to lower case with underscores.
func snakeCase(name string) string {
	var out strings.Builder
	for i, r := range name {
		if unicode.IsUpper(r) && i > 0 {
			out.WriteByte('_')
		}
		out.WriteRune(unicode.ToLower(r))
	}
	return out.String()
}

// commandsByKind returns the declarations by their number. It panics if two have the same number.
func commandsByKind(types ...commandType) (byKind [256]commandType) {
	for _, c := range types {
		if other := byKind[c.kind].name; other != "" {
			panic(fmt.Sprintf("commands %s and %s are both of kind %d", other, c.name, c.kind))
		}
		byKind[c.kind] = c
	}
	return byKind
}

// commands declares all commands of the log. The number of a removed command is never used again.
var commands = commandsByKind(
	declareCommand(1, (*tx).jobRegister),
	declareCommand(2, (*tx).jobDeregister),
	declareCommand(3, (*tx).nodeRegister),
	declareCommand(4, (*tx).sessionOpen),
	declareCommand(5, (*tx).nodeStatus),
	declareCommand(6, (*tx).allocUpdates),
	declareCommand(7, (*tx).applyPlan),
	declareCommand(8, (*tx).evalsStore),
	declareCommand(9, (*tx).allocStop),
	declareCommand(10, (*tx).storeNodePool),
	declareCommand(11, (*tx).clusterInit),
	declareCommand(12, (*tx).storeJoinToken),
	declareCommand(13, (*tx).fenceSession),
	declareCommand(14, (*tx).nodeResync),
	declareCommand(15, (*tx).evalDelete),
	declareCommand(16, (*tx).nodeEligibility),
	declareCommand(17, (*tx).storeCertificate),
	declareCommand(18, (*tx).storeHubAddr),
	declareCommand(30, (*tx).nodeDrain),
	declareCommand(31, (*tx).drainStep),
	declareCommand(32, (*tx).nodePurge),
	declareCommand(33, (*tx).nodeEvaluate),
	declareCommand(34, (*tx).collectGarbage),
	declareCommand(35, (*tx).periodicLaunch),
	declareCommand(36, (*tx).jobDispatch),
	declareCommand(40, (*tx).deploymentStatus),
	declareCommand(41, (*tx).deploymentPromote),
	declareCommand(42, (*tx).allocHealth),
	declareCommand(43, (*tx).deploymentDelete),
	declareCommand(50, (*tx).schedulerConfig),
	declareCommand(70, (*tx).jobScale),
	declareCommand(71, (*tx).jobEvaluate),
	declareCommand(72, (*tx).jobTag),
	declareCommand(74, (*tx).jobStable),
	declareCommand(80, (*tx).namespaceStore),
	declareCommand(81, (*tx).namespaceDelete),
	declareCommand(82, (*tx).poolDelete),
	declareCommand(90, (*tx).snapshotPart),
	declareCommand[SnapshotRestore](91, nil), // Store.Apply replaces the whole state
	declareCommand(92, (*tx).snapshotDrop),
	declareCommand(110, (*tx).nodeRevoke),
	declareCommand(112, (*tx).clusterSeal),
	declareCommand(120, (*tx).nodeReadmit),
	declareCommand(130, (*tx).volumeStore),
	declareCommand(131, (*tx).volumeDelete),
	declareCommand(140, (*tx).prefetchStore),
	declareCommand(141, (*tx).prefetchEnd),
	declareCommand(150, (*tx).aclBootstrap),
	declareCommand(151, (*tx).aclPolicyStore),
	declareCommand(152, (*tx).aclTokenStore),
	declareCommand(153, (*tx).aclRoleStore),
	declareCommand(154, (*tx).aclDelete),
	declareCommand(155, (*tx).aclOneTimeStore),
	declareCommand(156, (*tx).aclOneTimeUse),
	declareCommand(157, (*tx).aclExpire),
	declareCommand(160, (*tx).rootKeyStore),
	declareCommand(161, (*tx).rootKeyRetire),
	declareCommand(162, (*tx).rootKeyDelete),
	declareCommand(163, (*tx).variableStore),
	declareCommand(164, (*tx).variableDelete),
	declareCommand(165, (*tx).variableLock),
	declareCommand(166, (*tx).variableUnlock),
	declareCommand(167, (*tx).variablesRekey),
	declareCommand(170, (*tx).aclAuthMethodStore),
	declareCommand(171, (*tx).aclBindingRuleStore),
	declareCommand(172, (*tx).aclAuthDelete),
	declareCommand(175, (*tx).rootKeySigning),
	declareCommand(180, (*tx).caStore),
	declareCommand(181, (*tx).caHubStep),
	declareCommand(190, (*tx).siteCodeStore),
	declareCommand(191, (*tx).siteCodeRevoke),
	declareCommand(192, (*tx).siteCodeExpire),
	declareCommand(200, (*tx).stateKeyStore),
	declareCommand(201, (*tx).stateKeyHubStep),
	declareCommand(202, (*tx).stateKeyRewrap),
	declareCommand(203, (*tx).stateKeyExpire),
	declareCommand(204, (*tx).stateKeyForget),
)

// kinds maps the Go type of each command to its kind.
var kinds = func() map[reflect.Type]Kind {
	kinds := map[reflect.Type]Kind{}
	for _, c := range commands {
		if c.of != nil {
			kinds[c.of] = c.kind
		}
	}
	return kinds
}()
