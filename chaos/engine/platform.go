package engine

import (
	"context"
	"errors"
	"time"

	"skerry/chaos/schedule"
)

// Platform is a fleet, as its faults see it. Members are called by their names. Methods that
// begin or end a process tell the checkers of it.
type Platform struct {
	Hubs    Hubs
	Edges   Edges
	Network Network
	Disks   Disks
	Clocks  Clocks
	Tasks   Tasks
}

// Hubs are the processes of the hubs.
type Hubs interface {
	// LeadingHub is the hub that leads; "": none does.
	LeadingHub(ctx context.Context) string
	// KillHub ends a hub as SIGKILL does, at a step of its disk protocol where one is named.
	KillHub(ctx context.Context, name, step string) error
	StartHub(ctx context.Context, name string) error
	PauseHub(ctx context.Context, name string) (Active, error)
	// CopyHubs copies the data of all hubs for a restore that comes later. RestoreHubs puts them
	// back to that copy, when all were killed, and starts them.
	CopyHubs(ctx context.Context, f schedule.Fault) error
	RestoreHubs(ctx context.Context, f schedule.Fault) (Active, error)
}

// Edges are the machines of the edges, with their agents.
type Edges interface {
	// KillEdge ends the agent as SIGKILL does, CutPower the whole machine, at a step of the
	// agent's disk protocol where one is named. The result says whether it came to that step.
	KillEdge(ctx context.Context, name, step string) (hit bool, err error)
	CutPower(ctx context.Context, name, step string) (hit bool, err error)
	// StopEdge ends the agent in good order.
	StopEdge(ctx context.Context, name string) error
	// ShutDown ends the machine in good order.
	ShutDown(ctx context.Context, name string) error
	// StartEdge starts the agent in the machine's boot, BootEdge in a new one.
	StartEdge(ctx context.Context, name string) error
	BootEdge(ctx context.Context, name string) error
	PauseEdge(ctx context.Context, name string) (Active, error)
	// DamageEdge kills the agent, or cuts the power where a page is torn, and damages the
	// journal. The result is how often.
	DamageEdge(ctx context.Context, name string, f schedule.Fault) (hits uint64, err error)
	// CloneEdge starts a second machine with a copy of the edge's data.
	CloneEdge(ctx context.Context, name string) (Active, error)
	DataDir(name string) string
}

// Network is what links members.
type Network interface {
	// CutEdges cuts edges off from all hubs, in the way that the parameters say.
	CutEdges(edges []string, p schedule.Params) (Active, error)
	// ShapeEdges gives the links of edges a profile.
	ShapeEdges(edges []string, p schedule.Profile) (Active, error)
	// CutHubs cuts hubs off from everyone, PartHubs from the other hubs alone.
	CutHubs(hubs []string) (Active, error)
	PartHubs(hubs []string) (Active, error)
	// CutMajority leaves no hub with a majority in reach.
	CutMajority() (Active, error)
	// RebindEdge has an edge's NAT forget it, MoveEdge gives the edge another address.
	RebindEdge(edge string) (Active, error)
	MoveEdge(edge string) (Active, error)
}

// Disks are those of all members.
type Disks interface {
	FillDisk(ctx context.Context, member string) (Active, error)
	SlowDisk(ctx context.Context, member string, sync time.Duration) (Active, error)
}

// Clocks are the wall clocks of edges.
type Clocks interface {
	// MoveClock has an edge's clock be wrong by so much. One that stays so is never healed.
	MoveClock(edge string, by time.Duration, stays bool) (Active, error)
}

// Tasks are what runs on edges.
type Tasks interface {
	// CrashTasks ends an edge's tasks soon after each start.
	CrashTasks(ctx context.Context, edge string, p schedule.Params) (Active, error)
	KillDriver(edge string) (Active, error)
}

// ErrUnsupported is the error of a kind of fault that a platform cannot bring about.
var ErrUnsupported = errors.New("this platform cannot do that")
