package gateway

import (
	"context"
	"log/slog"

	"skerry/fleet"
	"skerry/hub/state"
	"skerry/syncproto"
)

// Folder is the folder, for tests of what it makes of what sessions submit.
type Folder struct{ f *folder }

func NewFolder(apply Applier) *Folder {
	return &Folder{newFolder(apply, slog.New(slog.DiscardHandler))}
}

func (f *Folder) Run(ctx context.Context) error { return f.f.run(ctx) }

func (f *Folder) Submit(b state.NodeRows, gone <-chan struct{}, answer func(state.BatchResult, error)) {
	f.f.submit(submission{batch: b, gone: gone, answer: answer})
}

// Waiting is how many nodes it still holds something of.
func (f *Folder) Waiting() int {
	f.f.mu.Lock()
	defer f.f.mu.Unlock()
	return len(f.f.nodes)
}

const (
	FoldRows  = foldRows
	FoldBytes = foldBytes
)

// DesiredFrames are what a new session tells its edge.
func DesiredFrames(view *state.View, node fleet.NodeID, log *slog.Logger) []syncproto.Desired {
	return newDelivery(node, false, log).next(view, 0)
}
