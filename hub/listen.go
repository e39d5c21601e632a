package hub

import (
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"skerry/fleet"
	"skerry/hub/state"
	"skerry/syncproto/transport"
)

// listenHTTP opens the HTTP listener, unless Config has one.
func (h *Hub) listenHTTP() error {
	h.listener = h.cfg.Listener
	if h.listener == nil {
		addr := net.JoinHostPort(h.cfg.HTTPBind, strconv.Itoa(h.cfg.HTTPPort))
		l, err := net.Listen("tcp", addr)
		if err != nil {
			return bindError("HTTP", addr, err)
		}
		h.listener = l
	}
	return nil
}

// openEndpoint opens the QUIC endpoint. It refuses connections until serverTLS is set, which is once the hub has an
// identity.
func (h *Hub) openEndpoint(serverTLS *atomic.Pointer[func([]string) (*tls.Config, error)]) error {
	conn := h.cfg.Packets
	if conn == nil {
		addr := net.JoinHostPort(h.cfg.Bind, strconv.Itoa(h.cfg.QUICPort))
		c, err := net.ListenPacket("udp", addr)
		if err != nil {
			return bindError("QUIC", addr, err)
		}
		conn = c
	}
	key, err := resetKey(h.dir)
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	h.endpoint, err = transport.New(transport.Config{
		Conn: conn,
		TLS: func(alpn []string) (*tls.Config, error) {
			if f := serverTLS.Load(); f != nil {
				return (*f)(alpn)
			}
			return nil, fleet.Errorf(fleet.CodeUnavailable, "this hub has no identity yet")
		},
		IdleTimeout: quicIdleTimeout,
		Exempt:      h.isHub,
		ResetKey:    key,
		Log:         h.log.With("component", "transport"),
	})
	return err
}

// isHub reports whether addr is another hub's QUIC address, from which hubs also dial. Limits for connections of
// edges do not apply to hubs.
func (h *Hub) isHub(addr net.Addr) bool {
	from := addr.String()
	return slices.ContainsFunc(h.store.View().Hubs(), func(a state.HubAddr) bool { return a.QUIC == from })
}

// bindError returns the error for a failure to listen for what ("HTTP", "QUIC") on addr.
func bindError(what, addr string, err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return fleet.Errorf(fleet.CodeConflict, "listen for %s on %s: the port is in use", what, addr).
			WithHint("is another hub running? Choose another port with --%s-port", strings.ToLower(what))
	}
	return fleet.Errorf(fleet.CodeInvalid, "listen for %s on %s: %w", what, addr, err)
}
