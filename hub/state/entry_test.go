package state_test

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"

	"skerry/fleet"
	"skerry/hub/state"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

// samples is a command of each kind with every field set.
func samples() []state.Command {
	lost, at := time.Minute, time.Date(2026, 5, 1, 12, 0, 0, 123456789, time.UTC)
	j := job("shop", fleet.JobTypeService, 3)
	j.Meta = map[string]string{"b": "2", "a": "", "": "empty"}
	j.Constraints = []fleet.Constraint{{LTarget: "${attr.kernel.name}", RTarget: "linux", Operand: "="}}
	j.TaskGroups[0].Disconnect = &fleet.Disconnect{LostAfter: &lost, Replace: ptr(false)}
	j.TaskGroups[0].Tasks[0].Config = map[string]any{
		"args": []any{"-v", int64(-7), 1.5, true, nil}, "nested": map[string]any{"on": false}, "n": int64(1) << 40,
	}
	n := description("0b000000-0000-4000-8000-000000000001", "n1")
	n.Events = []fleet.NodeEvent{{Message: "hello", Timestamp: at}}
	alloc := fleet.Alloc{
		ID: "0c000000-0000-4000-8000-000000000001", Namespace: "default", NodeID: n.ID, JobID: "shop", TaskGroup: "web",
		AllocatedResources: fleet.Resources{CPU: 500}, Score: 0.25, ClientStatus: fleet.ClientUnknown,
		AllocStates:       []fleet.AllocState{{Field: fleet.AllocStateClientStatus, Value: fleet.ClientUnknown, Time: at}},
		RescheduleTracker: &fleet.RescheduleTracker{Events: []fleet.RescheduleEvent{{RescheduleTime: 5, Delay: time.Second}}},
		Metrics:           &fleet.AllocMetric{NodesEvaluated: 3, NodesAvailable: map[string]int{"dc1": 3}},
	}
	eval := fleet.Evaluation{
		ID: "0d000000-0000-4000-8000-000000000001", Namespace: "default", JobID: "shop", Status: fleet.EvalBlocked,
		WaitUntil: at, ClassEligibility: map[string]bool{"v1:a": true, "v1:b": false}, EscapedClass: true,
	}
	return []state.Command{
		state.JobRegister{Job: j, Eval: &eval, EnforceIndex: true, CheckIndex: 7, Now: at.UnixNano()},
		state.JobDeregister{Namespace: "default", ID: "shop", Purge: true, Eval: &eval, Now: 1},
		state.NodeRegister{Node: n, Now: 2},
		state.SessionOpen{NodeID: n.ID, Session: 3, Instance: "i", BootID: "b", Hub: "h", Addr: "a", Head: 9, Node: &n, EvalSeed: "s", Now: 3},
		state.NodeStatus{Nodes: []state.NodeMissed{{NodeID: n.ID, Epoch: 2, Reason: "late"}}, EvalSeed: "s", Now: 4},
		state.AllocUpdates{Batches: []state.NodeRows{{NodeID: n.ID, Epoch: 2, First: 4, Prev: []byte{1}, Rows: [][]byte{{2}, {}}, Received: 6, Base: true}}, EvalSeed: "s", Now: 5},
		state.Plan{Result: fleet.PlanResult{NodeAllocation: byNode(alloc), NodeUpdate: byNode(alloc)}, Jobs: []*fleet.Job{j}, Evals: []fleet.Evaluation{eval}, EvalID: eval.ID, Now: 6},
		state.Evals{Evals: []fleet.Evaluation{eval}, Now: 7},
		state.AllocStop{Allocs: []fleet.AllocID{alloc.ID}, EvalSeed: "s", Now: 8},
		state.Pool{Pool: fleet.Pool{Name: "ships", HeartbeatTTL: 15 * time.Minute}},
		state.ClusterInit{Cluster: state.Cluster{ID: "c", Region: "global", CACert: []byte{1}, CAKey: []byte{2}, GossipKey: []byte{3}, CreatedAt: 9}},
		state.Token{Token: state.JoinToken{ID: "t", Hash: []byte{4}, Roles: []string{"edge"}, ExpiresAt: 10, CreatedAt: 11}},
		state.Fence{NodeID: n.ID, Session: fleet.FencedSession{Code: fleet.CodeCloned, Head: 3}, Rows: [][]byte{{5}}},
		state.NodeResync{NodeID: n.ID, Epoch: 2, Reason: "why", Now: 12},
		state.EvalDelete{IDs: []fleet.EvalID{eval.ID}, Allocs: []fleet.AllocID{alloc.ID}},
		state.NodeEligibility{NodeID: n.ID, Eligibility: fleet.NodeIneligible, EvalSeed: "s", Now: 13},
		state.Certificate{Serial: "1a", Subject: "edge:x", NotAfter: 14},
		state.Hub{Hub: state.HubAddr{ID: "h", QUIC: "q", HTTP: "w", Gossip: "g"}, Removed: true},
		state.NodeDrain{NodeID: n.ID, Drain: &fleet.DrainStrategy{Deadline: time.Hour, IgnoreSystemJobs: true, ForceDeadline: at, StartedAt: at}, MarkEligible: true, Meta: map[string]string{"by": "me"}, EvalSeed: "s", Now: 30},
		state.DrainStep{Migrate: []fleet.AllocID{alloc.ID}, Done: []state.NodeDrained{{NodeID: n.ID, StartedAt: at, ForceDeadline: at, Deadlined: true}}, EvalSeed: "s", Now: 31},
		state.NodePurge{NodeID: n.ID, EvalSeed: "s", Now: 32},
		state.NodeEvaluate{NodeID: n.ID, EvalSeed: "s", Now: 33},
		state.Collect{Allocs: []fleet.AllocID{alloc.ID}, Evals: []fleet.EvalID{eval.ID}, Now: 34, Deployments: []fleet.DeploymentID{"d"},
			Jobs: []state.CollectedJob{{Namespace: "default", ID: "shop", ModifyIndex: 5}}, Nodes: []state.CollectedNode{{ID: n.ID, Epoch: 2}}},
		state.PeriodicLaunch{Namespace: "default", ID: "shop", JobModifyIndex: 7, Launched: 8, Force: true, Child: j, Eval: &eval, Now: 35},
		state.JobDispatch{Namespace: "default", ID: "shop", JobModifyIndex: 7, Child: j, Eval: &eval, Now: 36},
		state.DeploymentStatus{Update: failedUpdate(), Rollback: j, Eval: &eval, Now: 15},
		state.DeploymentPromote{DeploymentID: "d", Groups: []string{"web"}, Eval: &eval, Now: 16},
		state.AllocHealth{DeploymentID: "d", Healthy: []fleet.AllocID{alloc.ID}, Unhealthy: []fleet.AllocID{"b"}, Update: ptr(failedUpdate()), Rollback: j, Eval: &eval, Now: 17},
		state.DeploymentDelete{IDs: []fleet.DeploymentID{"d"}},
		state.SchedulerConfig{Config: fleet.SchedulerConfiguration{
			SchedulerAlgorithm: fleet.AlgorithmSpread, MemoryOversubscriptionEnabled: true, RejectJobRegistration: true,
			PreemptionConfig: fleet.PreemptionConfig{SystemSchedulerEnabled: true, ServiceSchedulerEnabled: true}, CreateIndex: 4, ModifyIndex: 5,
		}, Enforce: true, CheckIndex: 5},
		state.JobScale{Namespace: "default", ID: "shop", JobModifyIndex: 7, Group: "web", Count: ptr(3), Message: "busy", Error: true, Meta: map[string]any{"load": 0.5}, Eval: &eval, Now: 70},
		state.JobEvaluate{Namespace: "default", ID: "shop", ForceReschedule: true, Eval: &eval, Now: 71},
		state.JobTag{Namespace: "default", ID: "shop", Version: 2, Latest: true, Tag: fleet.JobVersionTag{Name: "golden", Description: "good", TaggedTime: 72}, Unset: true},
		state.JobStable{Namespace: "default", ID: "shop", Version: 3, Stable: true, Now: 74},
		state.NamespaceStore{Namespace: fleet.Namespace{Name: "ships", Description: "at sea", Meta: map[string]string{"by": "me"}, CreateIndex: 1, ModifyIndex: 2,
			Capabilities: &fleet.NamespaceCapabilities{EnabledTaskDrivers: []string{"sim"}, DisabledTaskDrivers: []string{"raw_exec"}, EnabledNetworkModes: []string{"host"}, DisabledNetworkModes: []string{"bridge"}}}},
		state.NamespaceDelete{Name: "ships"},
		state.PoolDelete{Name: "ships"},
		state.SnapshotPart{Restore: "r", Number: 1, Data: []byte{1, 2}},
		state.SnapshotRestore{Restore: "r", Size: 3, Sum: []byte{3}, EvalSeed: "s", Now: 90},
		state.SnapshotDrop{Restore: "r"},
		state.NodeRevoke{NodeID: n.ID, Reason: "stolen", KeepExposure: true, EvalSeed: "s", Now: 110},
		state.ClusterSeal{ClusterID: "c", Sealed: []byte{1, 2}, SealKey: "k"},
		state.NodeReadmit{NodeID: n.ID, Now: 120},
		state.VolumeStore{Volume: fleet.Volume{
			Namespace: "default", ID: "v", Name: "data", PluginID: "mkdir", NodePool: "ships", NodeID: n.ID, RequestedCapacityMinBytes: 1, RequestedCapacityMaxBytes: 2, CapacityBytes: 3,
			Constraints: []fleet.Constraint{{LTarget: "${meta.a}", RTarget: "b", Operand: "="}}, Parameters: map[string]string{"mode": "0750"}, HostPath: "/srv",
			RequestedCapabilities: []fleet.VolumeCapability{{AttachmentMode: fleet.AttachFileSystem, AccessMode: fleet.AccessWriter}}, State: fleet.VolumeReady, StateDescription: "why",
			Registered: true, Deleting: true, CreateIndex: 4, CreateTime: 5, ModifyIndex: 6, ModifyTime: 7,
		}, Now: 130},
		state.VolumeDelete{Namespace: "default", ID: "v", Force: true, Now: 131},
		state.PrefetchStore{Namespace: "default", JobID: "shop", JobVersion: 2, Nodes: []fleet.NodeID{n.ID}, Now: 140},
		state.PrefetchEnd{Prefetches: []state.EndedPrefetch{{ID: "p", RequestIndex: 3}}, Now: 141},
		state.ACLBootstrap{Token: sampleACLToken(at), Reset: 7},
		state.ACLPolicyStore{Policy: fleet.ACLPolicy{Name: "read", Description: "d", Rules: `node { policy = "read" }`, CreateIndex: 1, ModifyIndex: 2}},
		state.ACLTokenStore{Token: sampleACLToken(at)},
		state.ACLRoleStore{Role: fleet.ACLRole{ID: "r", Name: "readers", Description: "d", Policies: []fleet.ACLRolePolicy{{Name: "read"}}, CreateIndex: 1, ModifyIndex: 2}},
		state.ACLDelete{Policies: []string{"read"}, Tokens: []string{"t"}, Roles: []string{"r"}},
		state.ACLOneTimeStore{Token: state.OneTimeToken{Hash: []byte{8}, AccessorID: "t", Secret: []byte{9}, ExpiresAt: at}},
		state.ACLOneTimeUse{Hash: []byte{8}, Now: at},
		state.ACLExpire{Tokens: []string{"t"}, OneTime: [][]byte{{8}}, Now: at},
		state.RootKeyStore{Key: rootKey("k1"), Full: true, First: true},
		state.RootKeyRetire{KeyID: "k1"},
		state.RootKeyDelete{KeyID: "k1"},
		state.VariableStore{Namespace: "default", Path: "app/db", Sealed: sealedWith("k1"), Check: true, CheckIndex: 7, LockID: "l", Now: 163},
		state.VariableDelete{Namespace: "default", Path: "app/db", Check: true, CheckIndex: 7, LockID: "l", TellEdges: true},
		state.VariableLock{Namespace: "default", Path: "app/lock", Lock: lockOf("l"), Sealed: sealedWith("k1"), KeepItems: true, Now: 165},
		state.VariableUnlock{Namespace: "default", Path: "app/lock", LockID: "l", Expired: true, CheckIndex: 7, Now: 166},
		state.VariablesRekey{Rows: []state.RekeyedVariable{{Namespace: "default", Path: "app/db", ModifyIndex: 7, Sealed: sealedWith("k2")}}},
		state.ACLAuthMethodStore{Method: state.ACLAuthMethodRecord{Secret: state.WrappedSecret{Data: []byte{1}, By: "k"}, ACLAuthMethod: fleet.ACLAuthMethod{
			Name: "sso", Type: fleet.ACLAuthMethodOIDC, TokenLocality: "global", TokenNameFormat: "f", MaxTokenTTL: fleet.TextDuration(time.Hour), Default: true, CreateTime: at, ModifyTime: at, CreateIndex: 1, ModifyIndex: 2,
			Config: &fleet.ACLAuthMethodConfig{
				JWTValidationPubKeys: []string{"p"}, JWKSURL: "j", JWKSCACert: "c", OIDCDiscoveryURL: "d", DiscoveryCaPem: []string{"e"}, OIDCClientID: "i", OIDCClientSecret: "s",
				OIDCEnablePKCE: true, OIDCDisableUserInfo: true, OIDCScopes: []string{"groups"}, BoundAudiences: []string{"a"}, BoundIssuer: []string{"b"}, AllowedRedirectURIs: []string{"r"},
				SigningAlgs: []string{"ES256"}, ExpirationLeeway: 1, NotBeforeLeeway: -2, ClockSkewLeeway: 3, ClaimMappings: map[string]string{"sub": "user"},
				ListClaimMappings: map[string]string{"groups": "groups"}, VerboseLogging: true,
			}}}},
		state.ACLBindingRuleStore{Rule: fleet.ACLBindingRule{ID: "b", Description: "d", AuthMethod: "sso", Selector: "s", BindType: "role", BindName: "n", CreateTime: at, ModifyTime: at, CreateIndex: 1, ModifyIndex: 2}},
		state.ACLAuthDelete{Methods: []string{"sso"}, Rules: []string{"b"}},
		state.RootKeySigning{KeyID: "k1", Signing: signingKey()},
		state.CAStore{CA: state.CA{Number: 2, Cert: []byte{1}, Forward: []byte{2}, Reverse: []byte{3}, Wrapped: []byte{4}, WrappedBy: "k", Grace: time.Hour, CreatedAt: 180, Stored: []fleet.HubID{"h"}, SignsSince: 1, Renewed: []fleet.HubID{"h"}, SettledAt: 2, CreateIndex: 3, ModifyIndex: 4}},
		state.CAHubStep{Number: 2, Hub: "h", Renewed: true, Now: 181},
		state.SiteCodeStore{Code: sampleSiteCode(at)},
		state.SiteCodeRevoke{ID: "k7m2", Now: at},
		state.SiteCodeExpire{IDs: []string{"k7m2"}, Now: at},
		state.StateKeyStore{Key: stateKeyOf("k2", "h")},
		state.StateKeyHubStep{ID: "k2", Hub: "h", Erased: true},
		state.StateKeyRewrap{ID: "k2", Sealed: []byte{1}, Rows: []state.RewrappedSecret{{Kind: state.WrappedCA, Name: "2", Before: []byte{2}, After: []byte{3}}}, Now: 200},
		state.StateKeyExpire{ID: "k1", Now: 201},
		state.StateKeyForget{ID: "k1", Now: 202},
	}
}

