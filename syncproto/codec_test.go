package syncproto_test

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/syncproto"
)

var rewrite = flag.Bool("rewrite", false, "write golden files anew")

const (
	nodeA  = fleet.NodeID("0b5cbd2a-9d4c-4f4c-8f6e-2f3b7a1c9d10")
	allocA = fleet.AllocID("5f2d7c9e-1111-4222-8333-444455556666")
	bootA  = fleet.BootID("c0ffee00-0000-4000-8000-00000000beef")
	wallA  = int64(1_790_000_000_123_456_789)
)

// samples are messages with every field set, by name.
func samples() map[string]syncproto.Message {
	return map[string]syncproto.Message{
		"hello": syncproto.Hello{
			Versions: []uint16{1}, Node: nodeA, Boot: bootA, Instance: "i1", Session: 7, First: 3, Last: 70_000,
			ChainHash: bytes.Repeat([]byte{0xab}, 16), Desired: 900, Cluster: "c1", Term: 4, Index: 1000, Agent: "0.1.0",
		},
		"hello-lost": syncproto.Hello{
			Versions: []uint16{1}, Node: nodeA, Boot: bootA, Instance: "i1", Session: 8, First: 1, Last: 2,
			ChainHash: []byte{1}, Cluster: "c1", Agent: "0.1.0", Lost: "the database is gone",
		},
		"welcome": syncproto.Welcome{
			Version: 1, Epoch: 12, Applied: 69_000, TTL: 10 * time.Second, HubTime: wallA,
			Hubs: []string{"a:4647", "b:4647"}, Cluster: "c1", Term: 4, Index: 1001, Hub: "h1",
		},
		"refused": syncproto.Refused{
			Code: fleet.CodeStaleSession, Message: "m", Hint: "h", RetryAfter: time.Second, Session: 9, Applied: 8,
		},
		"heartbeat": syncproto.Heartbeat{Number: 300, Uptime: time.Hour, Wall: wallA, RTT: 40 * time.Millisecond},
		"heartbeat-with-node": syncproto.Heartbeat{
			Number: 1, Uptime: time.Hour, Wall: wallA, Hash: []byte{1, 2, 3},
			Node: &fleet.Node{
				ID: nodeA, Name: "shop", Datacenter: "dc1", NodePool: "default", NodeClass: "small",
				Attributes: map[string]string{"cpu.arch": "arm64", "kernel.name": "linux"}, Meta: map[string]string{"site": "oslo"},
				Resources: fleet.Resources{CPU: 4000, MemoryMB: 2048, DiskMB: 9000}, Reserved: fleet.Resources{CPU: 100},
				Drivers: map[string]fleet.DriverInfo{"raw_exec": {Detected: true, Healthy: true, HealthDescription: "ok", Attributes: map[string]string{"v": "1"}}},
				Devices: []fleet.Device{{Kind: "usb", Vendor: "046d", Type: "hid", Name: "mouse", ID: "1-1", Attributes: map[string]string{"serial": "x"}}},
				Version: "0.1.0", DescriptionHash: "010203",
			},
		},
		"heartbeat-of-a-site": syncproto.Heartbeat{
			Number: 1, Uptime: time.Hour, Wall: wallA, Hash: []byte{1, 2, 3},
			Node: &fleet.Node{ID: nodeA, Name: "till", Datacenter: "dc1", Site: "shop-17", NodePool: "default", DescriptionHash: "010203"},
		},
		"heartbeat-of-networks": syncproto.Heartbeat{
			Number: 1, Node: &fleet.Node{
				ID: nodeA, HostNetworks: []fleet.HostNetwork{{Name: "lan", IP: "10.0.0.5", ReservedPorts: "22"}},
				ReservedPorts: "53", MinDynamicPort: 21_000, MaxDynamicPort: 22_000, MaxAllocs: 9,
			},
		},
		"heartbeat-of-volumes": syncproto.Heartbeat{
			Number: 1, Node: &fleet.Node{
				ID: nodeA, HostVolumes: map[string]fleet.HostVolume{"data": {Path: "/srv/data"}, "maps": {Path: "/srv/maps", ReadOnly: true, ID: "v1"}},
			},
		},
		"heartbeat-of-a-zone": syncproto.Heartbeat{
			Number: 1, Uptime: time.Hour, Wall: wallA, Hash: []byte{1, 2, 3},
			Node: &fleet.Node{ID: nodeA, Name: "till", Datacenter: "dc1", TimeZone: "Europe/Oslo", NodePool: "default", DescriptionHash: "010203"},
		},
		"heartbeat-ack": syncproto.HeartbeatAck{
			Number: 1, Epoch: 12, Status: fleet.NodeInitializing, Reason: "r", TTL: 10 * time.Second, HubTime: wallA,
			Hubs: []string{"a:4647"}, NeedNode: true, Applied: 69_000, Index: 1002, Term: 4,
		},
		"heartbeat-ack-lost": syncproto.HeartbeatAck{
			Number: 1, Epoch: 13, Status: fleet.NodeInitializing, HubTime: wallA, Applied: 69_000, Index: 1003, Term: 4,
			ChainHash: bytes.Repeat([]byte{0xcd}, 16),
		},
		"heartbeat-ack-restored": syncproto.HeartbeatAck{
			Number: 1, Epoch: 14, Status: fleet.NodeInitializing, HubTime: wallA, Applied: 40, Index: 1200, Term: 5, Restored: 1100,
		},
		"heartbeat-ack-cas": syncproto.HeartbeatAck{
			Number: 7, Status: fleet.NodeReady, HubTime: wallA, CAs: [][]byte{{0x30, 0x01}, {0x30, 0x02}},
		},
		"heartbeat-ack-idle": syncproto.HeartbeatAck{Number: 300, Status: fleet.NodeReady, HubTime: wallA},
		"updates":            syncproto.Updates{First: 5, Prev: []byte{1}, Rows: [][]byte{{1, 2}, {3}}, Base: true},
		"applied":            syncproto.Applied{Last: 70_000, Status: fleet.NodeReady},
		"desired": syncproto.Desired{
			Index: 50, From: 40, Full: true, Cluster: "c1", Term: 4,
			Run: []syncproto.DesiredAlloc{{
				ID: allocA, Namespace: "default", JobID: "shop", JobVersion: 2, JobHash: "h", TaskGroup: "g", Name: "shop.g[0]",
				NodeName: "n", Resources: fleet.Resources{CPU: 100, MemoryMB: 300, DiskMB: 10}, Previous: "p", CreateIndex: 30, ModifyIndex: 45,
			}},
			Stop:   []syncproto.DesiredStop{{ID: "a2", Reason: "job stopped", ModifyIndex: 46}},
			Bodies: []syncproto.Body{{Hash: "h", Job: []byte{0xa0}}},
		},
		"desired-with-ports": syncproto.Desired{
			Index: 51, Cluster: "c1", Term: 4,
			Run: []syncproto.DesiredAlloc{{ID: allocA, Deployment: "d", Allotment: &fleet.AssignedResources{
				Ports: []fleet.AssignedPort{{Label: "http", Value: 20_000, To: 80, HostIP: "10.0.0.5"}, {Label: "log", Value: 514, Shared: true}},
				Tasks: map[string]fleet.AssignedTaskResources{"t": {
					Cores: []int{0, 3}, Devices: []fleet.AssignedDevice{{Vendor: "v", Type: "usb", Name: "n", DeviceIDs: []string{"1-1"}}},
				}},
			}}},
		},
		"desired-in-a-window": syncproto.Desired{
			Index: 51, Cluster: "c1", Term: 4,
			Stop: []syncproto.DesiredStop{{ID: "a2", Reason: "version 2", ModifyIndex: 51, Windows: []syncproto.DesiredWindow{
				{Cron: "0 2 * * *", Duration: 3 * time.Hour}, {Cron: "@weekly", Duration: time.Hour, TimeZone: "Europe/Oslo"},
			}}},
		},
		"desired-without-delay": syncproto.Desired{
			Index: 52, Cluster: "c1", Term: 4,
			Stop: []syncproto.DesiredStop{{ID: "a2", Reason: "the job was stopped", ModifyIndex: 52, NoDelay: true}},
		},
		"desired-with-volumes": syncproto.Desired{
			Index: 53, Cluster: "c1", Term: 4,
			Volumes: []syncproto.DesiredVolume{
				{ID: "v1", Namespace: "default", Name: "data", Plugin: "mkdir", Parameters: map[string]string{"mode": "0750"}, Pending: true, ModifyIndex: 53},
				{ID: "v2", Namespace: "default", Name: "srv", Path: "/srv", Delete: true, ModifyIndex: 52},
			},
		},
		"desired-with-prefetches": syncproto.Desired{
			Index: 54, Cluster: "c1", Term: 4,
			Prefetches: []syncproto.DesiredPrefetch{
				{ID: "p1", Namespace: "default", JobID: "shop", JobVersion: 2, JobHash: "h", Job: []byte{0xa0}, RequestIndex: 54},
				{ID: "p2", Namespace: "default", JobID: "till", JobHash: "i", Delete: true, RequestIndex: 53},
			},
		},
		"received":        syncproto.Received{Index: 50, Missing: []string{"h"}},
		"holdings":        syncproto.Holdings{Allocs: []fleet.AllocID{allocA}},
		"holdings-go-on":  syncproto.Holdings{Allocs: []fleet.AllocID{allocA}, More: true},
		"probe":           syncproto.Probe{Number: 3},
		"probe-ack":       syncproto.ProbeAck{Number: 3},
		"resync":          syncproto.Resync{Reason: "half-way", Applied: 9},
		"request-file":    syncproto.Request{Kind: syncproto.RequestRead, Alloc: allocA, Path: "web/local/a.txt", Offset: 5, Limit: 100},
		"request-signal":  syncproto.Request{Kind: syncproto.RequestSignal, Alloc: allocA, Task: "t", Signal: "SIGHUP", Everything: true},
		"request-monitor": syncproto.Request{Kind: syncproto.RequestMonitor, Level: "DEBUG", JSON: true},
		"request-exec":    syncproto.Request{Kind: syncproto.RequestExec, Alloc: allocA, Task: "t", Command: []string{"sh", "-l"}, TTY: true},
		"request-action":  syncproto.Request{Kind: syncproto.RequestAction, Alloc: allocA, Task: "t", Action: "greet", TTY: true},
		"request-variables": syncproto.Request{Kind: syncproto.RequestVariables, Complete: true, Variables: []syncproto.DeliveredVariable{
			{Namespace: "default", Path: "nomad/jobs/shop", ModifyIndex: 9, Items: []byte{0xa1, 0x61, 0x61, 0x61, 0x31}},
			{Namespace: "default", Path: "nomad/jobs", Deleted: true},
		}},
		"request-variables-of-a-time": syncproto.Request{Kind: syncproto.RequestVariables, Variables: []syncproto.DeliveredVariable{
			{Namespace: "default", Path: "nomad/jobs/shop", ModifyIndex: 9, Items: []byte{0xa1, 0x61, 0x61, 0x61, 0x31}, ModifyTime: 1_700_000_000_000_000_001},
		}},
		"request-identities": syncproto.Request{Kind: syncproto.RequestIdentities, Identities: []syncproto.DeliveredIdentity{
			{Alloc: allocA, Task: "t", Name: "default", Token: "a.b.c", KeyID: "k1", Issued: 1_700_000_000, Expires: 1_700_003_600},
			{Alloc: allocA, Task: "t", Name: "aws", Token: "d.e.f"},
		}},
		"request-offline-identities": syncproto.Request{Kind: syncproto.RequestIdentities, IdentityKey: "node/a/k", Identities: []syncproto.DeliveredIdentity{
			{Alloc: allocA, Task: "t", Name: "vault", Token: "a.b.c", KeyID: "k1", Issued: 1_700_000_000, Expires: 1_700_003_600, Offline: true},
		}},
		"request-no-data": syncproto.Request{Kind: syncproto.RequestNoData, Alloc: allocA, Reason: "that allocation has not ended on edge ship-3", Wait: true},
		"request-site-codes": syncproto.Request{Kind: syncproto.RequestSiteCodes, SiteCodes: []syncproto.DeliveredSiteCode{
			{ID: "k7m2", ModifyIndex: 9, Name: "Ann", Capabilities: []string{"read", "write"}, Salt: []byte{1}, Hash: []byte{2}, Rounds: 3, Expires: 1_700_003_600},
			{ID: "a1b2", ModifyIndex: 10, Revoked: true},
		}},
		"request-services": syncproto.Request{Kind: syncproto.RequestServices, Exact: true, UnreachableNodes: []fleet.NodeID{nodeA}, Services: []syncproto.DeliveredService{
			{
				ID: "_nomad-task-a-web-till-http", Sum: []byte{1}, Name: "till", Namespace: "default", Node: nodeA, NodeName: "till-2", Datacenter: "dc1",
				Job: "shop", Alloc: allocA, Tags: []string{"main"}, Address: "192.0.2.7", Port: 8080, TCP: true,
			},
			{ID: "_nomad-task-b-web-till-http", Removed: true},
		}},
		"exec-input":  syncproto.ExecInput{Stdin: []byte("ls\n"), Close: true, Width: 80, Height: 24},
		"exec-output": syncproto.ExecOutput{Stdout: []byte("a"), Stderr: []byte("b")},
		"exec-exit":   syncproto.ExecOutput{Exited: true, Code: 130, Error: fleet.Errorf(fleet.CodeConflict, "the task has ended")},
		"request":     syncproto.Request{Kind: syncproto.RequestLogs, Alloc: allocA, Task: "t", Stream: "stdout", Offset: 5, Origin: "end", Follow: true},
		"log-piece":   syncproto.LogPiece{File: 7, Offset: 4096, Data: []byte("a line\n")},
		"reply":       syncproto.Reply{Error: fleet.Errorf(fleet.CodeNotFound, "no such task").WithHint("look again")},
		"enroll":      syncproto.Enroll{TokenID: "t", Secret: "s", Role: fleet.RoleEdge, Name: "n", ID: string(nodeA), CSR: []byte{1}},
		"enrolled-hub": syncproto.Enrolled{
			Cert: []byte{1}, CA: []byte{2}, Cluster: "c1", Hubs: []string{"a:4647"}, GossipKey: []byte{3}, StateKey: []byte{4},
		},
		"enrolled": syncproto.Enrolled{
			Cert: []byte{1}, CA: []byte{2}, Cluster: "c1", Hubs: []string{"a:4647"}, GossipKey: []byte{3}, Gossip: []string{"a:4648"},
		},
	}
}

