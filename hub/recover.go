package hub

import (
	"errors"
	"log/slog"

	"skerry/fleet"
	"skerry/hub/consensus"
	"skerry/hub/pki"
	"skerry/internal/datadir"
)

// Recover makes the hub of a data directory the only voter of its cluster, while it does not run:
// see consensus.Recover. It returns the hub's name beside what was found.
func Recover(dataDir string, log *slog.Logger) (name fleet.HubID, r consensus.Recovered, err error) {
	dir, err := datadir.Open(dataDir, datadir.Kind{Owner: "a hub", Version: dataVersion})
	if err != nil {
		return "", r, err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	creds, known, err := pki.LoadCredentials(dir.File(pki.Folder))
	if err != nil {
		return "", r, err
	}
	if !known {
		return "", r, fleet.Errorf(fleet.CodeInvalid, "recover the hub in %s: the directory contains no identity of a hub", dataDir).
			WithHint("name the data directory of a hub that was in the cluster")
	}
	name = fleet.HubID(creds.Identity.Name)
	r, err = consensus.Recover(name, dir.File(raftDir), log)
	return name, r, err
}
