package local

import (
	"context"
	"net"
)

// peerKey is the key of a context's peer.
type peerKey struct{}

// PeerOf returns the unix user who sent the request with this context; "": not known.
func PeerOf(ctx context.Context) string {
	who, _ := ctx.Value(peerKey{}).(string)
	return who
}

// withPeer returns a context with the unix user at the other end of a connection. The kernel says who that is.
func withPeer(ctx context.Context, c net.Conn) context.Context {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return ctx
	}
	if who := peerUser(u); who != "" {
		return context.WithValue(ctx, peerKey{}, who)
	}
	return ctx
}
