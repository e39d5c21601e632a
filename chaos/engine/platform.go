package engine

import (
	"context"
	"errors"
	"time"

	"skerry/chaos/schedule"
)

// Platform is a fleet, as its faults see it. Members are called by their names. Methods that
// begin or end a process tell the checkers of it.
type Platform interface {
	// LeadingHub is the hub that leads; "": none does.
	LeadingHub(ctx context.Context) string
	// KillHub ends a hub as SIGKILL does, at a step of its disk protocol where one is named.
	KillHub(ctx context.Context, name, step string) error
	StartHub(ctx context.Context, name string) error
	PauseHub(ctx context.Context, name string, f schedule.Fault) (Active, error)
	// CopyHubs copies the data of all hubs for a restore that comes later. RestoreHubs puts them
	// back to that copy, when all were killed, and starts them.
	CopyHubs(ctx context.Context, f schedule.Fault) error
	RestoreHubs(ctx context.Context, f schedule.Fault) (Active, error)

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
	PauseEdge(ctx context.Context, name string, f schedule.Fault) (Active, error)
	// DamageEdge kills the agent, or cuts the power where a page is torn, and damages the
	// journal. The result is how often.
	DamageEdge(ctx context.Context, name string, f schedule.Fault) (hits uint64, err error)
	// CloneEdge starts a second machine with a copy of the edge's data.
	CloneEdge(ctx context.Context, name string, f schedule.Fault) (Active, error)
	DataDir(name string) string

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
	RebindEdge(ctx context.Context, edge string, f schedule.Fault) (Active, error)
	MoveEdge(ctx context.Context, edge string, f schedule.Fault) (Active, error)

	FillDisk(ctx context.Context, member string, f schedule.Fault) (Active, error)
	SlowDisk(ctx context.Context, member string, f schedule.Fault) (Active, error)
	// MoveClock has an edge's clock be wrong by so much. One that stays so is never healed.
	MoveClock(edge string, by time.Duration, stays bool) (Active, error)
	// CrashTasks ends an edge's tasks soon after each start.
	CrashTasks(ctx context.Context, edge string, f schedule.Fault) (Active, error)
	KillDriver(ctx context.Context, edge string, f schedule.Fault) (Active, error)
}

// ErrUnsupported is the error of a kind of fault that a platform cannot bring about.
var ErrUnsupported = errors.New("this platform cannot do that")
