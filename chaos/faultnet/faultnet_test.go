package faultnet_test

import (
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"skerry/chaos/faultnet"
)

// exchange sends a packet from one member to another and reports whether its
// echo came back.
func exchange(tb testing.TB, from *net.UDPConn, to string) bool {
	tb.Helper()
	addr, err := net.ResolveUDPAddr("udp4", to)
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := from.WriteTo([]byte("ping"), addr); err != nil {
		tb.Fatal(err)
	}
	if err := from.SetReadDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
		tb.Fatal(err)
	}
	_, _, err = from.ReadFromUDP(make([]byte, 16))
	return err == nil
}

func TestProxyCutsAndHeals(t *testing.T) {
	p := faultnet.NewProxy()
	t.Cleanup(func() { _ = p.Close() })
	const port = 24647
	hub, err := p.Add("hub", faultnet.Port{Number: port})
	if err != nil {
		t.Fatal(err)
	}
	edge, err := p.Add("edge")
	if err != nil {
		t.Fatal(err)
	}
	server, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.ParseIP(hub.Bind), Port: port})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 16)
		for {
			n, from, err := server.ReadFromUDP(buf)
			if err != nil {
				return
			}
			_, _ = server.WriteToUDP(buf[:n], from)
		}
	}()
	t.Cleanup(func() { _ = server.Close(); <-done })
	client, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.ParseIP(edge.Bind)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })

	target := net.JoinHostPort(hub.Advertise, "24647")
	cuts := map[string]*faultnet.Imposed{}
	cut := func(member string) func() error {
		return func() (err error) { cuts[member], err = p.Impose(member, faultnet.Dead()); return err }
	}
	heal := func(member string) func() error { return func() error { cuts[member].Lift(); return nil } }
	steps := []struct {
		name   string
		change func() error
		passes bool
	}{
		{"at first", func() error { return nil }, true},
		{"edge cut", cut("edge"), false},
		{"edge healed", heal("edge"), true},
		{"hub cut", cut("hub"), false},
		{"hub healed", heal("hub"), true},
	}
	for _, s := range steps {
		if err := s.change(); err != nil {
			t.Fatal(err)
		}
		if got := exchange(t, client, target); got != s.passes {
			t.Errorf("%s: packet came through = %v, want %v", s.name, got, s.passes)
		}
	}
	if _, err := p.Impose("nobody", faultnet.Dead()); err == nil {
		t.Error("cutting off a member that does not exist succeeded")
	}
}

func TestNetnsCutsAndHeals(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Log("not root: network namespaces cannot be made; the proxy's test covers the contract")
		return
	}
	n, err := faultnet.NewNetns("sktest")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, m := range []string{"a", "b"} {
		if _, err := n.Add(m); err != nil {
			t.Fatal(err)
		}
	}
	place, err := n.Add("c")
	if err != nil {
		t.Fatal(err)
	}
	reach := func() bool {
		// A TCP connection to a closed port is refused at once where packets pass.
		cmd := n.Command("a", "bash", "-c", "timeout 0.5 bash -c 'exec 3<>/dev/tcp/"+place.Advertise+"/9'")
		err := cmd.Run()
		exit, ok := err.(*exec.ExitError)
		return err == nil || ok && exit.ExitCode() != 124
	}
	if !reach() {
		t.Error("at first: no packet came through")
	}
	cut, err := n.Impose("c", faultnet.Dead())
	if err != nil {
		t.Fatal(err)
	}
	if reach() {
		t.Error("cut: a packet came through")
	}
	cut.Lift()
	if !reach() {
		t.Error("healed: no packet came through")
	}
}
