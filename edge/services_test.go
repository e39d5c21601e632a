package edge_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"skerry/edge"
	"skerry/fleet"
)

// Neighbours find a service by the local API and by DNS with no hub in reach, while its check does not fail.
func TestServicesWithoutALink(t *testing.T) {
	dir := mustEnrolled(t)
	mustCheckedService(t, dir)
	machine := &movingDescriber{changed: make(chan struct{})}
	cfg := config(dir, nil, &logBuffer{})
	cfg.DNS = "127.0.0.1:0"
	cfg.Describe = func(n fleet.Node) (edge.Describer, error) {
		machine.node = n
		machine.changeAddress("192.0.2.5")
		return machine, nil
	}
	var broken atomic.Bool
	cfg.DialCheck = func(context.Context, string, string) (net.Conn, error) {
		if broken.Load() {
			return nil, errors.New("nobody listens")
		}
		ours, theirs := net.Pipe()
		return ours, theirs.Close()
	}
	l := mustStart(t, cfg)
	resolver := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, l.DNSAddr())
	}}
	await := func(what string, found bool) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			live, err := l.Edge.Services(ctx, fleet.DefaultNamespace, "web")
			if err != nil {
				t.Fatal(err)
			}
			addrs, dnsErr := resolver.LookupHost(ctx, "web.service.skerry.")
			if found && len(live) == 1 && live[0].Port == 8080 && len(addrs) == 1 && addrs[0] == "192.0.2.5" {
				return
			}
			var none *net.DNSError
			if !found && len(live) == 0 && errors.As(dnsErr, &none) && none.IsNotFound {
				return
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				t.Fatalf("%s: services %v, DNS %v, %v", what, live, addrs, dnsErr)
			}
		}
	}
	await("it runs", true)
	_, srv, err := resolver.LookupSRV(t.Context(), "", "", "web.service.skerry.")
	if err != nil || len(srv) != 1 || srv[0].Port != 8080 || srv[0].Target != "c0000205.addr.skerry." {
		t.Errorf("SRV: %+v, %v", srv, err)
	}
	broken.Store(true)
	await("its check fails", false)
	list, err := l.Client.Services(t.Context(), "", "")
	if err != nil || len(list) != 1 || list[0].Failing != "alive" {
		t.Errorf("the local API says %+v, %v", list, err)
	}
	results, err := l.Client.Checks(t.Context(), shop)
	if err != nil || len(results) != 1 || results[0].Status != "failure" {
		t.Errorf("checks: %+v, %v", results, err)
	}
	broken.Store(false)
	await("its check passes again", true)
	if err := l.stop(); err != nil {
		t.Fatal(err)
	}
	cfg.BootID = boot2 // the machine reboots without a link
	l = mustStart(t, cfg)
	await("after a reboot", true)
}
