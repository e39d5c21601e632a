package members

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/memberlist"

	"skerry/fleet"
)

const (
	// DefaultRejoinInterval is the time between two attempts to reach the seeds that are not alive.
	DefaultRejoinInterval = 30 * time.Second
	// aloneInterval is the same while no other hub is known.
	aloneInterval = 2 * time.Second
	// forgetAfter is how long a hub that left or failed is listed.
	forgetAfter = 24 * time.Hour
	// reclaimAfter is how soon a hub that failed may come back at another address.
	reclaimAfter = 5 * time.Second
	// dialTimeout bounds memberlist's TCP connections.
	dialTimeout = 5 * time.Second
	// leaveTimeout bounds each of the two steps of Leave.
	leaveTimeout = time.Second
)

// Member is a hub with the addresses and the status that gossip has of it.
type Member struct {
	ID     fleet.HubID
	Region string
	QUIC   string // host:port
	HTTP   string // host:port
	Build  string // its release; "": an older one that does not gossip it
	Gossip string // host:port
	Status Status
}

// Status of a member.
type Status string

const (
	StatusAlive  Status = "alive"  // it answers
	StatusFailed Status = "failed" // it does not answer
	StatusLeft   Status = "left"   // it announced that it leaves
)

// Config configures Members. Self and Seeds are required.
type Config struct {
	Self Member // ID, Region, QUIC, HTTP
	// Bind and Port are where to listen (port 0: any); Advertise is the address
	// that others use ("": Bind).
	Bind      string
	Port      int
	Advertise string
	Key       []byte // 16, 24 or 32 bytes; UseKeys replaces it
	// Seeds returns the gossip addresses of all hubs of the cluster. Those that are not alive are contacted every
	// RejoinInterval (0: 30 s), so that gossip recovers from a partition of any length.
	Seeds          func() []string
	RejoinInterval time.Duration
	// Probe is the time between two probes of another hub. 0: a second.
	Probe time.Duration
	// Network replaces the sockets; nil: sockets on Bind and Port.
	Network *Network
	Log     *slog.Logger // nil: discard
}

// Members takes part in the gossip for this hub, and keeps the list of hubs. It is safe for concurrent use.
type Members struct {
	cfg           Config
	log           *slog.Logger
	list          *memberlist.Memberlist
	keys          *memberlist.Keyring
	localDelegate *localDelegate

	leave  sync.Mutex // held by Leave and Close: memberlist takes them in one order only
	closed atomic.Bool

	mu      sync.Mutex
	known   map[fleet.HubID]knownMember
	changed chan struct{}
}

// knownMember is a member, and the time since which it is gone (zero: it is alive).
type knownMember struct {
	Member
	gone time.Time
}