func sampleACLToken(at time.Time) state.ACLTokenRecord {
	return state.ACLTokenRecord{Hash: []byte{7}, ACLToken: fleet.ACLToken{
		AccessorID: "t", SecretID: "s", Name: "n", Type: fleet.ACLTokenClient, Policies: []string{"read"},
		Roles: []fleet.ACLTokenRole{{ID: "r", Name: "readers"}}, Global: true, CreateTime: at, ExpirationTime: &at, CreateIndex: 1, ModifyIndex: 2,
	}}
}

func sampleSiteCode(at time.Time) state.SiteCodeRecord {
	return state.SiteCodeRecord{Hash: fleet.SiteCodeHash{Salt: []byte{1}, Hash: []byte{2}, Rounds: 3}, SiteCode: fleet.SiteCode{
		ID: "k7m2", Name: "Ann", Site: "shop-*", NodePool: "*", Policies: []string{"till"}, CreateTime: at, ExpirationTime: at, RevokeTime: &at, CreateIndex: 1, ModifyIndex: 2,
	}}
}

func failedUpdate() fleet.DeploymentUpdate {
	return fleet.DeploymentUpdate{DeploymentID: "d", Status: fleet.DeploymentFailed, StatusDescription: fleet.DescFailedByUser}
}

// A field that a later release added to a command is in an entry only if it is set: hubs of older releases read all
// other entries.
func TestEntriesWithoutDelay(t *testing.T) {
	for _, c := range []state.Command{
		state.AllocStop{Allocs: []fleet.AllocID{"a"}, EvalSeed: "s", Now: 8, NoShutdownDelay: true, Reschedule: true},
		state.JobDeregister{Namespace: "default", ID: "shop", Now: 1, NoShutdownDelay: true},
		state.Certificate{Serial: "1a", Subject: "edge:x", NotAfter: 14, Token: "t", Key: []byte{6}},
		state.Token{Token: state.JoinToken{ID: "t", Hash: []byte{4}, Roles: []string{"edge"}, Description: "d", NodePool: "p", Site: "s", MaxUses: 3, Uses: 1}},
	} {
		decoded, err := state.Decode(mustEncode(t, c))
		if err != nil || !reflect.DeepEqual(decoded, c) {
			t.Errorf("%+v came back as %+v, %v", c, decoded, err)
		}
	}
	if raw := mustEncode(t, state.AllocStop{EvalSeed: "s"}); bytes.Contains(raw, []byte("NoShutdownDelay")) || bytes.Contains(raw, []byte("Reschedule")) {
		t.Errorf("an older hub does not read %q", raw)
	}
}