// A field that came later is set in a sample of its own: older ones never change.
func TestEveryFieldIsSetInASampleOfItsType(t *testing.T) {
	set := map[syncproto.FrameType]map[string]bool{}
	for _, m := range samples() {
		if set[m.FrameType()] == nil {
			set[m.FrameType()] = map[string]bool{}
		}
		v := reflect.ValueOf(m)
		for i := range v.NumField() {
			name := v.Type().Field(i).Name
			set[m.FrameType()][name] = set[m.FrameType()][name] || !v.Field(i).IsZero()
		}
	}
	for ft := syncproto.FrameHello; ft <= syncproto.FrameLogPiece; ft++ {
		if len(set[ft]) == 0 {
			t.Errorf("no sample of %s", ft)
		}
		for name, ok := range set[ft] {
			if !ok {
				t.Errorf("no sample of %s has %s", ft, name)
			}
		}
	}
}

func TestMessagesComeBackAsTheyWent(t *testing.T) {
	for name, m := range samples() {
		var wire bytes.Buffer
		if err := syncproto.NewWriter(&wire).Write(m); err != nil {
			t.Errorf("%s: write: %v", name, err)
			continue
		}
		back, err := syncproto.NewReader(&wire).Read()
		if err != nil {
			t.Errorf("%s: read: %v", name, err)
			continue
		}
		if !reflect.DeepEqual(back, m) {
			t.Errorf("%s: %#v\ncame back as %#v", name, m, back)
		}
	}
}

