package hub

import (
	"context"
	"errors"
	"sync"
	"time"

	"skerry/fleet"
	"skerry/hub/httpserver"
	"skerry/syncproto"
	"skerry/syncproto/transport"
)

// httpDrain is how long running HTTP requests may take when the hub stops.
const httpDrain = 2 * time.Second

// acceptConnections accepts QUIC connections and serves each in a goroutine, until ctx ends. Then it waits for them.
func (h *Hub) acceptConnections(ctx context.Context) error {
	var serving sync.WaitGroup
	defer serving.Wait()
	for {
		conn, err := h.endpoint.Accept(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		serving.Go(func() { h.serveConnection(ctx, conn) })
	}
}

// serveConnection serves a connection by its ALPN protocol (edge, hub, Raft, enrolment) until it ends.
func (h *Hub) serveConnection(ctx context.Context, conn *transport.Conn) {
	var err error
	switch conn.ALPN() {
	case syncproto.ALPNEdge:
		if late := h.enrolment.CheckEdge(conn); late != nil {
			err = errors.Join(late, conn.CloseWith(late))
		} else {
			err = h.gateway.Serve(ctx, conn)
		}
	case syncproto.ALPNHub:
		h.peers.Serve(ctx, conn)
		_, name := conn.Peer()
		h.broker.Release(fleet.HubID(name))
	case syncproto.ALPNRaft:
		h.node.Serve(ctx, conn)
	case syncproto.ALPNEnroll:
		err = h.enrolment.Serve(ctx, conn)
	default:
		err = conn.CloseWith(fleet.Errorf(fleet.CodeVersion, "this hub does not speak %s", conn.ALPN()))
	}
	if err != nil && ctx.Err() == nil {
		h.log.Info("connection ended", "alpn", conn.ALPN(), "remote", conn.RemoteAddr().String(), "error", err)
	}
}

// serveStreams serves Raft on Config.RaftStreams until ctx ends; without them it returns at once.
func (h *Hub) serveStreams(ctx context.Context) error {
	if h.cfg.RaftStreams == nil {
		return nil
	}
	return h.node.ServeStreams(ctx, h.cfg.RaftStreams.Listen)
}

// serveHTTP serves the API until ctx ends. Then requests have httpDrain to finish.
func (h *Hub) serveHTTP(ctx context.Context) error {
	// Blocking queries and log streams end with the hub.
	server := httpserver.New(ctx, h.api, h.log.With("component", "http"))
	stopped := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), httpDrain)
		defer cancel()
		err := server.Shutdown(drain)
		if errors.Is(err, context.DeadlineExceeded) {
			err = server.Close()
		}
		stopped <- err
	})
	listener := httpserver.Listen(h.listener)
	if h.https != nil {
		listener = h.https.Listener(listener)
	}
	err := server.Serve(listener)
	if stop() { // Serve failed before ctx ended
		return err
	}
	return <-stopped
}
