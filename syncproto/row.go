package syncproto

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"time"

	"skerry/fleet"
	"skerry/internal/codec"
)

// MaxRow bounds an encoded row, in bytes. EncodeRow cuts long texts, so that a transition is never dropped because
// of its size.
const MaxRow = 64 << 10

// Bounds of a row's texts, in bytes; longer ones are cut.
const (
	maxRowText    = 4 << 10
	maxRowName    = 256
	maxRowDetails = 32
	maxRowDetail  = 1 << 10
)

// rowVersion is the version of the format; it is a row's first byte.
const rowVersion = 1

// row is the frozen form of a fleet.Transition on disk and on the wire, version 1. Keys and meanings never change;
// a new meaning is a new key, or a new version. See syncproto.cddl.
type row struct {
	Seq               uint64    `cbor:"1,keyasint"`
	Boot              uid       `cbor:"2,keyasint,omitempty"`
	Mono              int64     `cbor:"3,keyasint,omitempty"` // nanoseconds
	Wall              int64     `cbor:"4,keyasint,omitempty"` // UnixNano
	Kind              word      `cbor:"5,keyasint"`
	Alloc             uid       `cbor:"6,keyasint,omitempty"`
	ClientStatus      word      `cbor:"7,keyasint,omitempty"`
	ClientDescription string    `cbor:"8,keyasint,omitempty"`
	Task              string    `cbor:"9,keyasint,omitempty"`
	State             *rowState `cbor:"10,keyasint,omitempty"`
	Event             *rowEvent `cbor:"11,keyasint,omitempty"`
	Message           string    `cbor:"12,keyasint,omitempty"`
	Dropped           uint64    `cbor:"13,keyasint,omitempty"`
	Healthy           *bool     `cbor:"14,keyasint,omitempty"`
	Deployment        *uid      `cbor:"15,keyasint,omitempty"`
	Hold              *rowHold  `cbor:"16,keyasint,omitempty"`
	Released          bool      `cbor:"17,keyasint,omitempty"`

	Volume   *rowVolume   `cbor:"18,keyasint,omitempty"`
	Prefetch *rowPrefetch `cbor:"19,keyasint,omitempty"`
	Network  *rowNetwork  `cbor:"20,keyasint,omitempty"`
	Site     *rowSite     `cbor:"21,keyasint,omitempty"`

	StoppedOnEdge bool `cbor:"22,keyasint,omitempty"`
}

// rowSite is the frozen form of a fleet.SiteAction. Time is nanoseconds after the row's wall clock.
type rowSite struct {
	Seq    uint64 `cbor:"1,keyasint"`
	Chain  string `cbor:"2,keyasint"`
	Time   int64  `cbor:"3,keyasint,omitempty"`
	Verb   string `cbor:"4,keyasint"`
	Object string `cbor:"5,keyasint,omitempty"`
	User   string `cbor:"6,keyasint,omitempty"`
	UID    string `cbor:"7,keyasint,omitempty"`
	Reason string `cbor:"8,keyasint,omitempty"`
	Code   string `cbor:"9,keyasint,omitempty"`
	Lost   uint64 `cbor:"10,keyasint,omitempty"`
	Prev   string `cbor:"11,keyasint,omitempty"`

	Person   string `cbor:"12,keyasint,omitempty"`
	SiteCode string `cbor:"13,keyasint,omitempty"`
}

// newRowSite returns the frozen form of an action, which may be nil.
func newRowSite(a *fleet.SiteAction, wall int64) *rowSite {
	if a == nil {
		return nil
	}
	return &rowSite{
		Seq: a.Seq, Chain: sanitizeText(a.Chain, maxRowName), Time: a.Time.UnixNano() - wall,
		Verb: sanitizeText(a.Verb, maxRowName), Object: sanitizeText(a.Object, maxRowText),
		User: sanitizeText(a.User, maxRowName), UID: sanitizeText(a.UID, maxRowName), Reason: sanitizeText(a.Reason, maxRowText),
		Code: sanitizeText(string(a.Code), maxRowName), Lost: a.Lost, Prev: sanitizeText(a.Prev, maxRowName),
		Person: sanitizeText(a.Person, maxRowName), SiteCode: sanitizeText(a.SiteCode, maxRowName),
	}
}

