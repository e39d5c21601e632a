package engine

import (
	"context"
	"errors"
	"time"

	"skerry/chaos/schedule"
)

// Platform is a fleet into which faults are injected. Members are named. Methods that begin or end a process
// report that to the checkers. Those that return an Active inject a fault that its Heal ends.
type Platform interface {
	// LeadingHub returns the name of the leader; "": there is none.
	LeadingHub(ctx context.Context) string
	// KillHub ends a hub as SIGKILL does, at a step of its disk protocol if step is not "".
	KillHub(ctx context.Context, name, step string) error
	StartHub(ctx context.Context, name string) error
	PauseHub(ctx context.Context, name string, f schedule.Fault) (Active, error)
	// CopyHubs copies the data of all hubs for a later restore. RestoreHubs replaces the data of
	// hubs, which were all killed, by that copy, and starts them.
	CopyHubs(ctx context.Context, f schedule.Fault) error
	RestoreHubs(ctx context.Context, f schedule.Fault) (Active, error)

	// KillEdge ends the agent as SIGKILL does, CutPower the whole machine, at a step of the
	// agent's disk protocol if step is not "". hit says whether the agent reached that step.
	KillEdge(ctx context.Context, name, step string) (hit bool, err error)
	CutPower(ctx context.Context, name, step string) (hit bool, err error)
	// StopEdge ends the agent in good order.
	StopEdge(ctx context.Context, name string) error
	// ShutDown ends the machine in good order.
	ShutDown(ctx context.Context, name string) error
	// StartEdge starts the agent in the machine's present boot, BootEdge in a new boot. Both do nothing if the agent
	// runs: of two faults that ended it, one has started it.
	StartEdge(ctx context.Context, name string) error
	BootEdge(ctx context.Context, name string) error
	PauseEdge(ctx context.Context, name string, f schedule.Fault) (Active, error)
	// DamageEdge kills the agent, or cuts the power for a torn page, and damages the journal.
	// hits is the number of places that it damaged.
	DamageEdge(ctx context.Context, name string, f schedule.Fault) (hits uint64, err error)
	// CloneEdge starts a second machine with a copy of the edge's data.
	CloneEdge(ctx context.Context, name string, f schedule.Fault) (Active, error)
	// ReplaceEdge ends an edge's machine, removes its data, and boots it, so that it joins as another node.
	ReplaceEdge(ctx context.Context, name string) error
	// OnSite returns the local API of an edge; nil: its agent does not run.
	OnSite(edge string) OnSite
	// DataDir returns the data directory of an edge.
	DataDir(name string) string

	// CutEdges cuts edges off from all hubs, in the direction that the parameters have.
	CutEdges(edges []string, p schedule.Params) (Active, error)
	// ShapeEdges gives the links of edges a profile of delay, loss and bandwidth.
	ShapeEdges(edges []string, p schedule.Profile) (Active, error)
	// CutHubs cuts hubs off from everyone, PartHubs from the other hubs only.
	CutHubs(hubs []string) (Active, error)
	PartHubs(hubs []string) (Active, error)
	// CutMajority cuts links between hubs until no hub reaches a majority.
	CutMajority() (Active, error)
	// RebindEdge makes an edge's NAT forget its mapping, MoveEdge gives the edge another address.
	RebindEdge(ctx context.Context, edge string, f schedule.Fault) (Active, error)
	MoveEdge(ctx context.Context, edge string, f schedule.Fault) (Active, error)

	FillDisk(ctx context.Context, member string, f schedule.Fault) (Active, error)
	SlowDisk(ctx context.Context, member string, f schedule.Fault) (Active, error)
	// MoveClock moves an edge's wall clock by an amount. Where stays is true there is nothing to heal.
	MoveClock(edge string, by time.Duration, stays bool) (Active, error)
	// CrashTasks makes an edge's tasks fail soon after each start.
	CrashTasks(ctx context.Context, edge string, f schedule.Fault) (Active, error)
	KillDriver(ctx context.Context, edge string, f schedule.Fault) (Active, error)
	// BreakDaemon does to an edge's container daemon, or to its containers, what the fault's kind says.
	BreakDaemon(ctx context.Context, edge string, f schedule.Fault) (Active, error)
}

// ErrUnsupported is the error of a platform that cannot inject a kind of fault.
var ErrUnsupported = errors.New("this platform cannot do that")
