package audit_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"skerry/api"
	"skerry/fleet"
	"skerry/hub/audit"
	"skerry/hub/state"
	"skerry/hub/state/statetest"
	"skerry/syncproto"
)

// edgeActions reads the numbers of the actions on edges in an audit, and the lost ones as "lost N".
func edgeActions(tb testing.TB, l *audit.Log) string {
	tb.Helper()
	var got []string
	for _, e := range mustRead(tb, l, 0) {
		switch {
		case e.Edge != nil:
			got = append(got, fmt.Sprint(e.Edge.Number))
		case e.Verb == api.AuditLost:
			got = append(got, fmt.Sprintf("lost %d", e.Lost))
		}
	}
	return strings.Join(got, " ")
}

// cluster is a state to which an edge reports actions.
type cluster struct {
	*statetest.Log
	tb    testing.TB
	chain []byte
	rows  int
}

const node = fleet.NodeID("11111111-2222-4333-8444-555555555555")

func newCluster(tb testing.TB) *cluster {
	tb.Helper()
	c := &cluster{Log: statetest.NewLog(), tb: tb}
	c.MustApply(tb, state.NodeRegister{Node: fleet.Node{ID: node, Name: "shop-17", NodePool: fleet.DefaultPool}, Now: 1})
	c.MustApply(tb, state.SessionOpen{NodeID: node, Session: 1, Instance: "i1", BootID: "b1", Hub: "hub1", EvalSeed: "s", Now: 2})
	return c
}

// report has the edge report so many further actions.
func (c *cluster) report(n int) {
	c.tb.Helper()
	b := state.NodeRows{NodeID: node, Epoch: 1, First: fleet.Seq(c.rows + 1), Prev: c.chain}
	for range n {
		c.rows++
		row, err := syncproto.EncodeRow(fleet.Transition{Seq: fleet.Seq(c.rows), BootID: "b1", Wall: 7, Kind: fleet.TransitionSite, Site: &fleet.SiteAction{
			Seq: uint64(c.rows), Chain: "x", Time: time.Unix(5, 0), Verb: "stop", Object: "1d697ed5", User: "anna", UID: "1000", Person: "Ann", SiteCode: "k7m2", Reason: "it smokes", Prev: "ab",
		}})
		if err != nil {
			c.tb.Fatal(err)
		}
		b.Rows, c.chain = append(b.Rows, row), syncproto.ChainHash(c.chain, row)
	}
	res := c.MustApply(c.tb, state.AllocUpdates{Batches: []state.NodeRows{b}, EvalSeed: "s", Now: 9})
	if res.Updates[0].Code != "" {
		c.tb.Fatalf("the rows are refused: %+v", res.Updates)
	}
}

// follow runs FollowEdges until everything is written that can be.
func (c *cluster) follow(l *audit.Log, wait time.Duration) {
	c.tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- l.FollowEdges(ctx, c.Store) }()
	time.Sleep(wait)
	synctest.Wait()
	cancel()
	if err := <-ended; err != nil {
		c.tb.Error(err)
	}
}

// TestActionsOnEdges writes each action once and in order, over restarts of the hub, also if the position on the disk is
// behind the lines or a disk was full, and says how many the state no longer had.
func TestActionsOnEdges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := config(filepath.Join(t.TempDir(), "audit"))
		c, l := newCluster(t), mustOpen(t, cfg)
		c.follow(l, 0)
		c.report(2)
		l.Append(api.AuditEntry{Verb: "PUT"})
		c.follow(l, 0)
		entries := mustRead(t, l, 1)
		if len(entries) != 2 || entries[0].Verb != "stop" || entries[0].Source != "shop-17" || !reflect.DeepEqual(entries[0].Actor, api.AuditActor{User: "anna", UID: "1000", Person: "Ann", SiteCode: "k7m2"}) || entries[0].Reason != "it smokes" {
			t.Fatalf("entries %+v", entries)
		}
		if e := entries[1].Edge; e.NodeID != node || e.Seq != 2 || e.Chain != "x" || e.Prev != "ab" || !e.Time.Equal(time.Unix(5, 0)) || !e.Reported.Equal(time.Unix(0, 9)) {
			t.Errorf("on the edge: %+v", e)
		}
		position := filepath.Join(cfg.Dir, "edges")
		before, err := os.ReadFile(position)
		if err != nil {
			t.Fatal(err)
		}
		c.report(1)
		c.follow(l, 0)
		if err := os.WriteFile(position, before, 0o600); err != nil { // the hub died before it wrote that
			t.Fatal(err)
		}
		l.Close()
		l = mustOpen(t, cfg)
		c.report(1)
		c.follow(l, 0)
		if got := edgeActions(t, l); got != "1 2 3 4" {
			t.Errorf("after a restart the audit has %s", got)
		}
		c.report(2010)
		c.report(1)
		c.follow(l, 0)
		if got := edgeActions(t, l); !strings.HasPrefix(got, "1 2 3 4 lost 11 16 17 ") || !strings.HasSuffix(got, " 2015") {
			t.Errorf("after many actions the audit has %.60s", got)
		}
	})
}

// TestActionsOnEdgesWait: an action that cannot be written is written when there is space.
func TestActionsOnEdgesWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := config(filepath.Join(t.TempDir(), "audit"))
		c, l := newCluster(t), mustOpen(t, cfg)
		c.report(2)
		if err := os.WriteFile(cfg.Dir, nil, 0o600); err != nil { // where the folder has to be
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- l.FollowEdges(ctx, c.Store) }()
		synctest.Wait()
		if err := os.Remove(cfg.Dir); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if got := edgeActions(t, l); got != "1 2" {
			t.Errorf("the audit has %s", got)
		}
	})
}

// TestPositionOfEdges refuses a position that is none.
func TestPositionOfEdges(t *testing.T) {
	for _, text := range []string{"", "x", "1", "1 x\n", "-1 2\n"} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "edges"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		l := mustOpen(t, config(dir))
		if _, err := l.ReadEdgesPosition(); err == nil {
			t.Errorf("%q is a position", text)
		}
	}
}
