package edge

import (
	"context"
	"fmt"

	"skerry/edge/variables"
)

// openVariables opens the keeper of the variables.
func (e *Edge) openVariables() (err error) {
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
