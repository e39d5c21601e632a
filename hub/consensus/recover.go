package consensus

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"

	"github.com/hashicorp/raft"

	"skerry/fleet"
	"skerry/hub/state"
)

// Recovered describes the log that Recover found.
type Recovered struct {
	Hubs []state.HubPeer // the newest configuration in the log before the recovery, by ID
	Last fleet.Index     // the newest entry, which is kept
}

// Recover makes a hub the only voter of its cluster by rewriting its log, while the hub is stopped. It is
// for a cluster that has lost most of its hubs for good. The lost hubs must never start again with their
// old data.
// Every entry of this hub's log counts as committed afterwards, even if no majority had it. Entries that
// only the lost hubs had are gone. If the hub is the only voter already, or has no log: CodeConflict.
func Recover(id fleet.HubID, dir string, log *slog.Logger) (r Recovered, err error) {
	if _, err := os.Stat(filepath.Join(dir, logDir)); errors.Is(err, fs.ErrNotExist) {
		return r, fleet.Errorf(fleet.CodeConflict, "recover hub %s: there is no log in %s", id, dir).
			WithHint("recover the hub that has been in the cluster for longest, and join the others anew")
	}
	n, err := New(Config{
		ID: id, Addr: "recover", Dir: dir, Store: state.New(), Log: log,
		Dial:    func(context.Context, string) (net.Conn, error) { return nil, errors.New("this hub does not run") },
		Forward: func(context.Context, string, []byte) ([]byte, error) { return nil, errors.New("this hub does not run") },
	})
	if err != nil {
		return r, err
	}
	d, err := n.openDisk(dir)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	if r, err = n.persistedConfiguration(d); err != nil {
		return r, err
	}
	self := slices.IndexFunc(r.Hubs, func(p state.HubPeer) bool { return p.ID == id })
	switch {
	case self < 0:
		return r, fleet.Errorf(fleet.CodeConflict, "recover hub %s: it is not in the configuration in %s", id, dir)
	case len(r.Hubs) == 1:
		return r, fleet.Errorf(fleet.CodeConflict, "recover hub %s: it is the only hub of its cluster already", id).WithHint("start it")
	}
	_, trans := raft.NewInmemTransport(raft.ServerAddress(r.Hubs[self].Addr))
	err = raft.RecoverCluster(n.raftConfig(), n.newMachine(), d.log, d.log, d.snapshots, trans, raft.Configuration{
		Servers: []raft.Server{{ID: raft.ServerID(id), Address: raft.ServerAddress(r.Hubs[self].Addr)}},
	})
	if err != nil {
		return r, fmt.Errorf("recover hub %s in %s: %w", id, dir, err)
	}
	return r, nil
}

// newMachine returns a machine with a temporary state, for raft functions that need to apply the log.
func (n *Node) newMachine() *machine {
	return &machine{store: state.New(), fail: func(err error) { n.log.Error("the log cannot be applied", "error", err) }}
}

// persistedConfiguration returns the newest configuration on disk and the newest index of log and
// snapshots.
func (n *Node) persistedConfiguration(d *disk) (Recovered, error) {
	_, trans := raft.NewInmemTransport("")
	c, err := raft.GetConfiguration(n.raftConfig(), n.newMachine(), d.log, d.log, d.snapshots, trans)
	if err != nil {
		return Recovered{}, fmt.Errorf("read the configuration in %s: %w", d.dir, err)
	}
	last, err := d.log.LastIndex()
	if err != nil {
		return Recovered{}, fmt.Errorf("read the end of the log in %s: %w", d.dir, err)
	}
	snapshot, _, err := d.newestSnapshot()
	if err != nil {
		return Recovered{}, err
	}
	return Recovered{Hubs: sortedPeers(c.Servers), Last: fleet.Index(max(last, snapshot))}, nil
}
