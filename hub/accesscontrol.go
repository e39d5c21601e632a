package hub

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"skerry/hub/access"
	"skerry/internal/durable"
	"skerry/internal/pace"
)

const (
	// aclFile says that access control is on, so that a hub knows it before it has applied its log again. Until then it
	// would let everybody do everything.
	aclFile = "acl-enabled"
	// aclUnknownFile says that this hub has joined, and has not yet had the log that tells whether access control is on.
	aclUnknownFile = "acl-unknown"
	// aclFileRetry is the pause after a file could not be written.
	aclFileRetry = 5 * time.Second
)

// openAccess makes what resolves the tokens of requests. It serves nobody while this hub cannot know whether access
// control is on.
func (h *Hub) openAccess() error {
	enabled, err := h.hasFile(aclFile)
	if err != nil {
		return err
	}
	if p := h.creds.Pending; p != nil && p.Cluster == nil {
		if err := durable.Replace(h.dir.File(aclUnknownFile), nil, 0o600); err != nil {
			return err
		}
	}
	unknown, err := h.hasFile(aclUnknownFile)
	if err != nil {
		return err
	}
	cfg := access.Config{
		State: h.store, CatchUp: cluster{h}.CatchUp, Enabled: h.cfg.ACLEnabled || enabled, Issuer: h.cfg.OIDCIssuer,
		Now: h.cfg.Now, Log: h.log.With("component", "access"),
	}
	if unknown {
		cfg.Known = h.Ready()
	}
	h.access = access.New(cfg)
	return nil
}

// hasFile reports whether the data directory has a file.
func (h *Hub) hasFile(name string) (bool, error) {
	_, err := os.Stat(h.dir.File(name))
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
	h.changeACLFiles(ctx, h.writeACLFile)
	<-ctx.Done()
	return nil
}

// learnAccessControl removes the file of a hub that joins, once that hub has the log. It returns when ctx ends.
func (h *Hub) learnAccessControl(ctx context.Context) error {
	select {
	case <-h.Ready():
		h.changeACLFiles(ctx, func() error {
			if _, on := h.store.View().ACLBootstrap(); on {
				if err := h.writeACLFile(); err != nil {
					return err
				}
			}
			if err := os.Remove(h.dir.File(aclUnknownFile)); !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			return nil
		})
	case <-ctx.Done():
	}
	<-ctx.Done()
	return nil
}

func (h *Hub) writeACLFile() error {
	return durable.Replace(h.dir.File(aclFile), []byte("access control is on\n"), 0o600)
}

// changeACLFiles calls change until it succeeds or ctx ends.
func (h *Hub) changeACLFiles(ctx context.Context, change func() error) {
	for {
		err := change()
		if err == nil {
			return
		}
		h.log.Error("not written down whether access control is on: trying again", "error", err)
		if !pace.Rest(ctx, aclFileRetry) {
			return
		}
	}
}
