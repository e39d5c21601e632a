package hub_test

import (
	"bytes"
	"compress/flate"
	"encoding/json"
	"encoding/pem"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/hub"
	"skerry/hub/pki"
	"skerry/hub/state"
)

// secretsOf reads what signs for a cluster, and what its gossip is encrypted with.
func secretsOf(tb testing.TB, cfg hub.Config) [][]byte {
	tb.Helper()
	gossip, err := os.ReadFile(filepath.Join(cfg.DataDir, "identity", "gossip-key"))
	if err != nil {
		tb.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(cfg.DataDir, "identity", "ca-key.pem"))
	if err != nil {
		tb.Fatal(err)
	}
	block, _ := pem.Decode(text)
	stateKeys, err := pki.OpenStateKeys(pki.StateKeysConfig{Dir: filepath.Join(cfg.DataDir, "identity"), Log: slog.New(slog.DiscardHandler)})
	if err != nil || len(stateKeys.Known()) == 0 {
		tb.Fatalf("state keys: %v, %v", stateKeys, err)
	}
	secrets := [][]byte{gossip, block.Bytes}
	for _, k := range stateKeys.Known() {
		secrets = append(secrets, k[:])
	}
	return secrets
}

func mustNotHave(tb testing.TB, what string, content []byte, secrets [][]byte) {
	tb.Helper()
	for i, s := range secrets {
		if bytes.Contains(content, s) {
			tb.Errorf("%s has secret %d in clear", what, i)
		}
	}
}

// mustSnapshot is a snapshot that the hub serves, inflated.
func mustSnapshot(tb testing.TB, h *runningHub) []byte {
	tb.Helper()
	res, err := http.Get("http://" + h.HTTPAddr() + "/v1/operator/snapshot")
	if err != nil {
		tb.Fatal(err)
	}
	defer res.Body.Close()
	file, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		tb.Fatalf("%s: %v", res.Status, err)
	}
	inflated, err := io.ReadAll(flate.NewReader(bytes.NewReader(file[9:]))) // behind the header
	if err != nil {
		tb.Fatal(err)
	}
	return inflated
}

