package fabric_test

import (
	"fmt"
	"net"
	"testing"
	"time"

	"skerry/chaos/fabric"
)

// behindNAT runs a test with a host e behind a NAT at 203.0.113.1, and a hub h.
func behindNAT(t *testing.T, idle time.Duration, f func(t *testing.T, n *fabric.Net, e, h *fabric.Host)) {
	t.Helper()
	inBubble(t, func(t *testing.T, n *fabric.Net, _, h *fabric.Host) {
		e := n.Host("e", "192.168.0.2")
		e.BehindNAT("203.0.113.1", idle)
		f(t, n, e, h)
	})
}

// publicAddr sends a packet and returns where it came from.
func publicAddr(t *testing.T, from, to net.PacketConn) *net.UDPAddr {
	t.Helper()
	mustWriteTo(t, from, []byte("where am I?"), to.LocalAddr())
	_, source := mustReadFrom(t, to)
	return source.(*net.UDPAddr)
}

func TestNATTranslates(t *testing.T) {
	behindNAT(t, 0, func(t *testing.T, n *fabric.Net, e, h *fabric.Host) {
		hub, hub2 := mustPacketConn(t, h, 1), mustPacketConn(t, n.Host("h2", "10.0.0.3"), 1)
		first, second := mustPacketConn(t, e, 5000), mustPacketConn(t, e, 5001)
		a := publicAddr(t, first, hub)
		mustBe(t, "local address", first.LocalAddr().String(), "192.168.0.2:5000")
		mustBe(t, "public address", a.IP.String(), "203.0.113.1")
		mustBe(t, "address of the host", e.IP(), "203.0.113.1")
		mustBe(t, "public address, seen by another", publicAddr(t, first, hub2).String(), a.String())
		if b := publicAddr(t, second, hub); b.Port == a.Port {
			t.Errorf("two sockets have one public port, %d", b.Port)
		}
		mustWriteTo(t, hub, []byte("down"), a)
		mustBe(t, "received from the public port", fmt.Sprint(receivedPackets(t, first)), "[down]")

		mustWriteTo(t, hub, []byte("private"), first.LocalAddr())
		mustBe(t, "received at the private address", len(receivedPackets(t, first)), 0)
		mustBe(t, "strays", n.Bytes("b").Strays, 1)

		// Another one behind a NAT has the same private address.
		e2 := n.Host("e2", "192.168.0.2")
		e2.BehindNAT("203.0.113.2", 0)
		mustBe(t, "another NAT", publicAddr(t, mustPacketConn(t, e2, 5000), hub).IP.String(), "203.0.113.2")
		e3 := n.Host("e3", "192.168.0.2")
		e3.BehindNAT("203.0.113.1", 0)
		if b := publicAddr(t, mustPacketConn(t, e3, 5000), hub); b.Port == a.Port || !b.IP.Equal(a.IP) {
			t.Errorf("a shared NAT gave %s", b)
		}
	})
}

func TestRebind(t *testing.T) {
	behindNAT(t, 0, func(t *testing.T, n *fabric.Net, e, h *fabric.Host) {
		hub, c, quiet := mustPacketConn(t, h, 1), mustPacketConn(t, e, 0), mustPacketConn(t, e, 0)
		before := publicAddr(t, c, hub)
		mustWriteTo(t, hub, []byte("under way"), before)
		f := e.Rebind()
		mustWriteTo(t, hub, []byte("to the former port"), before)
		mustBe(t, "received", len(receivedPackets(t, c)), 0)
		mustBe(t, "lost", f.Count(), fabric.Count{Dropped: 2})
		after := publicAddr(t, c, hub)
		if after.Port == before.Port || !after.IP.Equal(before.IP) {
			t.Errorf("the public address was %s, and is %s", before, after)
		}
		mustWriteTo(t, hub, []byte("to the new port"), after)
		mustBe(t, "received", fmt.Sprint(receivedPackets(t, c)), "[to the new port]")
		publicAddr(t, c, hub)
		mustBe(t, "lost, and sent from another address", f.Count(), fabric.Count{Dropped: 2, Readdressed: 1})
		mustWriteTo(t, hub, []byte("to the former port"), before)
		mustBe(t, "one more", f.Count().Dropped, 3)
		publicAddr(t, quiet, hub)
	})
}

