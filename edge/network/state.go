package network

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"skerry/fleet"
)

const (
	bootPrefix      = "boot-"
	stateSuffix     = ".json"
	namespaceSuffix = ".netns"
	stateVersion    = 1
	maxStateBytes   = 1 << 20
)

// State is what is known of the network of one allocation. It lies beside the namespace.
type State struct {
	Version   int
	Boot      fleet.BootID
	Mode      string
	Container string // CNI_CONTAINERID: another one each time that the network is made
	Creator   string `json:",omitempty"` // the driver that made the namespace; "": this package
	Namespace string // its path; "": not made yet
	Ready     bool   // everything is made
	IP        string `json:",omitempty"`
	DNS       fleet.DNSConfig
	// Plugins are called one after another. An allocation is removed with the ones that it was added with.
	Plugins []json.RawMessage `json:",omitempty"`
	Name    string            `json:",omitempty"` // of the CNI network
	CNI     string            `json:",omitempty"` // version of its configuration
	Args    string            `json:",omitempty"` // CNI_ARGS
	Ports   []portMapping     `json:",omitempty"`
	Result  json.RawMessage   `json:",omitempty"` // of the last plugin
}

// bootDir is the folder of this edge's namespaces of this boot.
func (h *Hook) bootDir() string {
	sum := sha256.Sum256([]byte(h.cfg.Dir))
	return filepath.Join(h.cfg.RunDir, bootPrefix+h.bootID, hex.EncodeToString(sum[:6]))
}

// leasesDir is the folder in which the plugins of all edges of the machine keep the addresses that they gave.
func (h *Hook) leasesDir() string { return filepath.Join(h.cfg.RunDir, bootPrefix+h.bootID, "leases") }

func (h *Hook) statePath(id fleet.AllocID) string {
	return filepath.Join(h.bootDir(), string(id)+stateSuffix)
}

// readState returns the state of an allocation; false: there is none. A damaged state is one of which nothing
// but the place of the namespace is known.
func (h *Hook) readState(id fleet.AllocID) (State, bool, error) {
	f, err := os.Open(h.statePath(id))
	if errors.Is(err, os.ErrNotExist) {
		return State{}, false, nil
	}
	if err != nil {
		return State{}, false, fmt.Errorf("open the network of allocation %s: %w", fleet.Short(id), err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxStateBytes+1))
	if err != nil {
		return State{}, false, fmt.Errorf("read the network of allocation %s: %w", fleet.Short(id), err)
	}
	s, err := decodeState(b)
	if err != nil {
		h.cfg.Log.Warn("state of a network not readable: it is made anew", "alloc_id", string(id), "error", err)
		s = State{Version: stateVersion, Namespace: filepath.Join(h.bootDir(), string(id)+namespaceSuffix)}
	}
	return s, true, nil
}

// decodeState reads a State.
func decodeState(b []byte) (State, error) {
	var s State
	if len(b) > maxStateBytes {
		return s, fmt.Errorf("read the state of a network: it has more than %d bytes", maxStateBytes)
	}
	if err := json.Unmarshal(b, &s); err != nil {
		return State{}, fmt.Errorf("read the state of a network: %w", err)
	}
	if s.Version != stateVersion {
		return State{}, fmt.Errorf("read the state of a network: it has the version %d, not %d", s.Version, stateVersion)
	}
	return s, nil
}

// writeState replaces the state of an allocation.
func (h *Hook) writeState(id fleet.AllocID, s State) error {
	b, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("encode the network of allocation %s: %w", fleet.Short(id), err)
	}
	if err := os.MkdirAll(h.bootDir(), 0o711); err != nil {
		return fmt.Errorf("make the folder of networks: %w", err)
	}
	path := h.statePath(id)
	if err := os.WriteFile(path+"~", b, 0o600); err != nil {
		return fmt.Errorf("write the network of allocation %s: %w", fleet.Short(id), err)
	}
	if err := os.Rename(path+"~", path); err != nil {
		return fmt.Errorf("write the network of allocation %s: %w", fleet.Short(id), err)
	}
	return nil
}

// removeState forgets the network of an allocation.
func (h *Hook) removeState(id fleet.AllocID) error {
	if err := os.Remove(h.statePath(id)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("forget the network of allocation %s: %w", fleet.Short(id), err)
	}
	return nil
}
