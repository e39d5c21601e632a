package hub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"

	"skerry/fleet"
	"skerry/fleet/validate"
	"skerry/hub/consensus"
	"skerry/hub/liveness"
	"skerry/hub/members"
	"skerry/hub/transit"
	"skerry/syncproto/identity"
)

// Default ports of hubs. A port of 0 in Config lets the system choose one.
const (
	DefaultHTTPPort   = 4646
	DefaultQUICPort   = 4647
	DefaultGossipPort = 4648
)

// minCertValidity is the shortest validity of an edge's certificate: it leaves time for the renewal.
const minCertValidity = time.Minute

// Config of a hub. Zero values are usable except DataDir, and except Bootstrap or Join at the first start. A data
// directory that has an identity needs neither; they are ignored there.
type Config struct {
	// DataDir holds all of the hub's data. Only one process may use it at a time.
	DataDir string
	// Bootstrap creates a new cluster with this hub as its first voter.
	Bootstrap bool
	// Join lists QUIC addresses (host:port) of hubs to join; each is tried in turn.
	Join []string
	// Token is the join token; else TokenFile is a file that holds it.
	Token     string
	TokenFile string

	Name   string // unique in the region; "": the machine's host name
	Region string // "": global

	// Bind is the IP address to listen on; "": 127.0.0.1. Advertise is the address at which others reach this hub;
	// "": Bind, or if Bind is unspecified the machine's first address that is not loopback.
	Bind       string
	Advertise  string
	HTTPPort   int
	QUICPort   int
	GossipPort int
	// HTTPBind is the address of the HTTP API; "": Bind. Other addresses than loopback are refused unless clients need
	// a certificate (HTTPTLSClientCA), or a token over HTTPS (ACLEnabled), or HTTPInsecure is set.
	HTTPBind     string
	HTTPInsecure bool
	// HTTPTLS serves HTTPS with a certificate of the cluster's CA, which the hub renews. HTTPTLSCert and HTTPTLSKey
	// are files (PEM) with a certificate to use instead, and HTTPTLSClientCA is one with the authorities of clients'
	// certificates: clients without one are refused. The files are read again when they change.
	HTTPTLS         bool
	HTTPTLSCert     string
	HTTPTLSKey      string
	HTTPTLSClientCA string
	// ACLEnabled turns access control on before it is bootstrapped. A cluster that was bootstrapped has it always.
	ACLEnabled bool
	// OIDCIssuer is the URL at which others reach the hubs to verify the identities of workloads, which name it; "": they
	// name none, and there is no OIDC discovery. It is the same on all hubs.
	OIDCIssuer string
	// Keyring says how the state key is kept on the disk: "file" (also ""), in clear, or "transit", wrapped by the server of
	// KeyringTransit. With "file", KeyringTransit opens a key that was wrapped before.
	Keyring        string
	KeyringTransit transit.Config
	// HTTPHosts are the host names and addresses that HTTP requests may name, besides loopback and the hub's own
	// addresses: those of a proxy, or of this machine in the DNS.
	HTTPHosts []string
	// EdgeHealth returns why the edge in the same process is unhealthy, for /v1/agent/health; a nil function: there
	// is no edge.
	EdgeHealth func() error
	// AuditCollector is the URL that gets the entries of the audit, AuditSyslog the syslog server; "": none does. package
	// audit describes them and their files.
	AuditCollector              string
	AuditCollectorAuthorization string
	AuditCollectorCA            string
	AuditSyslog                 string
	AuditSyslogCA               string
	// Debug serves /debug/pprof with the API, to clients on this machine only.
	Debug bool

	// Drivers are the task drivers that jobs may name, which edges run.
	Drivers validate.KnownDrivers

	// Workers is the number of scheduler workers on this hub. 0: one for each processor, at least 2.
	Workers int

	// Heartbeat: a MinTTL or Grace of 0 is 10 s, a MaxRate of 0 is 500 heartbeats per second.
	Heartbeat Heartbeat
	Raft      Raft
	// PeerIdle is the silence after which the connection to a hub counts as lost: a call to a dead hub takes that
	// long. 0: 2.5 s.
	PeerIdle time.Duration
	// GossipProbe is the time between two gossip probes of other hubs. 0: 1 s.
	GossipProbe time.Duration

	// EdgeCertValidity is the validity of the certificates that this hub issues to edges, which renew them
	// automatically. 0: 365 days. The least is a minute.
	EdgeCertValidity time.Duration
	// EdgeCertGrace is how long after its end an edge's certificate is still accepted. An edge that was away for
	// longer needs a join token again. 0: 365 days.
	EdgeCertGrace time.Duration

	// Packets replaces the UDP socket of QUIC, Listener the HTTP listener, Gossip the sockets of gossip, and
	// RaftStreams QUIC for Raft (tests, simulations). Open takes ownership of them, even if it fails.
	Packets  net.PacketConn
	Listener net.Listener
	Gossip   *GossipNetwork
	// RaftStreams must be set on all hubs of a cluster, or on none.
	RaftStreams *RaftStreams
	// Applied (nil: none) is called with every command that this hub has applied, in order; it must not block.
	// DiskStep (nil: none) is called before each step of the Raft log's disk protocol; its error makes the step
	// fail. Both are for tests.
	Applied  func(Applied)
	DiskStep func(label string) error

	// Now returns the wall-clock time, which certificates and join tokens are checked with; nil: time.Now.
	Now func() time.Time

	Version string // of this build, shown
	Log     *slog.Logger
}