func TestNATForgetsTheSilent(t *testing.T) {
	behindNAT(t, 2*time.Minute, func(t *testing.T, n *fabric.Net, e, h *fabric.Host) {
		hub, c := mustPacketConn(t, h, 1), mustPacketConn(t, e, 0)
		before := publicAddr(t, c, hub)
		for range 5 { // either direction keeps it
			time.Sleep(90 * time.Second)
			mustBe(t, "port", publicAddr(t, c, hub).Port, before.Port)
			time.Sleep(90 * time.Second)
			mustWriteTo(t, hub, nil, before)
			mustReadFrom(t, c)
		}
		time.Sleep(121 * time.Second)
		mustWriteTo(t, hub, nil, before)
		mustBe(t, "received", len(receivedPackets(t, c)), 0)
		if after := publicAddr(t, c, hub); after.Port == before.Port {
			t.Errorf("the NAT still knows port %d", after.Port)
		}
	})
}

func TestMove(t *testing.T) {
	t.Run("behind a NAT", func(t *testing.T) {
		behindNAT(t, 0, func(t *testing.T, n *fabric.Net, e, h *fabric.Host) {
			x, y := mustPacketConn(t, e, 1), mustPacketConn(t, h, 1)
			before := publicAddr(t, x, y)
			f := e.Move("198.51.100.1")
			mustWriteTo(t, y, []byte("to the former address"), before)
			after := publicAddr(t, x, y)
			mustBe(t, "source", after.IP.String(), "198.51.100.1")
			mustWriteTo(t, y, []byte("back"), after)
			mustBe(t, "received", fmt.Sprint(receivedPackets(t, x)), "[back]")
			mustBe(t, "count", f.Count(), fabric.Count{Dropped: 1, Readdressed: 1})
		})
	})
}

// TestFaultsSpareWhatAHostTellsItself: its own packets do not leave it.
func TestFaultsSpareWhatAHostTellsItself(t *testing.T) {
	inBubble(t, func(t *testing.T, n *fabric.Net, a, b *fabric.Host) {
		x, y, z := mustPacketConn(t, a, 1), mustPacketConn(t, a, 2), mustPacketConn(t, b, 3)
		cut := n.Cut(fabric.Everyone, fabric.Everyone, fabric.Both, fabric.Silent)
		mustWriteTo(t, y, []byte("in a cut"), x.LocalAddr())
		cut.Heal()
		mustWriteTo(t, z, []byte("from b"), x.LocalAddr())
		mustBe(t, "received", fmt.Sprint(receivedPackets(t, x)), "[in a cut from b]")
		mustBe(t, "cut", cut.Hits(), 0)
	})
}

func TestMistakesPanic(t *testing.T) {
	inBubble(t, func(t *testing.T, n *fabric.Net, a, b *fabric.Host) {
		for what, f := range map[string]func(){
			"a name twice":           func() { n.Host("a", "10.0.0.9") },
			"an address twice":       func() { n.Host("c", "10.0.0.1") },
			"no address":             func() { n.Host("c", "hub") },
			"a NAT at a host":        func() { a.BehindNAT("10.0.0.2", 0) },
			"a rebind without a NAT": func() { a.Rebind() },
			"a move to a host":       func() { a.Move("10.0.0.2") },
		} {
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%s: no panic", what)
					}
				}()
				f()
			}()
		}
		publicAddr(t, mustPacketConn(t, a, 0), mustPacketConn(t, b, 0)) // no lock is held
	})
}
