package edge

import (
	"context"
	"fmt"

	"skerry/edge/machinekey"
	"skerry/edge/variables"
)

// machineKeyFile has the key that encrypts variables on this edge's disk.
const machineKeyFile = "identity/machine-key"

// openVariables reads or makes the machine's key, and opens the keeper of the variables. A damaged key is replaced: the
// hubs deliver again what it has encrypted.
func (e *Edge) openVariables() (err error) {
	text, ok, err := e.dir.Read(machineKeyFile)
	if err != nil {
		return fmt.Errorf("open edge: %w", err)
	}
	if ok {
		if e.machine, err = machinekey.Parse(text); err != nil {
			e.log.Error("key of the machine not readable: making another; hubs have to deliver the variables again", "path", e.dir.File(machineKeyFile), "error", err)
		}
	}
	if e.machine == nil {
		e.machine, text = machinekey.New()
		if err := e.dir.Write(machineKeyFile, text, 0o600); err != nil {
			return fmt.Errorf("open edge: %w", err)
		}
	}
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
