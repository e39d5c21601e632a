package members

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/hashicorp/memberlist"

	"skerry/fleet"
	"skerry/internal/codec"
)

// meta is the data that a hub gossips about itself, in at most memberlist.MetaMaxSize bytes. It is a wire format:
// keys never change.
type meta struct {
	Region  string `cbor:"1,keyasint"`
	QUIC    string `cbor:"2,keyasint"`
	HTTP    string `cbor:"3,keyasint"`
	Leaving bool   `cbor:"4,keyasint,omitempty"`
	Build   string `cbor:"5,keyasint,omitempty"`
}

// localDelegate gives memberlist the meta data of this hub. Nothing else is gossiped.
type localDelegate struct {
	member Member

	mu      sync.Mutex
	leaving bool
}

var _ memberlist.Delegate = (*localDelegate)(nil)

// setLeaving makes the meta data say that this hub leaves. It is sent with the next UpdateNode.
func (s *localDelegate) setLeaving() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leaving = true
}

// encodeMeta returns this hub's meta data as CBOR; CodeInvalid: it has too many bytes.
func (s *localDelegate) encodeMeta() ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, err := codec.Marshal(meta{Region: s.member.Region, QUIC: s.member.QUIC, HTTP: s.member.HTTP, Leaving: s.leaving, Build: s.member.Build})
	if err != nil {
		return nil, fmt.Errorf("encode meta data: %w", err)
	}
	if len(b)+1 > memberlist.MetaMaxSize {
		return nil, fleet.Errorf(fleet.CodeInvalid, "open members: region and addresses have %d bytes, at most %d fit", len(b), memberlist.MetaMaxSize-1)
	}
	return b, nil
}

// NodeMeta implements memberlist.Delegate. It panics if the meta data cannot be encoded, which Open has checked.
func (s *localDelegate) NodeMeta(int) []byte {
	b, err := s.encodeMeta()
	if err != nil {
		panic(fmt.Sprintf("encode meta data that Open had encoded: %v", err))
	}
	return b
}

func (s *localDelegate) NotifyMsg([]byte)                {}
func (s *localDelegate) GetBroadcasts(int, int) [][]byte { return nil }
func (s *localDelegate) LocalState(bool) []byte          { return nil }
func (s *localDelegate) MergeRemoteState([]byte, bool)   {}

// events passes memberlist's notifications on to Members. memberlist calls it with its lock held.
type events struct{ m *Members }

var (
	_ memberlist.EventDelegate    = events{}
	_ memberlist.ConflictDelegate = events{}
)

func (e events) NotifyJoin(n *memberlist.Node) { e.recordNode(n, false) }

func (e events) NotifyUpdate(n *memberlist.Node) { e.recordNode(n, false) }

func (e events) NotifyLeave(n *memberlist.Node) { e.recordNode(n, true) }

func (e events) NotifyConflict(have, other *memberlist.Node) {
	e.m.log.Warn("two hubs have one name", "hub", have.Name, "gossip", have.Address(), "other", other.Address())
}

// recordNode records a hub as alive, or as left or failed if it is gone, from its meta data. Meta data that cannot
// be decoded are logged; the hub is recorded without addresses.
func (e events) recordNode(n *memberlist.Node, gone bool) {
	member, leaving, err := decodeMember(n.Meta)
	if err != nil {
		e.m.log.Warn("a hub's meta data cannot be read", "hub", n.Name, "error", err)
	}
	member.ID, member.Gossip = fleet.HubID(n.Name), n.Address()
	switch {
	case !gone:
		member.Status = StatusAlive
	case leaving:
		member.Status = StatusLeft
	default:
		member.Status = StatusFailed
	}
	e.m.recordMember(member, gone)
}

var metaDecoder = codec.NewDecoder(codec.Limits{})

// decodeMember decodes a hub's meta data; leaving: the hub has said that it leaves.
func decodeMember(b []byte) (m Member, leaving bool, err error) {
	var v meta
	if err := metaDecoder.Unmarshal(b, &v); err != nil {
		return Member{}, false, fmt.Errorf("decode the addresses that another hub gossips: %w", err)
	}
	return Member{Region: v.Region, QUIC: v.QUIC, HTTP: v.HTTP, Build: v.Build}, v.Leaving, nil
}

// logLineWriter writes memberlist's lines, of the form "[LEVEL] memberlist: message", to the log. Its errors become warnings: they
// concern one packet, and Members itself logs that a hub is gone. Goroutines of memberlist go on for a moment after Close,
// unheard.
type logLineWriter struct{ m *Members }

func (w logLineWriter) Write(b []byte) (int, error) {
	if w.m.closed.Load() {
		return len(b), nil
	}
	line := bytes.TrimSpace(b)
	level := slog.LevelDebug
	if bytes.HasPrefix(line, []byte("[ERR")) || bytes.HasPrefix(line, []byte("[WARN")) {
		level = slog.LevelWarn
	}
	if i := bytes.Index(line, []byte("] ")); i > 0 && line[0] == '[' {
		line = line[i+2:]
	}
	w.m.log.Log(context.Background(), level, string(line))
	return len(b), nil
}
