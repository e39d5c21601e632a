package hub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"time"

	"skerry/fleet"
	"skerry/hub/api"
	"skerry/hub/consensus"
	"skerry/hub/liveness"
	"skerry/hub/members"
	"skerry/syncproto/identity"
)

// Default ports, as people know them. A port of 0 in Config lets the system
// choose one.
const (
	DefaultHTTPPort   = 4646
	DefaultQUICPort   = 4647
	DefaultGossipPort = 4648
)

// minCertValidity leaves time to renew a certificate before it ends.
const minCertValidity = time.Minute

// Config of a hub. Its zero values are usable but for DataDir, and for one of
// Bootstrap or Join on the first start; a data directory that has an identity
// needs neither, and they are ignored there.
type Config struct {
	// DataDir holds all of the hub's state. One process at a time.
	DataDir string
	// Bootstrap makes a new cluster with this hub as its first voter.
	Bootstrap bool
	// Join lists QUIC addresses (host:port) of hubs to join; each is tried in turn.
	Join []string
	// Token is a join token, or TokenFile the file that holds one.
	Token     string
	TokenFile string

	Name   string // unique in the region; "": the machine's host name
	Region string // "": global

	// Bind is the address to listen on; "": 127.0.0.1. Advertise is the address
	// that others reach this hub at; "": Bind, or the first address of the machine
	// that is not loopback where Bind is unspecified.
	Bind       string
	Advertise  string
	HTTPPort   int
	QUICPort   int
	GossipPort int
	// HTTPBind is where the HTTP API listens; "": Bind. It has no access control
	// yet: an address other than loopback is refused unless HTTPInsecure is set.
	HTTPBind     string
	HTTPInsecure bool
	// HTTPHosts are names and addresses that HTTP requests may be for, beside loopback
	// and the hub's own addresses: those of a proxy, or of this machine in the DNS.
	HTTPHosts []string
	// EdgeHealth says what is wrong with the edge that runs in the same process, for
	// /v1/agent/health; nil: there is none.
	EdgeHealth func() error
	// Debug serves /debug/pprof with the API, to clients on this machine alone.
	Debug bool

	// Workers is how many schedulers run on this hub. 0: one a processor, at least 2.
	Workers int

	// Heartbeat: a MinTTL or Grace of 0 is 10 s, a MaxRate of 0 is 500 beats a second.
	Heartbeat Heartbeat
	Raft      Raft
	// PeerIdle is after how long a hub that went silent is given up: a call to it waits
	// for as long. 0: 2.5 s.
	PeerIdle time.Duration
	// GossipProbe is how often each hub asks another one whether it is alive. 0: 1 s.
	GossipProbe time.Duration

	// EdgeCertValidity is how long the certificates that this hub gives to edges are
	// valid; edges renew them by themselves. 0: 365 days. At least a minute.
	EdgeCertValidity time.Duration
	// EdgeCertGrace is how long past its end an edge's certificate is still taken. An
	// edge that was away for longer needs a join token again. 0: 365 days.
	EdgeCertGrace time.Duration

	// Packets replaces the UDP socket of QUIC, Listener the HTTP listener, Gossip the
	// sockets of gossip, and RaftStreams QUIC where Raft uses it (tests, simulations).
	// The hub owns them from Open on, also where Open fails.
	Packets  net.PacketConn
	Listener net.Listener
	Gossip   *GossipNetwork
	// RaftStreams are those of all hubs of the cluster, or of none.
	RaftStreams *RaftStreams
	// Applied is told of every command that this hub applied, in order, and must not
	// block. DiskStep is called before each step of the Raft log's disk protocol; an
	// error is what the step fails with. Both are for who watches or tests a hub; nil:
	// nothing.
	Applied  func(Applied)
	DiskStep func(label string) error

	// Now is the wall clock, nil: time.Now. Certificates and join tokens go by it.
	Now func() time.Time

	Version string // of this build, shown
	Log     *slog.Logger
}

// GossipNetwork is what gossip goes over in place of sockets.
type GossipNetwork = members.Network

// RaftStreams is what Raft goes over in place of QUIC. Its addresses are those of QUIC.
type RaftStreams struct {
	Listen net.Listener
	Dial   func(ctx context.Context, addr string) (net.Conn, error)
}

// Applied is a command that was applied, and what came of it.
type Applied = consensus.Applied

// Heartbeat says how often edges beat, and for how long a hub waits for the next beat.
type Heartbeat = liveness.Policy

// Raft tunes consensus. Zero values are those of package consensus.
type Raft struct {
	HeartbeatTimeout  time.Duration
	ElectionTimeout   time.Duration
	LeaderLease       time.Duration
	CommitTimeout     time.Duration // until followers hear of a commit on which nothing follows
	SnapshotInterval  time.Duration
	SnapshotThreshold uint64 // entries since the last snapshot
	TrailingLogs      uint64 // entries kept behind a snapshot
	SegmentBytes      int    // of the log's files
}

