package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skerry/cmd/edged"
	"skerry/edge"
	"skerry/syncproto/identity"
)

// TestDevHealth asks for the health of an edge of skerry dev that has not started, and of one without a link. The script
// dev asks for that of a connected one.
func TestDevHealth(t *testing.T) {
	var started startedEdge
	if err := started.checkHealth(); err == nil || err.Error() != "the edge has not started yet" {
		t.Errorf("before the edge: %v", err)
	}
	dir := t.TempDir()
	token := filepath.Join(dir, "token")
	if err := os.WriteFile(token, []byte(identity.NewToken([]byte("a CA")).String()), 0o600); err != nil {
		t.Fatal(err)
	}
	flags := edged.Flags{Bind: "127.0.0.1", Config: edge.Config{
		DataDir: dir, Name: devEdge, Hubs: []string{"127.0.0.1:1"}, TokenFile: token,
	}}
	cfg, err := flags.EdgeConfig(slog.New(slog.DiscardHandler), version)
	if err != nil {
		t.Fatal(err)
	}
	e, err := edge.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := e.Close(); err != nil {
			t.Errorf("close the edge: %v", err)
		}
	}()
	started.edge.Store(e)
	if err := started.checkHealth(); err == nil || !strings.HasPrefix(err.Error(), "the edge is ") {
		t.Errorf("without a link: %v", err)
	}
}
