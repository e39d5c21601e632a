package local

import (
	"context"
	"net"
)

// peerKey is the key of a context's peer.
type peerKey struct{}

// Peer is the unix user at the other end of a connection. The kernel says who that is.
type Peer struct {
	User string // name; "": not known
	UID  string // number; "": not known
}

// PeerOf returns the name of the unix user who sent the request with this context, or else the number; "": not known.
func PeerOf(ctx context.Context) string {
	p := PeerUser(ctx)
	if p.User == "" && p.UID != "" {
		return "uid " + p.UID
	}
	return p.User
}

// PeerUser returns the unix user who sent the request with this context.
func PeerUser(ctx context.Context) Peer {
	p, _ := ctx.Value(peerKey{}).(Peer)
	return p
}

// withPeer returns a context with the unix user at the other end of a connection.
func withPeer(ctx context.Context, c net.Conn) context.Context {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return ctx
	}
	if p := peerUser(u); p != (Peer{}) {
		return context.WithValue(ctx, peerKey{}, p)
	}
	return ctx
}
