package syncproto_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"skerry/fleet"
	"skerry/syncproto"
)

func rowSamples() map[string]fleet.Transition {
	at := time.Unix(0, wallA-5_000_000_000).UTC()
	return map[string]fleet.Transition{
		"started": {
			Seq: 70_000, BootID: bootA, Mono: 5*time.Hour + 123_456_789, Wall: wallA, Kind: fleet.TransitionAlloc,
			Alloc: allocA, ClientStatus: fleet.ClientRunning, Task: "web",
			TaskState: &fleet.TaskState{State: fleet.TaskRunning, StartedAt: &at},
			Event:     &fleet.TaskEvent{Type: fleet.TaskStarted, Time: wallA - 1000, DisplayMessage: "Task started by client"},
		},
		"failed": {
			Seq: 70_001, BootID: bootA, Mono: 6 * time.Hour, Wall: wallA, Kind: fleet.TransitionAlloc,
			Alloc: allocA, ClientStatus: fleet.ClientFailed, ClientDescription: "Failed tasks", Task: "web",
			TaskState: &fleet.TaskState{State: fleet.TaskDead, Failed: true, Restarts: 3, LastRestart: &at, StartedAt: &at, FinishedAt: &at, RunningFor: time.Minute},
			Event: &fleet.TaskEvent{
				Type: fleet.TaskTerminated, Time: wallA, DisplayMessage: "Exit Code: 1, Signal: 9",
				Details: map[string]string{"oom": "true"}, ExitCode: 1, Signal: 9, FailsTask: true,
			},
		},
		"disconnect": {Seq: 1, BootID: "not-a-uuid", Mono: time.Second, Wall: wallA, Kind: fleet.TransitionDisconnect, Message: "last answer 12s ago"},
		"site": {Seq: 6, BootID: bootA, Mono: time.Minute, Wall: wallA, Kind: fleet.TransitionSite, Message: "anna: stop", Site: &fleet.SiteAction{
			Seq: 3, Chain: "c", Time: time.Unix(0, wallA-7).UTC(), Verb: "stop", Object: "1d697ed5", User: "anna", UID: "1000", Reason: "it smokes", Code: fleet.CodeConflict, Prev: "ab",
		}},
		"site-code": {Seq: 7, BootID: bootA, Mono: time.Minute, Wall: wallA, Kind: fleet.TransitionSite, Message: "Ann: stop", Site: &fleet.SiteAction{
			Seq: 4, Chain: "c", Time: time.Unix(0, wallA-7).UTC(), Verb: "stop", Object: "1d697ed5", UID: "1000", Person: "Ann", SiteCode: "k7m2",
		}},
		"stopped":       {Seq: 8, BootID: bootA, Mono: time.Minute, Wall: wallA, Kind: fleet.TransitionAlloc, Alloc: allocA, StoppedOnEdge: true, Message: "no hub for 6m0s (stop_on_client_after)"},
		"gap":           {Seq: 2, BootID: bootA, Wall: -5, Kind: fleet.TransitionGap, Dropped: 12_345},
		"healthy":       {Seq: 4, BootID: bootA, Mono: time.Minute, Wall: wallA, Kind: fleet.TransitionHealth, Alloc: allocA, Healthy: new(bool), Deployment: fleet.DeploymentID(allocA), Message: "its task failed"},
		"network":       {Seq: 5, BootID: bootA, Mono: time.Minute, Wall: wallA, Kind: fleet.TransitionAlloc, Alloc: allocA, Network: &fleet.NetworkStatus{InterfaceName: "eth0", Address: "172.26.64.2"}, Message: "address 172.26.64.2 on eth0"},
		"words to come": {Seq: 3, Kind: "of a newer release", Alloc: "short", ClientStatus: "paused", Task: "t"},
	}
}

func TestRowsComeBackAsTheyWent(t *testing.T) {
	for name, tr := range rowSamples() {
		b := mustEncodeRow(t, tr)
		back, err := syncproto.DecodeRow(b)
		if err != nil || !reflect.DeepEqual(back, tr) {
			t.Errorf("%s: %+v\ncame back as %+v, %v", name, tr, back, err)
		}
	}
}

func TestTypicalRowIsSmall(t *testing.T) {
	for name, most := range map[string]int{"started": 120, "failed": 190} {
		if n := len(mustEncodeRow(t, rowSamples()[name])); n > most {
			t.Errorf("%s has %d bytes, at most %d are allowed", name, n, most)
		}
	}
}

