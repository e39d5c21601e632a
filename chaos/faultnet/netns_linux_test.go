package faultnet_test

import (
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"skerry/chaos/faultnet"
)

// mustNetns makes a network with members at 10.77.0.2, .3 and so on.
func mustNetns(tb testing.TB, prefix string, members ...string) *faultnet.Netns {
	tb.Helper()
	n, err := faultnet.NewNetns(prefix)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := n.Close(); err != nil {
			tb.Error(err)
		}
	})
	for _, m := range members {
		if _, err := n.Add(m, faultnet.Port{Number: 9}); err != nil {
			tb.Fatal(err)
		}
	}
	return n
}

// canReach reports whether a TCP connection to a closed port is refused at once,
// as it is where packets pass in both directions.
func canReach(n *faultnet.Netns, from, addr string) bool {
	err := n.Command(from, "bash", "-c", "timeout 0.5 bash -c 'exec 3<>/dev/tcp/"+addr+"/9'").Run()
	exit, ok := err.(*exec.ExitError)
	return err == nil || ok && exit.ExitCode() != 124
}

func isRoot(tb testing.TB) bool {
	if os.Geteuid() == 0 {
		return true
	}
	tb.Log("not root: network namespaces cannot be made; the proxy's test covers the contract")
	return false
}

func TestNetnsOneWayCut(t *testing.T) {
	if !isRoot(t) {
		return
	}
	n := mustNetns(t, "skone", "a", "b")
	for _, way := range []faultnet.Impairment{{Out: faultnet.Way{Cut: true}}, {In: faultnet.Way{Cut: true}}} {
		i, err := n.Impose("a", way)
		if err != nil {
			t.Fatal(err)
		}
		if canReach(n, "a", "10.77.0.3") {
			t.Errorf("%+v: an answer came through", way)
		}
		if got := i.Tally(); got.Dropped == 0 {
			t.Errorf("%+v: nothing was dropped: %s", way, got)
		}
		i.Lift()
		if !canReach(n, "a", "10.77.0.3") {
			t.Errorf("%+v was lifted: nothing comes through", way)
		}
	}
}

func TestNetnsDelays(t *testing.T) {
	if !isRoot(t) {
		return
	}
	n := mustNetns(t, "skslow", "a", "b")
	const delay = 50 * time.Millisecond
	i, err := n.Impose("b", faultnet.Both(faultnet.Way{Delay: delay}))
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if !canReach(n, "a", "10.77.0.3") {
		t.Fatal("nothing comes through")
	}
	if took := time.Since(began); took < 2*delay {
		t.Errorf("an answer came after %s, there and back is %s", took, 2*delay)
	}
	if got := i.Tally(); got.Delayed == 0 {
		t.Errorf("nothing was delayed: %s", got)
	}
}

func TestNetnsRefusesAndMoves(t *testing.T) {
	if !isRoot(t) {
		return
	}
	n := mustNetns(t, "skref", "a", "b")
	if err := n.Refused("a"); err != nil {
		t.Errorf("at first: %v", err)
	}
	if err := n.Refuse("a"); err != nil {
		t.Fatal(err)
	}
	if n.Refused("a") == nil {
		t.Error("a packet was sent without a route")
	}
	if err := n.Accept("a"); err != nil {
		t.Fatal(err)
	}
	reached, err := n.Move("b")
	if err != nil {
		t.Fatal(err)
	}
	if canReach(n, "a", "10.77.0.3") {
		t.Error("the old address is still reached")
	}
	if !canReach(n, "a", "10.77.0.4") || reached() == 0 {
		t.Error("the new address is not reached")
	}
}

// TestNetnsRebinds has the same socket be seen from two ports, and answers reach
// it by the newer one alone.
func TestNetnsRebinds(t *testing.T) {
	if !isRoot(t) {
		return
	}
	n := mustNetns(t, "sknat", "a", "b")
	var client, server *net.UDPConn
	err := n.Within("a", func() (err error) {
		client, err = net.DialUDP("udp4", nil, &net.UDPAddr{IP: net.ParseIP("10.77.0.3"), Port: 99})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	err = n.Within("b", func() (err error) {
		server, err = net.ListenUDP("udp4", &net.UDPAddr{Port: 99})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	seen := func() *net.UDPAddr {
		t.Helper()
		if _, err := client.Write([]byte("ping")); err != nil {
			t.Fatal(err)
		}
		if err := server.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
			t.Fatal(err)
		}
		_, from, err := server.ReadFromUDP(make([]byte, 16))
		if err != nil {
			t.Fatal(err)
		}
		return from
	}
	answered := func(to *net.UDPAddr) bool {
		t.Helper()
		if _, err := server.WriteToUDP([]byte("pong"), to); err != nil {
			t.Fatal(err)
		}
		if err := client.SetReadDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		_, err := client.Read(make([]byte, 16))
		return err == nil
	}
	before := seen()
	if !answered(before) {
		t.Fatal("no answer at first")
	}
	through, err := n.Rebind("a")
	if err != nil {
		t.Fatal(err)
	}
	after := seen()
	if after.Port == before.Port {
		t.Errorf("after the rebind packets still come from port %d", after.Port)
	}
	if answered(before) {
		t.Error("an answer to the old port came through")
	}
	if !answered(after) || through() != 1 {
		t.Errorf("no answer by the new port; %d packets came through", through())
	}
}