// toSiteAction is the inverse of newRowSite.
func (s *rowSite) toSiteAction(wall int64) *fleet.SiteAction {
	if s == nil {
		return nil
	}
	return &fleet.SiteAction{
		Seq: s.Seq, Chain: s.Chain, Time: time.Unix(0, wall+s.Time).UTC(), Verb: s.Verb, Object: s.Object,
		User: s.User, UID: s.UID, Reason: s.Reason, Code: fleet.Code(s.Code), Lost: s.Lost, Prev: s.Prev,
		Person: s.Person, SiteCode: s.SiteCode,
	}
}

// rowPrefetch is the frozen form of a fleet.PrefetchReport.
type rowPrefetch struct {
	ID           uid    `cbor:"1,keyasint"`
	RequestIndex uint64 `cbor:"2,keyasint"`
	State        string `cbor:"3,keyasint,omitempty"`
}

// rowNetwork is the frozen form of a fleet.NetworkStatus.
type rowNetwork struct {
	Interface string `cbor:"1,keyasint,omitempty"`
	Address   string `cbor:"2,keyasint,omitempty"`
}

// rowVolume is the frozen form of a fleet.VolumeReport.
type rowVolume struct {
	ID       uid    `cbor:"1,keyasint"`
	State    string `cbor:"2,keyasint"`
	Path     string `cbor:"3,keyasint,omitempty"`
	Capacity int64  `cbor:"4,keyasint,omitempty"`
}

// rowHold is the frozen form of a fleet.Hold. Since is nanoseconds after the row's wall clock.
type rowHold struct {
	By         string `cbor:"1,keyasint,omitempty"`
	Reason     string `cbor:"2,keyasint,omitempty"`
	Since      int64  `cbor:"3,keyasint,omitempty"`
	JobVersion uint64 `cbor:"4,keyasint,omitempty"`
	NoDelay    bool   `cbor:"5,keyasint,omitempty"`
}

// rowState is the frozen form of a fleet.TaskState. Times are nanoseconds after the row's wall clock; nil: none.
type rowState struct {
	State       word   `cbor:"1,keyasint,omitempty"`
	Failed      bool   `cbor:"2,keyasint,omitempty"`
	Restarts    uint64 `cbor:"3,keyasint,omitempty"`
	LastRestart *int64 `cbor:"4,keyasint,omitempty"`
	StartedAt   *int64 `cbor:"5,keyasint,omitempty"`
	FinishedAt  *int64 `cbor:"6,keyasint,omitempty"`
	RunningFor  int64  `cbor:"7,keyasint,omitempty"` // nanoseconds
}

// rowEvent is the frozen form of a fleet.TaskEvent. Time is nanoseconds after the row's wall clock.
type rowEvent struct {
	Type     word              `cbor:"1,keyasint,omitempty"`
	Time     int64             `cbor:"2,keyasint,omitempty"`
	Message  string            `cbor:"3,keyasint,omitempty"`
	Details  map[string]string `cbor:"4,keyasint,omitempty"`
	ExitCode int               `cbor:"5,keyasint,omitempty"`
	Signal   int               `cbor:"6,keyasint,omitempty"`
	Fails    bool              `cbor:"7,keyasint,omitempty"`
}

