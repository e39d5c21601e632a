package checks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"skerry/fleet"
)

// Exec runs a command beside a task and returns its exit code. The command ends with ctx.
type Exec func(ctx context.Context, id fleet.AllocID, task string, x fleet.Exec) (code int, err error)

// probeScript runs the command of a script check beside its task. The exit code 0 is a success, 1 a warning, and
// any other a failure.
func (c *check) probeScript(ctx context.Context, run Exec) (status, output string, code int) {
	out := &boundedOutput{}
	code, err := run(ctx, c.alloc, c.restartTarget, fleet.Exec{
		Command: append([]string{c.Command}, c.Args...), Stdin: noInput{}, Stdout: out, Stderr: out,
	})
	switch {
	case ctx.Err() != nil && errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		return Failure, c.explainSlowScript(out.keptText()), 0
	case err != nil:
		return Failure, displayText(err.Error()), 0
	case code == 0:
		return Success, displayText(out.keptText()), 0
	case code == 1:
		return Warning, displayText(out.keptText()), code
	}
	return Failure, displayText(fmt.Sprintf("exit code %d: %s", code, out.keptText())), code
}

// boundedOutput keeps the first maxOutput bytes of both outputs of a command.
type boundedOutput struct {
	mu   sync.Mutex
	kept []byte
}

func (o *boundedOutput) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.kept = append(o.kept, b[:min(len(b), maxOutput-len(o.kept))]...)
	return len(b), nil
}

func (o *boundedOutput) keptText() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.kept)
}

// noInput is the empty input of a script.
type noInput struct{}

func (noInput) Read([]byte) (int, error) { return 0, io.EOF }

func (noInput) Close() error { return nil }