// The bytes on the wire, and of rows on disk, never change for what they said
// once. A line is a name and hexadecimal bytes; new ones are added with -rewrite.
func TestGoldenVectors(t *testing.T) {
	got := map[string][]byte{}
	for name, m := range samples() {
		frame, err := syncproto.AppendFrame(nil, m)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got["frame "+name] = frame
	}
	for name, tr := range rowSamples() {
		got["row "+name] = mustEncodeRow(t, tr)
	}
	const path = "testdata/vectors.txt"
	if *rewrite {
		var b strings.Builder
		for _, name := range sortedNames(got) {
			fmt.Fprintf(&b, "%s: %x\n", name, got[name])
		}
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want := mustVectors(t, path)
	for name, b := range got {
		if !bytes.Equal(b, want[name]) {
			t.Errorf("%s:\nis   %x\nwas  %x", name, b, want[name])
		}
	}
	for name, b := range want {
		if _, ok := got[name]; !ok {
			t.Errorf("%s is no longer made", name)
		}
		if strings.HasPrefix(name, "row ") {
			if _, err := syncproto.DecodeRow(b); err != nil {
				t.Errorf("%s is no longer read: %v", name, err)
			}
		} else if _, err := syncproto.NewReader(bytes.NewReader(b)).Read(); err != nil {
			t.Errorf("%s is no longer read: %v", name, err)
		}
	}
}

func mustVectors(tb testing.TB, path string) map[string][]byte {
	tb.Helper()
	f, err := os.Open(path)
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	vectors := map[string][]byte{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		name, text, _ := strings.Cut(lines.Text(), ": ")
		b, err := hex.DecodeString(text)
		if err != nil {
			tb.Fatalf("%s: %s: %v", path, name, err)
		}
		vectors[name] = b
	}
	if err := lines.Err(); err != nil {
		tb.Fatal(err)
	}
	return vectors
}

// As many rows as one frame may have, and no more.
func TestRowsOfOneFrame(t *testing.T) {
	for n, want := range map[int]bool{0: false, 1: true, syncproto.MaxUpdatesRows: true, syncproto.MaxUpdatesRows + 1: false} {
		b, err := syncproto.EncodeMessage(syncproto.Updates{First: 1, Rows: make([][]byte, n)})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := syncproto.DecodeMessage(syncproto.FrameUpdates, b); (err == nil) != want {
			t.Errorf("decode %d rows: %v", n, err)
		}
	}
}

func TestRefusedBodies(t *testing.T) {
	big := bytes.Repeat([]byte{0}, syncproto.MaxRow)
	many := syncproto.Updates{First: 1, Rows: make([][]byte, syncproto.MaxUpdatesRows+1)}
	heavy := syncproto.Updates{First: 1}
	for range syncproto.MaxUpdatesBytes/len(big) + 1 {
		heavy.Rows = append(heavy.Rows, big)
	}
	tests := map[string]struct {
		t    syncproto.FrameType
		body []byte
	}{
		"empty":                  {syncproto.FrameProbe, nil},
		"not CBOR":               {syncproto.FrameProbe, []byte("hello")},
		"truncated":              {syncproto.FrameProbe, []byte{0xa1, 0x01}},
		"trailing bytes":         {syncproto.FrameProbe, []byte{0xa1, 0x01, 0x03, 0x00}},
		"a duplicate key":        {syncproto.FrameProbe, []byte{0xa2, 0x01, 0x03, 0x01, 0x04}},
		"an indefinite length":   {syncproto.FrameProbe, []byte{0xbf, 0x01, 0x03, 0xff}},
		"a tag":                  {syncproto.FrameProbe, []byte{0xa1, 0x01, 0xc0, 0x61, 0x31}},
		"of another type":        {syncproto.FrameProbe, []byte{0xa1, 0x01, 0x61, 0x31}},
		"text that is not UTF-8": {syncproto.FrameResync, []byte{0xa1, 0x01, 0x61, 0xff}},
		"nested too deep":        {syncproto.FrameProbe, append([]byte{0xa1, 0x09}, bytes.Repeat([]byte{0x81}, 100)...)},
		"an announced giant":     {syncproto.FrameHoldings, []byte{0xa1, 0x01, 0x9b, 0, 0, 0, 0xff, 0, 0, 0, 0}},
		"no version":             {syncproto.FrameHello, []byte{0xa0}},
		// E7: there is no place in it for evaluations either.
		"no rows":               {syncproto.FrameUpdates, mustBody(t, syncproto.Updates{First: 1})},
		"rows without a number": {syncproto.FrameUpdates, mustBody(t, syncproto.Updates{Rows: [][]byte{{1}}})},
		"too many rows":         {syncproto.FrameUpdates, mustBody(t, many)},
		"rows too heavy":        {syncproto.FrameUpdates, mustBody(t, heavy)},
		"a row too long":        {syncproto.FrameUpdates, mustBody(t, syncproto.Updates{First: 1, Rows: [][]byte{append(big, 0)}})},
		"a hash too long":       {syncproto.FrameUpdates, mustBody(t, syncproto.Updates{First: 1, Prev: make([]byte, 65), Rows: [][]byte{{1}}})},
		"a beat without number": {syncproto.FrameHeartbeat, mustBody(t, syncproto.Heartbeat{})},
		"an unknown type":       {99, []byte{0xa0}},
	}
	for name, tt := range tests {
		m, err := syncproto.DecodeMessage(tt.t, tt.body)
		if fleet.CodeOf(err) != fleet.CodeFrameBad {
			t.Errorf("%s: %#v, %v; want %s", name, m, err, fleet.CodeFrameBad)
		}
	}
	if _, err := syncproto.DecodeMessage(syncproto.FrameHeartbeat, make([]byte, syncproto.MaxHeartbeat+1)); fleet.CodeOf(err) != fleet.CodeFrameTooLarge {
		t.Errorf("decode a heartbeat that is too large: %v", err)
	}
	long := syncproto.Heartbeat{Node: &fleet.Node{Meta: map[string]string{}}}
	for i := range syncproto.MaxHeartbeat / syncproto.MaxNodeText {
		long.Node.Meta[fmt.Sprint(i)] = strings.Repeat("x", syncproto.MaxNodeText)
	}
	if _, err := syncproto.EncodeMessage(long); fleet.CodeOf(err) != fleet.CodeFrameTooLarge {
		t.Errorf("encode a heartbeat that is too large: %v", err)
	}
	if _, err := syncproto.DecodeMessage(syncproto.FrameUpdates, make([]byte, syncproto.MaxFrame+1)); fleet.CodeOf(err) != fleet.CodeFrameTooLarge {
		t.Errorf("a body over the bound: %v", err)
	}
}

func TestUnknownKeysAreSkipped(t *testing.T) {
	m, err := syncproto.DecodeMessage(syncproto.FrameProbe, []byte{0xa2, 0x01, 0x03, 0x18, 0x63, 0x81, 0x05})
	if err != nil || m != (syncproto.Probe{Number: 3}) {
		t.Errorf("%#v, %v", m, err)
	}
}

func TestTooLargeIsNotSent(t *testing.T) {
	var wire bytes.Buffer
	err := syncproto.NewWriter(&wire).Write(syncproto.Desired{Bodies: []syncproto.Body{{Job: make([]byte, syncproto.MaxFrame)}}})
	if fleet.CodeOf(err) != fleet.CodeFrameTooLarge || wire.Len() > 0 {
		t.Errorf("%v, %d bytes written", err, wire.Len())
	}
}

func TestDescriptionIsMadeFitToTravel(t *testing.T) {
	n := fleet.Node{ID: nodeA, Name: "bad\xffname", Attributes: map[string]string{"usb": strings.Repeat("é", syncproto.MaxNodeText)}}
	m, err := syncproto.DecodeMessage(syncproto.FrameHeartbeat, mustBody(t, syncproto.Heartbeat{Number: 1, Node: &n}))
	if err != nil {
		t.Fatal(err)
	}
	back := m.(syncproto.Heartbeat).Node
	if back.Name != "badname" || len(back.Attributes["usb"]) != syncproto.MaxNodeText {
		t.Errorf("%q, %d bytes", back.Name, len(back.Attributes["usb"]))
	}
}

func TestJobBodies(t *testing.T) {
	j := &fleet.Job{
		ID: "shop", Namespace: "default", Type: "service", Meta: map[string]string{"a": "b"},
		TaskGroups: []fleet.TaskGroup{{Name: "g", Count: 2, Tasks: []fleet.Task{{
			Name: "t", Driver: "raw_exec",
			Config: map[string]any{"command": "sleep", "args": []any{"60"}, "n": int64(3), "f": 0.5, "on": true, "block": map[string]any{"k": "v"}},
		}}}},
	}
	b, err := syncproto.EncodeJob(j)
	if err != nil {
		t.Fatal(err)
	}
	back, err := syncproto.DecodeJob(b)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(back, j) {
		t.Errorf("%#v\ncame back as %#v", j, back)
	}
	again, err := syncproto.EncodeJob(back)
	if err != nil || !bytes.Equal(again, b) {
		t.Errorf("encoded again it differs (%v)", err)
	}
	if _, err := syncproto.DecodeJob([]byte{0xff}); fleet.CodeOf(err) != fleet.CodeFrameBad {
		t.Errorf("a bad body: %v", err)
	}
}

func mustBody(tb testing.TB, m syncproto.Message) []byte {
	tb.Helper()
	b, err := syncproto.EncodeMessage(m)
	if err != nil {
		tb.Fatalf("encode %s: %v", m.FrameType(), err)
	}
	return b
}
