package local

import (
	"context"
	"net"

	"skerry/fleet"
)

// peerKey is the key of a context's peer.
type peerKey struct{}

// Peer is who is at the other end of a connection. The kernel says which unix user that is.
type Peer struct {
	User string // name; "": not known
	UID  string // number; "": not known
	// Person and SiteCode are the name and the id of the site code that was given; "": none was.
	Person   string
	SiteCode string
}

// PeerOf returns who sent the request with this context: the person of the site code, or else the name of the unix user, or
// the number; "": not known.
func PeerOf(ctx context.Context) string {
	p := PeerUser(ctx)
	if p.Person != "" {
		return fleet.WithSiteCode(p.Person, p.SiteCode)
	}
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

// WithPerson returns a context whose peer has given the site code of a person.
func WithPerson(ctx context.Context, person, code string) context.Context {
	p := PeerUser(ctx)
	p.Person, p.SiteCode = person, code
	return context.WithValue(ctx, peerKey{}, p)
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
