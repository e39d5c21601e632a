package checks

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"syscall"

	"skerry/fleet"
)

// explainNoAnswer says why a check got no answer from its address, with the cause and what to do.
func (c *check) explainNoAnswer(ctx context.Context, err error) string {
	var request *url.Error
	if errors.As(err, &request) {
		err = request.Err // the text names the address itself
	}
	var operation *net.OpError
	if errors.As(err, &operation) {
		err = operation.Err
	}
	var slow net.Error
	switch {
	case errors.Is(context.Cause(ctx), context.DeadlineExceeded), errors.As(err, &slow) && slow.Timeout():
		err = fleet.Errorf(fleet.CodeUnavailable, "no answer from %s within %s: %w", c.address, c.Timeout, err).
			WithHint("the task may hang, or the check's timeout is too short; see skerry alloc logs %s", fleet.Short(c.alloc))
	case errors.Is(err, syscall.ECONNREFUSED):
		err = fleet.Errorf(fleet.CodeUnavailable, "nothing listens on %s: %w", c.address, err).
			WithHint("the task may still start, or listens on another port or address; see skerry alloc logs %s", fleet.Short(c.alloc))
	default:
		err = fmt.Errorf("no answer from %s: %w", c.address, err)
	}
	return displayText(err.Error())
}

// explainSlowScript says that the command of a script check did not end within its timeout, with what to do and the output
// until then.
func (c *check) explainSlowScript(output string) string {
	err := fleet.Errorf(fleet.CodeUnavailable, "the command did not end within %s", c.Timeout).
		WithHint("it may hang, or the check's timeout is too short; run it with skerry alloc exec %s", fleet.Short(c.alloc))
	return displayText(fmt.Sprintf("%s: %s", err, output))
}
