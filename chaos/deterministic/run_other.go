//go:build !linux || !(amd64 || arm64)

package deterministic

import (
	"context"
)

// Run runs the program until it ends, and kills it when ctx ends. On this system it does not remove randomness. An
// *ExitError means that the program itself failed.
func Run(ctx context.Context, c Command) error {
	p, err := c.startProcess(nil)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = p.Kill() })()
	state, err := p.Wait()
	if err == nil && !state.Success() {
		err = &ExitError{state.String()}
	}
	return err
}