// EncodeRow encodes a transition as journals, Updates and Raft entries hold it. Encoded rows never change. Times
// lose their zone, a task's state loses its events, and texts above their bounds are cut.
func EncodeRow(t fleet.Transition) ([]byte, error) {
	r := row{
		Seq: uint64(t.Seq), Boot: uid(sanitizeText(string(t.BootID), maxRowName)), Mono: int64(t.Mono), Wall: t.Wall,
		Kind: word(sanitizeText(string(t.Kind), maxRowName)), Alloc: uid(sanitizeText(string(t.Alloc), maxRowName)),
		ClientStatus:      word(sanitizeText(t.ClientStatus, maxRowName)),
		ClientDescription: sanitizeText(t.ClientDescription, maxRowText),
		Task:              sanitizeText(t.Task, maxRowName),
		Message:           sanitizeText(t.Message, maxRowText),
		Dropped:           t.Dropped,
		Healthy:           t.Healthy,
		Released:          t.Released,
		StoppedOnEdge:     t.StoppedOnEdge,
		Site:              newRowSite(t.Site, t.Wall),
	}
	if h := t.Hold; h != nil {
		r.Hold = &rowHold{
			By: sanitizeText(h.By, maxRowName), Reason: sanitizeText(h.Reason, maxRowText), Since: h.Since - t.Wall,
			JobVersion: h.JobVersion, NoDelay: h.NoDelay,
		}
	}
	if v := t.Volume; v != nil {
		r.Volume = &rowVolume{
			ID: uid(sanitizeText(string(v.ID), maxRowName)), State: sanitizeText(v.State, maxRowName),
			Path: sanitizeText(v.Path, maxRowText), Capacity: v.Capacity,
		}
	}
	if p := t.Prefetch; p != nil {
		r.Prefetch = &rowPrefetch{
			ID: uid(sanitizeText(string(p.ID), maxRowName)), RequestIndex: uint64(p.RequestIndex), State: sanitizeText(p.State, maxRowName),
		}
	}
	if n := t.Network; n != nil {
		r.Network = &rowNetwork{Interface: sanitizeText(n.InterfaceName, maxRowName), Address: sanitizeText(n.Address, maxRowName)}
	}
	if t.Deployment != "" {
		id := uid(sanitizeText(string(t.Deployment), maxRowName))
		r.Deployment = &id
	}
	if s := t.TaskState; s != nil {
		r.State = &rowState{
			State: word(sanitizeText(s.State, maxRowName)), Failed: s.Failed, Restarts: s.Restarts,
			LastRestart: sinceWall(s.LastRestart, t.Wall), StartedAt: sinceWall(s.StartedAt, t.Wall),
			FinishedAt: sinceWall(s.FinishedAt, t.Wall), RunningFor: int64(s.RunningFor),
		}
	}
	if e := t.Event; e != nil {
		r.Event = &rowEvent{
			Type: word(sanitizeText(e.Type, maxRowName)), Time: e.Time - t.Wall, Message: sanitizeText(e.DisplayMessage, maxRowText),
			Details: sanitizeMap(e.Details), ExitCode: e.ExitCode, Signal: e.Signal, Fails: e.FailsTask,
		}
	}
	body, err := codec.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode row %d: %w", t.Seq, err)
	}
	return append([]byte{rowVersion}, body...), nil
}

// DecodeRow is the inverse of EncodeRow. It allocates at most a small multiple of len(b). Errors: CodeVersion for a
// row of a newer release, CodeFrameTooLarge, and CodeFrameBad for other bytes.
func DecodeRow(b []byte) (fleet.Transition, error) {
	switch {
	case len(b) == 0:
		return fleet.Transition{}, fleet.Errorf(fleet.CodeFrameBad, "decode a row: it is empty")
	case len(b) > MaxRow:
		return fleet.Transition{}, fleet.Errorf(fleet.CodeFrameTooLarge, "decode a row: %d bytes, at most %d are allowed", len(b), MaxRow)
	case b[0] != rowVersion:
		return fleet.Transition{}, fleet.Errorf(fleet.CodeVersion, "decode a row: version %d, this release knows %d", b[0], rowVersion)
	}
	var r row
	if err := frameDecoder.Unmarshal(b[1:], &r); err != nil {
		return fleet.Transition{}, fleet.Errorf(fleet.CodeFrameBad, "decode a row: %v", err)
	}
	if r.Seq == 0 || r.Kind == "" {
		return fleet.Transition{}, fleet.Errorf(fleet.CodeFrameBad, "decode a row: it has no number or no kind")
	}
	return r.toTransition(), nil
}