// Any transition comes back: a field that is added to fleet.Transition and
// forgotten here fails this test.
func TestAnyRowComesBack(t *testing.T) {
	text := rapid.StringN(0, 60, 200)
	short := rapid.StringN(0, 20, 80)
	at := rapid.Custom(func(t *rapid.T) *time.Time {
		if rapid.Bool().Draw(t, "none") {
			return nil
		}
		at := time.Unix(0, rapid.Int64Range(0, 1<<61).Draw(t, "nanos")).UTC()
		return &at
	})
	id := rapid.OneOf(short, rapid.Just(string(allocA)), rapid.Just(strings.ToUpper(string(allocA))))
	rapid.Check(t, func(t *rapid.T) {
		tr := fleet.Transition{
			Seq:    fleet.Seq(rapid.Uint64Min(1).Draw(t, "seq")),
			BootID: fleet.BootID(id.Draw(t, "boot")), Mono: time.Duration(rapid.Int64().Draw(t, "mono")),
			Wall:         rapid.Int64Range(0, 1<<61).Draw(t, "wall"),
			Kind:         fleet.TransitionKind(rapid.OneOf(rapid.StringN(1, 9, 20), rapid.Just("task"), rapid.Just("alloc")).Draw(t, "kind")),
			Alloc:        fleet.AllocID(id.Draw(t, "alloc")),
			ClientStatus: rapid.OneOf(short, rapid.Just(fleet.ClientRunning)).Draw(t, "status"), ClientDescription: text.Draw(t, "description"),
			Task: short.Draw(t, "task"), Message: text.Draw(t, "message"), Dropped: rapid.Uint64().Draw(t, "dropped"),
		}
		if rapid.Bool().Draw(t, "has health") {
			healthy := rapid.Bool().Draw(t, "healthy")
			tr.Healthy, tr.Deployment = &healthy, fleet.DeploymentID(id.Draw(t, "deployment"))
		}
		tr.Released, tr.StoppedOnEdge = rapid.Bool().Draw(t, "released"), rapid.Bool().Draw(t, "stopped on edge")
		if rapid.Bool().Draw(t, "has a hold") {
			tr.Hold = &fleet.Hold{
				By: short.Draw(t, "by"), Reason: text.Draw(t, "reason"), Since: rapid.Int64Range(0, 1<<61).Draw(t, "since"),
				JobVersion: rapid.Uint64().Draw(t, "job version"), NoDelay: rapid.Bool().Draw(t, "no delay"),
			}
		}
		if rapid.Bool().Draw(t, "has a volume") {
			tr.Volume = &fleet.VolumeReport{
				ID: fleet.VolumeID(id.Draw(t, "volume")), State: short.Draw(t, "volume state"), Path: text.Draw(t, "path"), Capacity: rapid.Int64().Draw(t, "capacity"),
			}
		}
		if rapid.Bool().Draw(t, "has a prefetch") {
			tr.Prefetch = &fleet.PrefetchReport{
				ID: fleet.PrefetchID(id.Draw(t, "prefetch")), RequestIndex: fleet.Index(rapid.Uint64().Draw(t, "request")), State: short.Draw(t, "prefetch state"),
			}
		}
		if rapid.Bool().Draw(t, "has a network") {
			tr.Network = &fleet.NetworkStatus{InterfaceName: short.Draw(t, "interface"), Address: short.Draw(t, "address")}
		}
		if rapid.Bool().Draw(t, "has a site action") {
			tr.Site = &fleet.SiteAction{
				Seq: rapid.Uint64().Draw(t, "site seq"), Chain: short.Draw(t, "chain"), Time: time.Unix(0, rapid.Int64Range(0, 1<<61).Draw(t, "site time")).UTC(),
				Verb: short.Draw(t, "verb"), Object: text.Draw(t, "object"), User: short.Draw(t, "user"), UID: short.Draw(t, "uid"), Reason: text.Draw(t, "why"),
				Code: fleet.Code(short.Draw(t, "code")), Lost: rapid.Uint64().Draw(t, "lost"), Prev: short.Draw(t, "prev"),
				Person: short.Draw(t, "person"), SiteCode: short.Draw(t, "site code"),
			}
		}
		if rapid.Bool().Draw(t, "has a state") {
			tr.TaskState = &fleet.TaskState{
				State: short.Draw(t, "state"), Failed: rapid.Bool().Draw(t, "failed"), Restarts: rapid.Uint64().Draw(t, "restarts"),
				LastRestart: at.Draw(t, "last restart"), StartedAt: at.Draw(t, "started"), FinishedAt: at.Draw(t, "finished"),
				RunningFor: time.Duration(rapid.Int64().Draw(t, "running for")),
			}
		}
		if rapid.Bool().Draw(t, "has an event") {
			tr.Event = &fleet.TaskEvent{
				Type: short.Draw(t, "type"), Time: rapid.Int64().Draw(t, "time"), DisplayMessage: text.Draw(t, "display"),
				ExitCode: rapid.Int().Draw(t, "exit"), Signal: rapid.Int().Draw(t, "signal"), FailsTask: rapid.Bool().Draw(t, "fails"),
			}
			if d := rapid.MapOfN(short, text, 0, 5).Draw(t, "details"); len(d) > 0 {
				tr.Event.Details = d
			}
		}
		back, err := syncproto.DecodeRow(mustEncodeRow(t, tr))
		if err != nil || !reflect.DeepEqual(back, tr) {
			t.Fatalf("%+v\ncame back as %+v, %v", tr, back, err)
		}
	})
	// TaskState.RunningSince is the cluster's and does not travel, and Address travels as Network.
	for typ, fields := range map[reflect.Type]int{
		reflect.TypeFor[fleet.Transition](): 22, reflect.TypeFor[fleet.SiteAction](): 13, reflect.TypeFor[fleet.NetworkStatus](): 2, reflect.TypeFor[fleet.VolumeReport](): 4, reflect.TypeFor[fleet.PrefetchReport](): 3, reflect.TypeFor[fleet.Hold](): 5, reflect.TypeFor[fleet.TaskState](): 10, reflect.TypeFor[fleet.TaskEvent](): 7,
	} {
		if n := typ.NumField(); n != fields {
			t.Errorf("%s has %d fields, the row format knows %d: add the new one there and here", typ, n, fields)
		}
	}
}

