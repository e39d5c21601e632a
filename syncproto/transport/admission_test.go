package transport_test

import (
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"skerry/fleet"
	"skerry/syncproto/transport"
)

// onward lets packets out, and none in: what it dials stays in the making.
type onward struct {
	net.PacketConn
	open atomic.Bool
}

func (o *onward) ReadFrom(b []byte) (int, net.Addr, error) {
	for {
		n, from, err := o.PacketConn.ReadFrom(b)
		if err != nil || o.open.Load() {
			return n, from, err
		}
	}
}

// A hub that has enough connections in the making refuses more, at once, and takes
// them again when there are fewer.
func TestMoreHandshakesThanTheBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var exempt atomic.Bool
		w := mustWorld(t, transport.Config{MaxHandshakes: 2, Exempt: func(net.Addr) bool { return exempt.Load() }})
		w.echo(t, nil)
		dial := func(e *transport.Endpoint) error {
			_, err := e.Dial(t.Context(), transport.DialConfig{Addr: hubAddr, ALPN: alpn, TLS: w.ca.Client(t, "edge:n1"), HandshakeTimeout: 5 * time.Second})
			return err
		}
		// The second one has to prove its address before it counts: it hears that much.
		failed := make(chan error, 2)
		for i, hears := range []time.Duration{0, 60 * time.Millisecond} {
			deaf := &onward{PacketConn: w.net.Path(t, fmt.Sprintf("10.2.0.%d", i+1), 1).Socket()}
			deaf.open.Store(true)
			time.AfterFunc(hears, func() { deaf.open.Store(false) })
			e := mustEndpoint(t, transport.Config{Conn: deaf})
			go func() { failed <- dial(e) }()
			time.Sleep(30 * time.Millisecond)
		}
		time.Sleep(200 * time.Millisecond)
		start := time.Now()
		if err := dial(w.edge); fleet.CodeOf(err) != fleet.CodeUnavailable {
			t.Errorf("dial a hub that is busy: %v, want unavailable", err)
		}
		if took := time.Since(start); took > 200*time.Millisecond {
			t.Errorf("refused after %s, want at once", took)
		}
		exempt.Store(true)
		if err := dial(w.edge); err != nil {
			t.Errorf("dial as one that is not counted: %v", err)
		}
		exempt.Store(false)
		for range 2 {
			if err := <-failed; fleet.CodeOf(err) != fleet.CodeTimeout {
				t.Errorf("dial without hearing anything: %v, want timeout", err)
			}
		}
		time.Sleep(20 * time.Second) // the hub has given them up, too
		for range 10 {
			if err := dial(w.edge); err != nil { // those that are made do not count
				t.Errorf("dial a hub that is free again: %v", err)
			}
		}
	})
}
