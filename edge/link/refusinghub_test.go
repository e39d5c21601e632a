package link_test

import (
	"testing"
	"testing/synctest"
	"time"

	"skerry/fleet"
	"skerry/syncproto"
)

// A hub without a quorum still answers the dialer, and it is the one that worked last: an edge that it
// turns away connects to another one.
func TestAHubThatTurnsTheEdgeAwayIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLinkTest(t)
		hubs := map[string]*hub{}
		w.cfg.Hubs = []string{hubAddr, "10.0.0.2:4647"}
		for _, addr := range w.cfg.Hubs {
			hubs[addr] = w.addHub(addr)
		}
		w.startLink()
		w.waitUntil(5*time.Second, "connect", w.isConnected)
		for range 4 { // there and back
			from := w.link.Status().Hub
			w.cluster.withLock(func() { w.cluster.alone = from })
			hubs[from].runInSession(func(p *syncproto.HubSession) []syncproto.Output {
				return p.Refuse(syncproto.Refused{Code: fleet.CodeUnavailable, Message: "no leader"})
			})
			w.waitUntil(5*time.Second, "be at the other hub", func() bool { return w.isConnected() && w.link.Status().Hub != from })
		}
	})
}

// If no other hub answers, it is tried again, also in rounds that dial few hubs.
func TestAHubThatTurnedTheEdgeAwayIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLinkTest(t)
		w.cfg.Hubs = []string{hubAddr, "10.0.0.2:4647", "10.0.0.3:4647"}
		w.addHub(hubAddr) // the others are down
		w.cluster.alone = hubAddr
		w.startLink()
		time.Sleep(30 * time.Minute)
		w.cluster.withLock(func() { w.cluster.alone = "" })
		w.waitUntil(3*time.Minute, "connect", w.isConnected)
	})
}