// An entry that was written once is read for ever: these bytes never change.
func TestEntryGolden(t *testing.T) {
	path := filepath.Join("testdata", "entries.txt")
	var got strings.Builder
	last := state.Kind(0)
	for _, c := range samples() {
		raw := mustEncode(t, c)
		if !bytes.Equal(raw, mustEncode(t, c)) {
			t.Fatalf("%T is encoded in different ways", c)
		}
		decoded, err := state.Decode(raw)
		if err != nil {
			t.Fatalf("decode %T: %v", c, err)
		}
		if state.KindOf(c) <= last || !reflect.DeepEqual(decoded, c) {
			t.Fatalf("%T, of kind %d after %d, came back as\n%+v\nnot\n%+v", c, state.KindOf(c), last, decoded, c)
		}
		for k := last + 1; k < state.KindOf(c); k++ {
			mustBeUndeclared(t, k)
		}
		last = state.KindOf(c)
		fmt.Fprintf(&got, "%s %x\n", strings.TrimPrefix(fmt.Sprintf("%T", c), "state."), raw)
	}
	for k := last; k < math.MaxUint8; k++ {
		mustBeUndeclared(t, k+1)
	}
	if *rewrite {
		if err := os.WriteFile(path, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Fatalf("entries changed (see -rewrite):\n%s", diff(string(want), got.String()))
	}
}

// mustBeUndeclared fails for a kind that has a command: each command has a sample.
func mustBeUndeclared(t *testing.T, k state.Kind) {
	t.Helper()
	if name := k.String(); name != fmt.Sprintf("kind_%d", k) {
		t.Errorf("samples lack a %s (kind %d)", name, k)
	}
}

func mustEncode(t tb, c state.Command) []byte {
	t.Helper()
	raw, err := state.Encode(c)
	if err != nil {
		t.Fatalf("encode %T: %v", c, err)
	}
	return raw
}

type unknownCommand struct{ state.Command }

func TestEntryRefused(t *testing.T) {
	good := mustEncode(t, state.Pool{Pool: fleet.Pool{Name: "p"}})
	mustHex := func(s string) []byte {
		b, err := hex.DecodeString(s)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	pool := fmt.Sprintf("01%02x", byte(state.KindOf(state.Pool{})))
	for _, c := range []struct {
		name string
		raw  []byte
		want fleet.Code
	}{
		{"empty", nil, fleet.CodeInvalid},
		{"no kind", []byte{1}, fleet.CodeInvalid},
		{"newer version", append([]byte{2}, good[1:]...), fleet.CodeVersion},
		{"newer command", append([]byte{1, 99}, good[2:]...), fleet.CodeVersion},
		{"newer field", mustHex(pool + "a16446757475" + "01"), fleet.CodeVersion},
		{"truncated", good[:len(good)-1], fleet.CodeInvalid},
		{"trailing", append(bytes.Clone(good), 0), fleet.CodeInvalid},
		{"not a map", mustHex(pool + "83010203"), fleet.CodeInvalid},
		{"a field twice", mustHex(pool + "a264506f6f6ca064506f6f6ca0"), fleet.CodeInvalid},
		{"indefinite length", mustHex(pool + "bfff"), fleet.CodeInvalid},
		{"tagged", mustHex(pool + "c1a0"), fleet.CodeInvalid},
		{"too long", append(bytes.Clone(good), make([]byte, state.MaxEntry)...), fleet.CodeInvalid},
	} {
		if _, err := state.Decode(c.raw); fleet.CodeOf(err) != c.want {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
	}
	if _, err := state.Encode(unknownCommand{}); err == nil {
		t.Error("an unknown command was encoded")
	}
	huge := state.Certificate{Subject: strings.Repeat("x", state.MaxEntry)}
	if _, err := state.Encode(huge); fleet.CodeOf(err) != fleet.CodeInvalid {
		t.Errorf("a huge command: %v", err)
	}
	many := state.EvalDelete{IDs: make([]fleet.EvalID, 1<<18)}
	if _, err := state.Encode(many); fleet.CodeOf(err) != fleet.CodeInvalid {
		t.Errorf("a command of very many items: %v", err)
	}
}

// A few bytes that claim to be a million structs must not take a gigabyte.
func TestDecodeMemory(t *testing.T) {
	const items = 1 << 20
	for name, head := range map[string]string{
		"nulls":      "a1" + "65" + "4576616c73" + "9a00100000",
		"empty maps": "a1" + "65" + "4576616c73" + "9a00100000",
	} {
		body, err := hex.DecodeString(fmt.Sprintf("01%02x", byte(state.KindOf(state.Evals{}))) + head)
		if err != nil {
			t.Fatal(err)
		}
		fill := byte(0xf6) // null
		if name == "empty maps" {
			fill = 0xa0
		}
		body = append(body, bytes.Repeat([]byte{fill}, items)...)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err = state.Decode(body)
		runtime.ReadMemStats(&after)
		if fleet.CodeOf(err) != fleet.CodeInvalid {
			t.Fatalf("%s: %v", name, err)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 1<<20 {
			t.Fatalf("%s: decoding took %d bytes", name, took)
		}
	}
}

// A result crosses from hub to hub.
func TestResultTravels(t *testing.T) {
	want := state.Result{
		Index: 7, Err: fleet.Errorf(fleet.CodeConflict, "no").WithHint("read again"), Eval: "e", Version: 3,
		Session: &state.SessionResult{Epoch: 1, Status: fleet.NodeReady, Applied: 2, Session: 4},
		Updates: []state.BatchResult{{}, {Code: fleet.CodeGap, Message: "m", Applied: 5, Status: fleet.NodeInitializing}},
		Moved:   []fleet.NodeID{"n"},
	}
	raw, err := cbor.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got state.Result
	if err := cbor.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("it came as %+v", got)
	}
}

func FuzzDecode(f *testing.F) {
	for _, c := range samples() {
		f.Add(mustEncode(f, c))
	}
	f.Add([]byte{1, 7, 0x9a, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, raw []byte) {
		c, err := state.Decode(raw)
		if err != nil {
			return
		}
		again, err := state.Decode(mustEncode(t, c))
		if err != nil || !reflect.DeepEqual(again, c) {
			t.Fatalf("%T changed on its second way: %v", c, err)
		}
	})
}

func TestSpecHashIgnoresWhatTheHubOwns(t *testing.T) {
	j := job("shop", fleet.JobTypeService, 3)
	spec := func(j *fleet.Job) string {
		b, err := state.EncodeSpec(j)
		if err != nil {
			t.Fatal(err)
		}
		return state.SpecHash(b)
	}
	owned := *j
	owned.Status, owned.StatusDescription, owned.Version, owned.SubmitTime = "running", "x", 4, 5
	owned.CreateIndex, owned.ModifyIndex, owned.JobModifyIndex = 1, 2, 3
	owned.Stop, owned.Stable, owned.SpecHash = true, true, "00"
	owned.Meta = map[string]string{} // the same as none
	if spec(&owned) != spec(j) {
		t.Error("what the hub owns changes the hash")
	}
	other := job("shop", fleet.JobTypeService, 4)
	if spec(other) == spec(j) {
		t.Error("another count has the same hash")
	}
	zero := job("shop", fleet.JobTypeService, 3)
	zero.TaskGroups[0].Tasks[0].Config["exit"] = int64(1)
	if spec(zero) == spec(j) {
		t.Error("another configuration has the same hash")
	}
	// A golden value: every hub and every release must find the same.
	if got, want := spec(j), "c9fd01888c98373f38ed328bcc1617c8"; got != want {
		t.Errorf("hash %s, want %s", got, want)
	}
}

// Commands are counted by what their kinds are called: each by a name of its own.
func TestKindsAreCalled(t *testing.T) {
	seen := map[string]state.Kind{}
	for _, c := range samples() {
		name := state.KindOf(c).String()
		if other, ok := seen[name]; ok && other != state.KindOf(c) || name == "" || strings.HasPrefix(name, "kind_") || strings.ToLower(name) != name {
			t.Errorf("command %T is called %q, and so is kind %d", c, name, other)
		}
		seen[name] = state.KindOf(c)
	}
	if got := fmt.Sprint(state.KindOf(state.JobRegister{}), state.KindOf(state.Plan{}), state.Kind(255)); got != "job_register plan kind_255" {
		t.Error(got)
	}
}