// toTransition converts a decoded row.
func (r *row) toTransition() fleet.Transition {
	t := fleet.Transition{
		Seq: fleet.Seq(r.Seq), BootID: fleet.BootID(r.Boot), Mono: time.Duration(r.Mono), Wall: r.Wall,
		Kind: fleet.TransitionKind(r.Kind), Alloc: fleet.AllocID(r.Alloc),
		ClientStatus: string(r.ClientStatus), ClientDescription: r.ClientDescription,
		Task: r.Task, Message: r.Message, Dropped: r.Dropped,
		Healthy: r.Healthy, Released: r.Released, StoppedOnEdge: r.StoppedOnEdge, Site: r.Site.toSiteAction(r.Wall),
	}
	if h := r.Hold; h != nil {
		t.Hold = &fleet.Hold{By: h.By, Reason: h.Reason, Since: r.Wall + h.Since, JobVersion: h.JobVersion, NoDelay: h.NoDelay}
	}
	if v := r.Volume; v != nil {
		t.Volume = &fleet.VolumeReport{ID: fleet.VolumeID(v.ID), State: v.State, Path: v.Path, Capacity: v.Capacity}
	}
	if p := r.Prefetch; p != nil {
		t.Prefetch = &fleet.PrefetchReport{ID: fleet.PrefetchID(p.ID), RequestIndex: fleet.Index(p.RequestIndex), State: p.State}
	}
	if n := r.Network; n != nil {
		t.Network = &fleet.NetworkStatus{InterfaceName: n.Interface, Address: n.Address}
	}
	if r.Deployment != nil {
		t.Deployment = fleet.DeploymentID(*r.Deployment)
	}
	if s := r.State; s != nil {
		t.TaskState = &fleet.TaskState{
			State: string(s.State), Failed: s.Failed, Restarts: s.Restarts,
			LastRestart: fromWall(s.LastRestart, r.Wall), StartedAt: fromWall(s.StartedAt, r.Wall),
			FinishedAt: fromWall(s.FinishedAt, r.Wall), RunningFor: time.Duration(s.RunningFor),
		}
	}
	if e := r.Event; e != nil {
		t.Event = &fleet.TaskEvent{
			Type: string(e.Type), Time: r.Wall + e.Time, DisplayMessage: e.Message,
			Details: e.Details, ExitCode: e.ExitCode, Signal: e.Signal, FailsTask: e.Fails,
		}
	}
	return t
}

// ChainHash returns the 16-byte chain hash at a row: the hash of the chain hash before it (empty before the first
// row) and the row's bytes.
func ChainHash(prev, row []byte) []byte {
	h := sha256.New()
	h.Write(prev)
	h.Write(row)
	return h.Sum(nil)[:16]
}

// sinceWall returns the nanoseconds from the row's wall clock to at; nil if at is nil or zero.
func sinceWall(at *time.Time, wall int64) *int64 {
	if at == nil || at.IsZero() {
		return nil
	}
	d := at.UnixNano() - wall
	return &d
}

// fromWall is the inverse of sinceWall.
func fromWall(d *int64, wall int64) *time.Time {
	if d == nil {
		return nil
	}
	at := time.Unix(0, wall+*d).UTC()
	return &at
}

// sanitizeText returns s cut to at most n bytes, without invalid UTF-8.
func sanitizeText(s string, n int) string {
	if len(s) > n {
		s = s[:n]
	}
	return strings.ToValidUTF8(s, "")
}

// sanitizeMap returns a copy of m with at most maxRowDetails entries, the first ones in the order of their keys,
// with keys and values cut to their bounds.
func sanitizeMap(m map[string]string) map[string]string {
	if len(m) == 0 {
		return nil
	}
	c := make(map[string]string, len(m))
	for _, k := range sortedKeys(m) {
		if len(c) == maxRowDetails {
			break
		}
		c[sanitizeText(k, maxRowName)] = sanitizeText(m[k], maxRowDetail)
	}
	return c
}
