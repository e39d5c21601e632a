package faultnet_test

import (
	"net"
	"testing"
	"time"

	"skerry/chaos/faultnet"
)

// TestProxyImpairs holds what an impairment says that it did against what came
// through.
func TestProxyImpairs(t *testing.T) {
	const packets = 120 // a burst that socket buffers hold
	for _, tc := range []struct {
		name     string
		way      faultnet.Way
		min, max int // packets that come through
		did      func(faultnet.Tally) uint64
	}{
		{"nothing", faultnet.Way{}, packets, packets, func(t faultnet.Tally) uint64 { return t.Passed }},
		{"loss", faultnet.Way{Loss: 0.5}, packets / 4, packets * 3 / 4, func(t faultnet.Tally) uint64 { return t.Dropped }},
		{"doubled", faultnet.Way{Duplicate: 0.5}, packets * 5 / 4, packets * 7 / 4, func(t faultnet.Tally) uint64 { return t.Duplicated }},
		{"delayed", faultnet.Way{Delay: 20 * time.Millisecond, Jitter: 5 * time.Millisecond}, packets, packets, func(t faultnet.Tally) uint64 { return t.Delayed }},
		{"overtaken", faultnet.Way{Delay: 5 * time.Millisecond, Reorder: 0.2}, packets, packets, func(t faultnet.Tally) uint64 { return t.Reordered }},
		{"slow", faultnet.Way{Rate: 1 << 20}, packets, packets, func(t faultnet.Tally) uint64 { return t.Passed }},
		{"cut", faultnet.Way{Cut: true}, 0, 0, func(t faultnet.Tally) uint64 { return t.Dropped }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := faultnet.NewProxy()
			t.Cleanup(func() { _ = p.Close() })
			client, server := mustPair(t, p)
			i, err := p.Impose("edge", faultnet.Impairment{Out: tc.way})
			if err != nil {
				t.Fatal(err)
			}
			for range packets {
				if _, err := client.Write([]byte("ping")); err != nil {
					t.Fatal(err)
				}
			}
			got := 0
			for {
				if err := server.SetReadDeadline(time.Now().Add(150 * time.Millisecond)); err != nil {
					t.Fatal(err)
				}
				if _, err := server.Read(make([]byte, 16)); err != nil {
					break
				}
				got++
			}
			if got < tc.min || got > tc.max {
				t.Errorf("%d of %d packets came through, want %d to %d", got, packets, tc.min, tc.max)
			}
			if tc.did(i.Tally()) == 0 {
				t.Errorf("it says that it did nothing: %s", i.Tally())
			}
		})
	}
}

// mustPair makes a hub that listens and an edge that dials it.
func mustPair(tb testing.TB, p *faultnet.Proxy) (client, server *net.UDPConn) {
	tb.Helper()
	const port = 24647
	hub, err := p.Add("hub", faultnet.Port{Number: port})
	if err != nil {
		tb.Fatal(err)
	}
	edge, err := p.Add("edge")
	if err != nil {
		tb.Fatal(err)
	}
	if server, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.ParseIP(hub.Bind), Port: port}); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = server.Close() })
	if client, err = net.DialUDP("udp4", &net.UDPAddr{IP: net.ParseIP(edge.Bind)}, &net.UDPAddr{IP: net.ParseIP(hub.Advertise), Port: port}); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = client.Close() })
	return client, server
}
