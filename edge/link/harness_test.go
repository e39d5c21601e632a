package link_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"skerry/edge/link"
	"skerry/fleet"
	"skerry/syncproto/transport/transporttest"
)

const (
	nodeID  = "0b5cbd2a-9d4c-4f4c-8f6e-2f3b7a1c9d10"
	hubAddr = "10.0.0.1:4647"
)

// linkTest is an edge's link with its network path and hubs.
type linkTest struct {
	tb      testing.TB
	net     *transporttest.Net
	path    *transporttest.Path
	ca      *transporttest.CA
	cluster *cluster
	journal *fakeJournal
	site    *fakeEdge
	link    *link.Link
	cfg     link.Config
	stop    func()
}

func newLinkTest(tb testing.TB) *linkTest {
	tb.Helper()
	w := &linkTest{tb: tb, net: transporttest.New(tb, 20*time.Millisecond), ca: transporttest.NewCA(tb)}
	w.path = w.net.Path(tb, "10.1.0.1", 7)
	w.cluster = &cluster{id: "cluster-1", ttl: 10 * time.Second, index: 100}
	w.journal = newFakeJournal()
	w.site = &fakeEdge{j: w.journal, hash: []byte("h1")}
	client := w.ca.Client(tb, "edge:"+nodeID)
	w.cfg = link.Config{
		Node: nodeID, Boot: "boot-1", Instance: "instance-1", Agent: "test", Hubs: []string{hubAddr},
		Journal: w.journal, Edge: w.site,
		Socket:  func(context.Context) (net.PacketConn, error) { return w.path.Socket(), nil },
		TLS:     func() (*tls.Config, error) { return client, nil },
		Resolve: func(_ context.Context, hub string) ([]net.Addr, error) { return resolve(hub) },
	}
	return w
}

func resolve(hub string) ([]net.Addr, error) {
	a, err := net.ResolveUDPAddr("udp", hub)
	if err != nil {
		return nil, err
	}
	return []net.Addr{a}, nil
}

func (w *linkTest) addHub(addr string) *hub {
	return startHub(w.tb, w.net, w.ca.Server(w.tb, "hub:"+addr), w.cluster, addr)
}

// startLink starts the link; stop or the end of the test stops it.
func (w *linkTest) startLink() {
	w.tb.Helper()
	l, err := link.New(w.cfg)
	if err != nil {
		w.tb.Fatalf("make a link: %v", err)
	}
	w.link = l
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := l.Run(ctx); err != nil {
			w.tb.Errorf("run the link: %v", err)
		}
	})
	w.stop = func() {
		cancel()
		wg.Wait()
	}
	w.tb.Cleanup(w.stop)
}

// waitUntil waits for a condition, in steps of 10 ms of virtual time.
func (w *linkTest) waitUntil(limit time.Duration, what string, done func() bool) time.Duration {
	w.tb.Helper()
	start := time.Now()
	for !done() {
		if time.Since(start) > limit {
			w.tb.Fatalf("%s: not within %s; link: %+v", what, limit, w.link.Status())
		}
		time.Sleep(10 * time.Millisecond)
	}
	return time.Since(start)
}

func (w *linkTest) isConnected() bool { return w.link.Status().State == link.StateConnected }

// isFullySynced reports whether the cluster has every row.
func (w *linkTest) isFullySynced() bool {
	last := w.journal.Head().Last
	ok := false
	w.cluster.withLock(func() { ok = w.cluster.applied == last })
	return ok && w.isConnected() && w.journal.Head().Acknowledged == last
}

// running is a row as a runner records it.
func running(n int) fleet.Transition {
	return fleet.Transition{Kind: fleet.TransitionAlloc, Alloc: "a1", ClientStatus: fleet.ClientRunning, Message: fmt.Sprint("row ", n)}
}

func noise(n int) fleet.Transition {
	return fleet.Transition{Kind: fleet.TransitionTask, Alloc: "a1", Message: fmt.Sprint("row ", n)}
}
