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

// State records the network of one allocation. Its file lies beside the namespace.
type State struct {
	Version   int
	Boot      fleet.BootID
	Mode      string
	Container string // CNI_CONTAINERID: a new one each time that the network is made
	Creator   string `json:",omitempty"` // the driver that makes the namespace; "" means this package
	Namespace string // path of the namespace; "": not made yet
	Ready     bool   // everything is made
	IP        string `json:",omitempty"`
	DNS       fleet.DNSConfig
	// Plugins are called in this order. An allocation is removed by the same plugins that added it.
	Plugins []json.RawMessage `json:",omitempty"`
	Name    string            `json:",omitempty"` // of the CNI network
	CNI     string            `json:",omitempty"` // version of its configuration
	Args    string            `json:",omitempty"` // CNI_ARGS
	Ports   []portMapping     `json:",omitempty"`
	Result  json.RawMessage   `json:",omitempty"` // of the last plugin
}

// bootDir is the folder of this edge's namespaces in this boot.
func (h *Hook) bootDir() string {
	sum := sha256.Sum256([]byte(h.cfg.Dir))
	return filepath.Join(h.cfg.RunDir, bootPrefix+h.bootID, hex.EncodeToString(sum[:6]))
}

// leasesDir is the folder in which the plugins of all edges of the machine record the addresses in use.
func (h *Hook) leasesDir() string { return filepath.Join(h.cfg.RunDir, bootPrefix+h.bootID, "leases") }

func (h *Hook) statePath(id fleet.AllocID) string {
	return filepath.Join(h.bootDir(), string(id)+stateSuffix)
}

// readState returns the state of an allocation, or false. Of a damaged state only the path of the namespace is known.
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
		h.cfg.Log.Warn("state of a network not readable: making the network again", "alloc_id", string(id), "error", err)
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

// removeState removes the file with the network state of an allocation.
func (h *Hook) removeState(id fleet.AllocID) error {
	if err := os.Remove(h.statePath(id)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the network state of allocation %s: %w", fleet.Short(id), err)
	}
	return nil
}