// What is said of an event may be cut; that it happened may not be lost.
func TestRowsAreBoundedByCutting(t *testing.T) {
	long := strings.Repeat("é\xff", 100_000)
	details := map[string]string{}
	for i := range 1000 {
		details[strings.Repeat("k", i+1)] = long
	}
	tr := fleet.Transition{
		Seq: 1, BootID: fleet.BootID(long), Kind: fleet.TransitionAlloc, Alloc: fleet.AllocID(long), ClientStatus: fleet.ClientFailed,
		ClientDescription: long, Task: long, Message: long,
		TaskState: &fleet.TaskState{State: long},
		Event:     &fleet.TaskEvent{Type: long, DisplayMessage: long, Details: details},
	}
	b := mustEncodeRow(t, tr)
	if len(b) > syncproto.MaxRow {
		t.Fatalf("a row of %d bytes, at most %d are allowed", len(b), syncproto.MaxRow)
	}
	back, err := syncproto.DecodeRow(b)
	if err != nil || back.Seq != 1 || back.ClientStatus != fleet.ClientFailed || len(back.Event.Details) == 0 || !strings.HasPrefix(back.Message, "éé") {
		t.Errorf("%v: %.200v", err, back)
	}
	if again := mustEncodeRow(t, tr); string(again) != string(b) {
		t.Error("the same transition gives another row")
	}
}

func TestDecodeRowRefuses(t *testing.T) {
	good := mustEncodeRow(t, rowSamples()["started"])
	tests := map[string]struct {
		row  []byte
		code fleet.Code
	}{
		"nothing":             {nil, fleet.CodeFrameBad},
		"of a newer release":  {append([]byte{2}, good[1:]...), fleet.CodeVersion},
		"truncated":           {good[:len(good)-1], fleet.CodeFrameBad},
		"too long":            {make([]byte, syncproto.MaxRow+1), fleet.CodeFrameTooLarge},
		"without number":      {[]byte{1, 0xa1, 0x05, 0x01}, fleet.CodeFrameBad},
		"without kind":        {[]byte{1, 0xa1, 0x01, 0x01}, fleet.CodeFrameBad},
		"a word to come":      {[]byte{1, 0xa2, 0x01, 0x01, 0x05, 0x18, 0xff}, fleet.CodeFrameBad},
		"half an identifier":  {[]byte{1, 0xa3, 0x01, 0x01, 0x02, 0x41, 0x00, 0x05, 0x01}, fleet.CodeFrameBad},
		"a list for a number": {[]byte{1, 0xa2, 0x01, 0x80, 0x05, 0x01}, fleet.CodeFrameBad},
	}
	for name, tt := range tests {
		if tr, err := syncproto.DecodeRow(tt.row); fleet.CodeOf(err) != tt.code {
			t.Errorf("%s: %+v, %v; want %s", name, tr, err, tt.code)
		}
	}
}

func TestChainHash(t *testing.T) {
	a := syncproto.ChainHash(nil, []byte("a"))
	b := syncproto.ChainHash(a, []byte("b"))
	if len(a) != 16 || string(b) == string(syncproto.ChainHash(nil, []byte("b"))) || string(b) != string(syncproto.ChainHash(a, []byte("b"))) {
		t.Errorf("hashes %x, %x", a, b)
	}
}

func mustEncodeRow(tb interface {
	Helper()
	Fatalf(string, ...any)
}, tr fleet.Transition) []byte {
	tb.Helper()
	b, err := syncproto.EncodeRow(tr)
	if err != nil {
		tb.Fatalf("encode row %d: %v", tr.Seq, err)
	}
	return b
}

func BenchmarkEncodeRow(b *testing.B) {
	tr := rowSamples()["started"]
	b.ReportAllocs()
	for b.Loop() {
		mustEncodeRow(b, tr)
	}
}

func BenchmarkDecodeRow(b *testing.B) {
	row := mustEncodeRow(b, rowSamples()["started"])
	b.ReportAllocs()
	for b.Loop() {
		if _, err := syncproto.DecodeRow(row); err != nil {
			b.Fatal(err)
		}
	}
}
