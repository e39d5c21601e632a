package edge

import (
	"context"
	"fmt"

	"skerry/edge/machinekey"
	"skerry/edge/variables"
)

// openVariables opens the store of the machine's key, and the keepers of the variables and of the identities.
func (e *Edge) openVariables() (err error) {
	e.keyStore, err = machinekey.Open(machinekey.Config{
		Dir: e.dir, Keepers: e.cfg.KeyKeepers, Wanted: e.cfg.KeyPlace, Step: e.cfg.Step, Log: e.log.With("component", "machinekey"),
	})
	if err != nil {
		return fmt.Errorf("open edge: %w", err)
	}
	e.machine = e.keyStore.Key()
	e.variables, err = variables.Open(variables.Config{
		Journal: e.journal, Sealer: e.machine, Log: e.log.With("component", "variables"),
		Read: func(ctx context.Context, namespace, path string) (bool, error) {
			return e.allocs.ReadsVariable(ctx, namespace, path)
		},
	})
	if err != nil {
		return fmt.Errorf("open edge: %w", err)
	}
	return nil
}