// GossipNetwork replaces the sockets of gossip.
type GossipNetwork = members.Network

// RaftStreams replaces QUIC for Raft. Dial gets the hubs' QUIC addresses.
type RaftStreams struct {
	Listen net.Listener
	Dial   func(ctx context.Context, addr string) (net.Conn, error)
}

// Applied is an applied command with its result.
type Applied = consensus.Applied

// Heartbeat says how often edges send heartbeats, and how long a hub waits for the next one.
type Heartbeat = liveness.Policy

// Raft has the timing of Raft and of its log. Zero values mean the defaults of package consensus.
type Raft struct {
	HeartbeatTimeout  time.Duration
	ElectionTimeout   time.Duration
	LeaderLease       time.Duration
	CommitTimeout     time.Duration // until followers learn of a commit if no entry follows it
	SnapshotInterval  time.Duration
	SnapshotThreshold uint64 // entries since the last snapshot
	TrailingLogs      uint64 // entries before a snapshot that are kept
	SegmentBytes      int    // of the log's files
}

var validName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,62}[A-Za-z0-9])?$`)

// withDefaults returns c with defaults for the zero values. The error joins everything that is wrong with the
// result.
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

// findErrors returns everything that is wrong with a configuration that has its defaults.
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
	errs = append(errs, c.findHTTPErrors()...)
	if _, err := c.auditDestinations(); err != nil {
		errs = append(errs, err)
	}
	if _, _, err := c.keyWrapper(); err != nil {
		errs = append(errs, err)
	}
	if u, err := url.Parse(c.OIDCIssuer); c.OIDCIssuer != "" && (err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.RawQuery != "" || u.Fragment != "" || u.User != nil) {
		errs = append(errs, fleet.Errorf(fleet.CodeInvalid, "OIDC issuer %q: not a URL without a query", c.OIDCIssuer).WithHint("write it like https://hubs.example.com"))
	}
	if c.Advertise != "" {
		if a, err := netip.ParseAddr(c.Advertise); err != nil || a.IsUnspecified() {
			invalid("advertise address %q: not an IP address that others can reach", c.Advertise)
		}
	}
	return errs
}

// advertisedAddr returns the IP address at which others reach this hub: Advertise, Bind, or if Bind is unspecified
// the machine's first address that is not loopback.
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

// joinToken returns the join token of the configuration or of its file.
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
