package api_test

import (
	"bytes"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	nomad "github.com/hashicorp/nomad/api"

	"skerry/fleet"
	"skerry/hub/api"
	"skerry/hub/state"
	"skerry/syncproto"
)

// serveTestFiles answers as an edge does that has one file of ten bytes.
func serveTestFiles(req syncproto.Request) (io.ReadCloser, error) {
	const content = "0123456789"
	text := func(s string) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(s)), nil }
	switch {
	case req.Kind == syncproto.RequestList && req.Path == "/":
		return text(`[{"Name":"a.txt","Size":10,"FileMode":"-rw-r--r--"},{"Name":"alloc","IsDir":true}]`)
	case req.Path == "broken":
		return text(`{`)
	case req.Path != "a.txt":
		return nil, fleet.Errorf(fleet.CodeNotFound, "read %s: there is no such file", req.Path)
	case req.Kind == syncproto.RequestStat:
		return text(`{"Name":"a.txt","Size":10}`)
	}
	rest := content[min(req.Offset, 10):]
	if req.Limit > 0 {
		rest = rest[:min(req.Limit, int64(len(rest)))]
	}
	return text(rest)
}

func TestNomadClientReadsFiles(t *testing.T) {
	h, srv, c := mustServe(t)
	h.files = serveTestFiles
	if _, _, err := c.Jobs().Register(exampleJob("web"), nil); err != nil {
		t.Fatal(err)
	}
	alloc := &nomad.Allocation{ID: string(mustPlace(t, h, "web")), NodeID: string(nodeID)}
	list, _, err := c.AllocFS().List(alloc, "/", nil)
	if err != nil || len(list) != 2 || !list[1].IsDir || list[0].Size != 10 {
		t.Fatalf("list: %+v, %v", list, err)
	}
	if info, _, err := c.AllocFS().Stat(alloc, "a.txt", nil); err != nil || info.Name != "a.txt" {
		t.Fatalf("stat: %+v, %v", info, err)
	}
	read := func(r io.ReadCloser, err error) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if got := read(c.AllocFS().Cat(alloc, "a.txt", nil)); got != "0123456789" {
		t.Errorf("cat: %q", got)
	}
	if got := read(c.AllocFS().ReadAt(alloc, "a.txt", 3, 4, nil)); got != "3456" {
		t.Errorf("readat: %q", got)
	}
	for origin, want := range map[string]string{"start": "23456789", "end": "89"} {
		cancel := make(chan struct{})
		frames, errs := c.AllocFS().Stream(alloc, "a.txt", origin, 2, cancel, nil)
		var got bytes.Buffer
		at := int64(-1)
		for f := range frames {
			if at < 0 {
				at = f.Offset
			}
			got.Write(f.Data)
		}
		if err := <-errs; err != io.EOF || got.String() != want || at != 10-int64(len(want)) {
			t.Errorf("stream from the %s: %q at %d, %v", origin, got.String(), at, err)
		}
	}
	for _, tc := range []struct {
		path   string
		status int
		says   string
	}{
		{"ls/nope?path=/", 404, "not found"},
		{"stat/" + alloc.ID + "?path=" + url.QueryEscape("../x"), 404, "no such file"},
		{"stat/" + alloc.ID + "?path=broken", 500, "cannot be decoded"},
		{"readat/" + alloc.ID + "?path=a.txt&offset=x", 400, "offset"},
		{"stream/" + alloc.ID + "?path=a.txt&origin=middle", 400, "origin"},
		{"stream/" + alloc.ID + "?path=a.txt&follow=maybe", 400, "follow"},
	} {
		resp, err := http.Get(srv.URL + "/v1/client/fs/" + tc.path)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != tc.status || !strings.Contains(string(b), tc.says) {
			t.Errorf("%s: %d %q, %v; want %d with %q", tc.path, resp.StatusCode, b, err, tc.status, tc.says)
		}
	}
}

func TestNomadClientLooksAfterHubs(t *testing.T) {
	h, srv, c := mustServe(t)
	mustJobs(t, c, 2)
	raft, err := c.Operator().RaftGetConfiguration(nil)
	if err != nil || len(raft.Servers) != 2 || !raft.Servers[0].Leader || !raft.Servers[1].Voter || raft.Servers[1].Address != "127.0.0.2:4647" {
		t.Fatalf("raft configuration: %+v, %v", raft, err)
	}
	if _, _, err := c.Operator().AutopilotServerHealth(nil); err == nil || !strings.Contains(err.Error(), "429") || !strings.Contains(err.Error(), `"hub2"`) {
		t.Fatalf("health with a hub that does not answer: %v", err)
	}
	regions, err := c.Regions().List()
	if err != nil || len(regions) != 1 || regions[0] != "global" {
		t.Fatalf("regions: %v, %v", regions, err)
	}
	saved, err := c.Operator().Snapshot(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer saved.Close()
	s := state.New()
	if err := s.Restore(saved); err != nil {
		t.Fatal(err)
	}
	if got, want := s.View().Digest(), h.store.View().Digest(); got != want {
		t.Fatalf("a saved state has digest %s, the hub's is %s", got, want)
	}
	resp, err := http.Post(srv.URL+"/v1/operator/snapshot", "", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusBadRequest {
		t.Errorf("restoring answers %d", resp.StatusCode)
	}
}

// TestAutopilotSaysWhyItsRulesAreFixed stores the configuration as it was read, and changes each
// rule of it.
func TestAutopilotSaysWhyItsRulesAreFixed(t *testing.T) {
	_, srv, c := mustServe(t)
	conf, _, err := c.Operator().AutopilotGetConfiguration(nil)
	if err != nil || conf.LastContactThreshold == 0 {
		t.Fatalf("%+v, %v", conf, err)
	}
	if _, err := c.Operator().AutopilotSetConfiguration(conf, nil); err != nil {
		t.Error(err)
	}
	stored, _, err := c.Operator().AutopilotCASConfiguration(conf, nil)
	if err != nil || !stored {
		t.Errorf("as it was read: %t, %v", stored, err)
	}
	if status, said := mustPut(t, srv.URL+"/v1/operator/autopilot/configuration?cas=7", "{}"); status != 200 || said != "false\n" {
		t.Errorf("as of another index: %d %s", status, said)
	}
	for key, value := range map[string]string{
		"CleanupDeadServers": "true", "LastContactThreshold": `"9s"`, "MaxTrailingLogs": "9", "MinQuorum": "3", "ServerStabilizationTime": `"9s"`,
		"EnableRedundancyZones": "true", "DisableUpgradeMigration": "false", "EnableCustomUpgrades": "true", "ModifyIndex": "3", "CreateIndex": "3",
	} {
		status, said := mustPut(t, srv.URL+"/v1/operator/autopilot/configuration", `{"`+key+`": `+value+`}`)
		if status != 400 || !strings.Contains(said, key+" is ") || !strings.Contains(said, ": "+api.WhyFixed[key]) || api.WhyFixed[key] == "" {
			t.Errorf("%s: %d %s", key, status, said)
		}
	}
}
