package edge_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"skerry/edge/journal"
	"skerry/edge/local"
	"skerry/edge/neighbours"
	"skerry/fleet"
	"skerry/syncproto"
)

// mustDeliverServices leaves in a data directory what a hub's delivery of services of neighbours leaves.
func mustDeliverServices(t testing.TB, dir string, list ...syncproto.DeliveredService) {
	t.Helper()
	j, err := journal.Open(journal.Config{Path: filepath.Join(dir, "journal.db"), BootID: boot1, Mono: func() time.Duration { return time.Minute }})
	if err != nil {
		t.Fatal(err)
	}
	k, err := neighbours.Open(neighbours.Config{Journal: j, Dial: new(net.Dialer).DialContext, Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.Accept(t.Context(), syncproto.Request{Kind: syncproto.RequestServices, Services: list, Exact: true}); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
}

// mustListen serves TCP at an address until stop is called.
func mustListen(t *testing.T, address string) (port int, stop func()) {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
		}
	}()
	return l.Addr().(*net.TCPAddr).Port, func() { _ = l.Close(); <-ended }
}

// TestServicesOfNeighboursWithoutALink: after a reboot without a link an edge finds the service of its neighbour by the local
// API, by DNS and for templates. When the neighbour dies, it finds out and leaves the service out.
func TestServicesOfNeighboursWithoutALink(t *testing.T) {
	t.Parallel()
	dir := mustEnrolled(t)
	mustCheckedService(t, dir)
	// No other test listens on this address, and so nobody takes over the port of a neighbour that has died.
	const neighbour = "127.0.0.2"
	port, stopNeighbour := mustListen(t, neighbour+":0")
	defer stopNeighbour()
	mustDeliverServices(t, dir,
		syncproto.DeliveredService{
			ID: "till-2", Name: "till", Namespace: fleet.DefaultNamespace, Node: "n2", NodeName: "edge-2", Alloc: "a2", Job: "shop",
			Address: neighbour, Port: port, TCP: true, Tags: []string{"main"},
		},
		syncproto.DeliveredService{ID: "other", Name: "till", Namespace: "bank", Node: "n2", NodeName: "edge-2", Address: neighbour, Port: port})
	cfg := config(dir, nil, &logBuffer{})
	cfg.BootID, cfg.DNS = boot2, "127.0.0.1:0"
	l := mustStart(t, cfg)
	resolver := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, l.DNSAddr())
	}}
	await := func(what string, found bool, shown func(local.Service) bool) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			list, err := l.Client.Services(ctx, fleet.DefaultNamespace, "till")
			live, liveErr := l.Edge.Services(ctx, fleet.DefaultNamespace, "till")
			if err = errors.Join(err, liveErr); err != nil {
				t.Fatal(err)
			}
			_, srv, dnsErr := resolver.LookupSRV(ctx, "", "", "till.service.skerry.")
			var none *net.DNSError
			inDNS := len(srv) == 1 && int(srv[0].Port) == port
			gone := errors.As(dnsErr, &none) && none.IsNotFound && len(live) == 0
			if len(list) == 1 && shown(list[0]) && (found && inDNS && len(live) == 1 || !found && gone) {
				return
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				t.Fatalf("%s: the local API says %+v; %d are live; DNS %v, %v", what, list, len(live), srv, dnsErr)
			}
		}
	}
	await("the neighbour answers", true, func(s local.Service) bool {
		return s.Neighbour == "edge-2" && s.Critical == "" && !s.Untried && s.CopyAge > 0 && s.AllocID == "a2"
	})
	all, err := l.Client.Services(t.Context(), "", "")
	if err != nil || len(all) != 3 {
		t.Errorf("all services: %+v, %v", all, err)
	}
	stopNeighbour()
	await("the neighbour has died", false, func(s local.Service) bool {
		return strings.Contains(s.Critical, "refused") && s.Since != nil && time.Since(*s.Since) < time.Hour
	})
}