var validName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,62}[A-Za-z0-9])?$`)

// withDefaults returns c with every default filled in, or all that is wrong with
// it.
func (c Config) withDefaults() (Config, error) {
	var errs []error
	if c.Name == "" {
		host, err := os.Hostname()
		if err != nil {
			errs = append(errs, fleet.Errorf(fleet.CodeInvalid, "find a name for the hub: %v", err))
		}
		c.Name = host
	}
	c.Region = cmp.Or(c.Region, "global")
	c.Bind = cmp.Or(c.Bind, "127.0.0.1")
	c.HTTPBind = cmp.Or(c.HTTPBind, c.Bind)
	c.Heartbeat.MinTTL = cmp.Or(c.Heartbeat.MinTTL, 10*time.Second)
	c.Heartbeat.Grace = cmp.Or(c.Heartbeat.Grace, 10*time.Second)
	c.Heartbeat.MaxRate = cmp.Or(c.Heartbeat.MaxRate, 500)
	c.PeerIdle = cmp.Or(c.PeerIdle, peerIdleTimeout)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c, errors.Join(append(errs, c.findErrors()...)...)
}

// findErrors lists all that is wrong with a configuration that has its defaults.
func (c Config) findErrors() (errs []error) {
	invalid := func(format string, args ...any) {
		errs = append(errs, fleet.Errorf(fleet.CodeInvalid, format, args...))
	}
	if c.DataDir == "" {
		invalid("a hub needs a data directory")
	}
	if !validName.MatchString(c.Name) {
		invalid("hub name %q: letters, digits, '.', '_' and '-' only, at most 64", c.Name)
	}
	if c.Bootstrap && len(c.Join) > 0 {
		invalid("a hub either bootstraps a cluster or joins one, not both")
	}
	for _, addr := range c.Join {
		if host, port, err := net.SplitHostPort(addr); err != nil || host == "" || port == "" {
			errs = append(errs, fleet.Errorf(fleet.CodeInvalid, "the hub to join %q is not HOST:PORT", addr).
				WithHint("the port is that of QUIC, usually %d", DefaultQUICPort))
		}
	}
	if c.EdgeCertValidity != 0 && c.EdgeCertValidity < minCertValidity {
		invalid("validity of edges' certificates %s: less than %s", c.EdgeCertValidity, minCertValidity)
	}
	if c.EdgeCertGrace < 0 {
		invalid("grace of edges' certificates %s: negative", c.EdgeCertGrace)
	}
	for _, p := range []int{c.HTTPPort, c.QUICPort, c.GossipPort} {
		if p < 0 || p > 65535 {
			invalid("port %d: not between 0 and 65535", p)
		}
	}
	if _, err := netip.ParseAddr(c.Bind); err != nil {
		invalid("bind address %q: not an IP address", c.Bind)
	}
	if bind, err := netip.ParseAddr(c.HTTPBind); err != nil {
		invalid("HTTP bind address %q: not an IP address", c.HTTPBind)
	} else if !bind.IsLoopback() && !c.HTTPInsecure {
		errs = append(errs, fleet.Errorf(fleet.CodeForbidden,
			"refuse to serve HTTP without access control on %s", c.HTTPBind).
			WithHint("serve it on loopback with --http-bind 127.0.0.1, or say that the network is trusted with --http-insecure"))
	}
	for _, host := range c.HTTPHosts {
		if !api.ValidHostName(host) {
			errs = append(errs, fleet.Errorf(fleet.CodeInvalid, "HTTP host %q: not a host name or an IP address", host).
				WithHint("give the name alone, without a scheme and without a port"))
		}
	}
	if c.Advertise != "" {
		if a, err := netip.ParseAddr(c.Advertise); err != nil || a.IsUnspecified() {
			invalid("advertise address %q: not an IP address that others can reach", c.Advertise)
		}
	}
	return errs
}

// advertisedAddr returns the address that others reach a hub at which listens on
// bind.
func (c Config) advertisedAddr() (string, error) {
	if c.Advertise != "" {
		return c.Advertise, nil
	}
	if a, err := netip.ParseAddr(c.Bind); err == nil && !a.IsUnspecified() {
		return c.Bind, nil
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return "", fmt.Errorf("find an address to advertise: %w", err)
	}
	for _, addr := range addrs {
		if n, ok := addr.(*net.IPNet); ok && n.IP.IsGlobalUnicast() {
			return n.IP.String(), nil
		}
	}
	return "", fleet.Errorf(fleet.CodeInvalid, "find an address to advertise: this machine has only loopback addresses").
		WithHint("name it with --advertise")
}

// joinToken reads the token that the configuration names.
func (c Config) joinToken() (identity.Token, error) {
	text := c.Token
	if text == "" && c.TokenFile != "" {
		b, err := os.ReadFile(c.TokenFile)
		if err != nil {
			return identity.Token{}, fleet.Errorf(fleet.CodeTokenBad, "read the join token: %w", err)
		}
		text = string(b)
	}
	if strings.TrimSpace(text) == "" {
		return identity.Token{}, fleet.Errorf(fleet.CodeTokenBad, "join the cluster: no join token is given").
			WithHint("name the file with --token-file; the first hub keeps it in DATA/hub-join-token")
	}
	return identity.ParseToken(text)
}
