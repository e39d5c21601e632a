package edge_test

import (
	"context"
	"net"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"skerry/edge/journal"
	"skerry/fleet"
	"skerry/syncproto"
	"skerry/syncproto/identity"
	"skerry/syncproto/transport/transporttest"
)

// TestCommitsOfANewEdge counts the transactions with which an edge joins a cluster, until its node is ready.
func TestCommitsOfANewEdge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := mustAuthority(t)
		network := transporttest.New(t, 20*time.Millisecond)
		path := network.Path(t, "10.1.0.1", 7)
		mustServeBeats(t, network, ca, &heartbeatHub{
			ttl: 10 * time.Second, after: time.Second, desired: syncproto.Desired{Index: 1, Full: true, Cluster: "c"}, enrol: ca.acceptEnrolment(t, hubAddr),
		})
		cfg := unenrolledConfig(t, identity.NewToken(ca.cert.Raw), hubAddr)
		mustWriteFile(t, filepath.Join(cfg.DataDir, "identity", "node-id"), []byte(node)) // the hub knows this node
		cfg.ListenPacket = func(context.Context) (net.PacketConn, error) { return path.Socket(), nil }
		cfg.ListenLocal = func(string) (net.Listener, error) { return silentListener{make(chan struct{})}, nil }
		var commits atomic.Int64
		cfg.Step = func(label string) error {
			if label == journal.StepCommit {
				commits.Add(1)
			}
			return nil
		}
		e := mustStart(t, cfg)
		time.Sleep(5 * time.Second)
		link, rows := e.SyncStatus()
		if link.Status != string(fleet.NodeReady) || link.Session != 1 || rows.Unacknowledged != 0 || rows.DesiredIndex != 1 {
			t.Fatalf("link %+v, journal %+v: it has not joined", link, rows)
		}
		// The start of the agent; the enrolment; the number of the session; the session, with its first
		// heartbeat; the delivery.
		if n := commits.Load(); n != 5 {
			t.Errorf("%d transactions until the node was ready, want 5", n)
		}
	})
}
