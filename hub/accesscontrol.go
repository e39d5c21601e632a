package hub

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"skerry/internal/durable"
	"skerry/internal/pace"
)

const (
	// aclFile says that access control is on, so that a hub knows it before it has applied its log again. Until then it
	// would let everybody do everything.
	aclFile = "acl-enabled"
	// aclFileRetry is the pause after the file could not be written.
	aclFileRetry = 5 * time.Second
)

// hadAccessControl reports whether access control was on when this hub ran before.
func (h *Hub) hadAccessControl() (bool, error) {
	_, err := os.Stat(h.dir.File(aclFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("find out whether access control is on: %w", err)
	}
	return true, nil
}

// rememberAccessControl writes the file once access control is on. It returns when ctx ends.
func (h *Hub) rememberAccessControl(ctx context.Context) error {
	for {
		v := h.store.Watch()
		if _, on := v.ACLBootstrap(); on {
			break
		}
		if v.Changed(ctx) != nil {
			return nil
		}
	}
	for {
		err := durable.Replace(h.dir.File(aclFile), []byte("access control is on\n"), 0o600)
		if err == nil {
			break
		}
		h.log.Error("not written down that access control is on: trying again", "error", err)
		if !pace.Rest(ctx, aclFileRetry) {
			return nil
		}
	}
	<-ctx.Done()
	return nil
}
