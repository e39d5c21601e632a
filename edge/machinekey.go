package edge

import (
	"fmt"

	"skerry/edge/machinekey"
)

// openMachineKey opens the store of the key with which the keepers of secrets encrypt.
func (e *Edge) openMachineKey() (err error) {
	e.keyStore, err = machinekey.Open(machinekey.Config{
		Dir: e.dir, Keepers: e.cfg.KeyKeepers, Wanted: e.cfg.KeyPlace, Step: e.cfg.Step, Log: e.log.With("component", "machinekey"),
	})
	if err != nil {
		return fmt.Errorf("open edge: %w", err)
	}
	e.machine = e.keyStore.Key()
	return nil
}