// Open binds the gossip port and starts memberlist's goroutines, which Close ends. A port in use is CodeConflict.
func Open(cfg Config) (*Members, error) {
	if cfg.Self.ID == "" || cfg.Seeds == nil {
		return nil, errors.New("open members: the hub's id and seeds are required")
	}
	if cfg.RejoinInterval == 0 {
		cfg.RejoinInterval = DefaultRejoinInterval
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.Self.Status = StatusAlive
	m := &Members{
		cfg: cfg, log: cfg.Log, localDelegate: &localDelegate{member: cfg.Self},
		known: map[fleet.HubID]knownMember{}, changed: make(chan struct{}),
	}
	if _, err := m.localDelegate.encodeMeta(); err != nil {
		return nil, err
	}
	c := memberlist.DefaultLANConfig()
	c.Name = string(cfg.Self.ID)
	if cfg.Network != nil {
		c.Transport = newTransport(*cfg.Network, cfg.Log)
	}
	c.BindAddr, c.BindPort = cfg.Bind, cfg.Port
	c.AdvertiseAddr, c.AdvertisePort = cfg.Advertise, cfg.Port
	var err error
	if m.keys, err = memberlist.NewKeyring(nil, cfg.Key); err != nil {
		return nil, fmt.Errorf("open members: %w", err)
	}
	c.Keyring = m.keys
	// A few hubs say little; compressing it costs more than it saves.
	c.EnableCompression = false
	if cfg.Probe != 0 {
		c.ProbeInterval = cfg.Probe
		c.GossipInterval = cfg.Probe / 5
	}
	c.TCPTimeout = dialTimeout
	c.DeadNodeReclaimTime = reclaimAfter
	c.Delegate, c.Events, c.Conflict = m.localDelegate, events{m}, events{m}
	c.Logger = log.New(logLineWriter{m}, "", 0)
	list, err := memberlist.Create(c)
	if err != nil {
		return nil, bindError(net.JoinHostPort(cfg.Bind, strconv.Itoa(cfg.Port)), err)
	}
	m.list = list
	return m, nil
}

// UseKeys encrypts with the first key from now on, decrypts with each, and forgets all other keys. There must be one.
func (m *Members) UseKeys(keys [][]byte) error {
	for _, key := range keys {
		if err := m.keys.AddKey(key); err != nil {
			return fmt.Errorf("add a gossip key: %w", err)
		}
	}
	isWanted := func(key []byte) bool {
		return slices.ContainsFunc(keys, func(k []byte) bool { return bytes.Equal(k, key) })
	}
	// memberlist decrypts at the same time, and RemoveKey changes the list in place, unless the key is its last.
	order := keys[:1]
	if slices.ContainsFunc(m.keys.GetKeys(), func(key []byte) bool { return !isWanted(key) }) {
		order = keys
	}
	for _, key := range slices.Backward(order) {
		if err := m.keys.UseKey(key); err != nil {
			return fmt.Errorf("use a gossip key: %w", err)
		}
	}
	for _, old := range slices.Backward(m.keys.GetKeys()) {
		if isWanted(old) {
			break
		}
		if err := m.keys.RemoveKey(old); err != nil {
			return fmt.Errorf("remove a gossip key: %w", err)
		}
	}
	return nil
}

// bindError returns an error with a hint in place of memberlist's error about a port that it cannot bind.
func bindError(addr string, err error) error {
	if strings.Contains(err.Error(), syscall.EADDRINUSE.Error()) { // it keeps the text alone
		return fleet.Errorf(fleet.CodeConflict, "listen for gossip on %s: the port is in use", addr).
			WithHint("is another hub running? Choose another port with --gossip-port")
	}
	return fleet.Errorf(fleet.CodeInvalid, "listen for gossip on %s: %w", addr, err)
}

// Run contacts the seeds that are not alive, again and again, until ctx ends. Then it calls Leave and returns nil.
func (m *Members) Run(ctx context.Context) error {
	for {
		if missing := m.missingSeeds(); len(missing) > 0 {
			if err := m.Join(ctx, missing); err != nil && ctx.Err() == nil {
				m.log.Debug("hubs not found", "addrs", missing, "error", err)
			}
		}
		wait := m.cfg.RejoinInterval
		if m.list.NumMembers() <= 1 {
			wait = min(wait, aloneInterval)
		}
		select {
		case <-ctx.Done():
			if err := m.Leave(); err != nil {
				m.log.Debug("the others were not told", "error", err)
			}
			return nil
		case <-time.After(wait):
		}
	}
}

// missingSeeds returns the seeds that are not alive.
func (m *Members) missingSeeds() []string {
	alive := map[string]bool{m.Addr(): true}
	for _, member := range m.Members() {
		if member.Status == StatusAlive {
			alive[member.Gossip] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(m.cfg.Seeds()), func(addr string) bool { return alive[addr] })
}

// Join contacts hubs by their gossip addresses, one after the other. It fails only if none answered. It returns up
// to a few seconds after ctx ends, because memberlist cannot be interrupted.
func (m *Members) Join(ctx context.Context, addrs []string) error {
	var errs []error
	for _, addr := range addrs {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("join %s: %w", addr, err)
		}
		if _, err := m.list.Join([]string{addr}); err != nil {
			errs = append(errs, fmt.Errorf("join %s: %w", addr, err))
		}
	}
	if len(errs) == len(addrs) {
		return errors.Join(errs...)
	}
	return nil
}

// Members returns all known hubs by ID, this one included. A hub that left or failed is forgotten after a day.
func (m *Members) Members() []Member {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]Member, 0, len(m.known))
	for id, r := range m.known {
		if !r.gone.IsZero() && time.Since(r.gone) > forgetAfter {
			delete(m.known, id)
			continue
		}
		out = append(out, r.Member)
	}
	slices.SortFunc(out, func(a, b Member) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// Changed returns a channel that is closed at the next change of the list.
func (m *Members) Changed() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changed
}

// Addr returns the gossip address that other hubs use for this one.
func (m *Members) Addr() string { return m.list.LocalNode().Address() }

// Leave announces that this hub leaves, so that the others list it as left and not as failed. It waits at most two
// seconds. After it only Close may be called. After Close it does nothing.
func (m *Members) Leave() error {
	m.leave.Lock()
	defer m.leave.Unlock()
	if m.closed.Load() {
		return nil
	}
	// memberlist's event does not say whether a hub left or died, so the meta data says it first.
	m.localDelegate.setLeaving()
	if err := m.list.UpdateNode(leaveTimeout); err != nil {
		return fmt.Errorf("announce leaving: %w", err)
	}
	if err := m.list.Leave(leaveTimeout); err != nil {
		return fmt.Errorf("leave: %w", err)
	}
	return nil
}

// Close stops the gossip and closes its sockets. Without Leave the others list this hub as failed. Later calls do
// nothing.
func (m *Members) Close() error {
	m.leave.Lock()
	defer m.leave.Unlock()
	if m.closed.Swap(true) {
		return nil
	}
	if err := m.list.Shutdown(); err != nil {
		return fmt.Errorf("stop the gossip: %w", err)
	}
	return nil
}

// recordMember stores a member in the list, wakes those who wait for Changed, and logs a new status. It does
// nothing if the member is unchanged.
func (m *Members) recordMember(member Member, gone bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := knownMember{Member: member}
	if gone {
		r.gone = time.Now()
	}
	before := m.known[member.ID]
	if before.Member == member {
		return
	}
	m.known[member.ID] = r
	close(m.changed)
	m.changed = make(chan struct{})
	if before.Status != member.Status {
		m.log.Info("hub seen", "hub", member.ID, "status", member.Status, "gossip", member.Gossip)
	}
}