// Neither a snapshot nor the log of a hub has what signs for the cluster.
func TestStateHasNoSecretsInClear(t *testing.T) {
	hubs := mustCluster(t, 2)
	secrets := [][]byte{}
	for _, h := range hubs {
		h.awaitAuthority()
		secrets = append(secrets, secretsOf(t, h.cfg)...)
	}
	for _, h := range hubs {
		snapshot := mustSnapshot(t, h)
		mustNotHave(t, "the snapshot", snapshot, secrets)
		if !bytes.Contains(snapshot, []byte("SealKey")) {
			t.Error("the snapshot was not read right")
		}
	}
	for _, h := range hubs {
		h.stopHub()
		err := filepath.WalkDir(filepath.Join(h.cfg.DataDir, "raft"), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			content, err := os.ReadFile(path)
			mustNotHave(t, path, content, secrets)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Nobody but a hub's own user can read its data directory: what lies there is private, or in a private folder.
func TestDataOfAHubIsPrivate(t *testing.T) {
	h := mustCluster(t, 1)[0]
	h.awaitAuthority()
	mustSnapshot(t, h)
	h.stopHub()
	private := 0
	err := filepath.WalkDir(h.cfg.DataDir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == h.cfg.DataDir {
			return err
		}
		info, err := d.Info()
		switch {
		case err != nil:
			return err
		case info.Mode().Perm()&0o077 == 0 && d.IsDir():
			private++
			return filepath.SkipDir
		case info.Mode().Perm()&0o077 != 0:
			t.Errorf("%s has mode %v", strings.TrimPrefix(path, h.cfg.DataDir), info.Mode())
		}
		return nil
	})
	if err != nil || private < 3 { // raft, identity and audit
		t.Errorf("%d private folders, %v", private, err)
	}
}

// awaitAuthority waits until a hub can sign.
func (r *runningHub) awaitAuthority() {
	r.tb.Helper()
	waitUntil(r.tb, "the hub has opened the cluster's secrets", r.describeState, func() bool {
		_, err := os.Stat(filepath.Join(r.cfg.DataDir, "identity", "ca-key.pem"))
		return err == nil
	})
}

// A hub that lost its file has it again from another one; without any it says what is
// missing, and signs nothing.
func TestLostStateKeyIsFetched(t *testing.T) {
	hubs := mustCluster(t, 2)
	second := hubs[1]
	second.awaitAuthority()
	lost := filepath.Join(second.cfg.DataDir, "identity", "state-key")
	before, err := os.ReadFile(lost)
	if err != nil {
		t.Fatal(err)
	}
	second.stopHub()
	cfg := second.cfg
	// At the same address: raft has a race of its own where a hub moves.
	cfg.Join, cfg.Token, cfg.Packets, cfg.QUICPort = nil, "", nil, mustAddr(t, second.QUICAddr()).(*net.UDPAddr).Port
	for _, file := range []string{"state-key", "ca-key.pem"} {
		if err := os.Remove(filepath.Join(cfg.DataDir, "identity", file)); err != nil {
			t.Fatal(err)
		}
	}
	again := mustStart(t, cfg)
	again.mustBeReady()
	again.awaitAuthority()
	waitUntil(t, "the hub has its file again", again.describeState, func() bool {
		after, err := os.ReadFile(lost)
		return err == nil && bytes.Equal(after, before)
	})
	mustEnroll(t, again, hubs[0].JoinToken())
}

func TestMissingStateKeyIsNamed(t *testing.T) {
	cfg := config(t, "hub-1")
	cfg.Bootstrap = true
	first := mustStart(t, cfg)
	first.mustBeReady()
	first.awaitAuthority()
	first.stopHub()
	for _, file := range []string{"state-key", "ca-key.pem"} {
		if err := os.Remove(filepath.Join(cfg.DataDir, "identity", file)); err != nil {
			t.Fatal(err)
		}
	}
	again := mustStart(t, cfg)
	again.mustBeReady()
	err := tryEnroll(t, again, first.JoinToken())
	if e := fleet.AsError(err); e == nil || e.Code != fleet.CodeUnavailable || !strings.Contains(e.Message, "and this hub has none") ||
		!strings.Contains(e.Hint, "identity/state-key") {
		t.Fatalf("enrolment: %v", err)
	}
}

// A data directory of an older release has the CA's key in its state in clear, and one
// join token for hubs and edges: the first leader seals the secrets, and the token goes
// on.
func TestSecretsOfAnOlderReleaseAreSealed(t *testing.T) {
	cfg := config(t, "hub-1")
	token := mustMakeOldDirectory(t, cfg)
	h := mustStart(t, cfg)
	h.mustBeReady()
	sealed := func() bool {
		c, ok := h.State().View().Cluster()
		return ok && len(c.Sealed) > 0 && len(c.CAKey) == 0 && len(c.GossipKey) == 0
	}
	waitUntil(t, "the secrets are sealed", h.describeState, sealed)
	h.awaitAuthority()
	mustNotHave(t, "the snapshot", mustSnapshot(t, h), secretsOf(t, cfg))
	joining := config(t, "hub-2")
	joining.Join, joining.Token = []string{h.QUICAddr()}, token
	second := mustStart(t, joining)
	second.mustBeReady()
	second.awaitAuthority()
	mustEnroll(t, second, token)
}

// mustMakeOldDirectory leaves what commit 14676ac left of a bootstrap that was
// interrupted, and returns its join token.
func mustMakeOldDirectory(tb testing.TB, cfg hub.Config) string {
	tb.Helper()
	cluster, err := pki.NewCluster("global", time.Now())
	if err != nil {
		tb.Fatal(err)
	}
	authority, err := pki.NewAuthority(cluster)
	if err != nil {
		tb.Fatal(err)
	}
	id, issued, err := authority.Issue(fleet.RoleHub, cfg.Name, time.Now())
	if err != nil {
		tb.Fatal(err)
	}
	token, kept := pki.NewToken(cluster, []string{fleet.RoleHub, fleet.RoleEdge}, 0, time.Now())
	folder := filepath.Join(cfg.DataDir, "identity")
	if err := pki.Save(folder, id); err != nil {
		tb.Fatal(err)
	}
	pending, err := json.Marshal(struct {
		Cluster     state.Cluster
		Token       state.JoinToken
		Certificate state.Certificate
	}{cluster, kept, issued})
	if err != nil {
		tb.Fatal(err)
	}
	mustWrite(tb, filepath.Join(folder, "pending.json"), string(pending))
	mustWrite(tb, filepath.Join(folder, "gossip-key"), string(cluster.GossipKey))
	return token.String()
}
