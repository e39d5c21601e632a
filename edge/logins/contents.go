package logins

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"skerry/fleet"
	"skerry/internal/remoteapi"
	"skerry/internal/sorting"
)

// refusedPause is the time until contents are asked for again that the server refuses.
const refusedPause = 5 * time.Minute

// Read returns contents, by the name with which the server finds them. What was read once is kept: it is returned also while
// the server is away. Upkeep reads it again. An error means that there is no answer now, unless it is a fleet.CodeInvalid.
func (k *Keeper) Read(ctx context.Context, t Task, name string) (body []byte, err error) {
	if c, ok := k.heldContent(t, name); ok {
		return c.Body, nil
	}
	h, unlock, err := k.lockTask(ctx, t.recordKey())
	if err != nil {
		return nil, err
	}
	defer unlock()
	if c, ok := k.heldContent(t, name); ok {
		return c.Body, nil
	}
	if k.Token(t) == "" {
		return nil, k.contentError(fleet.CodeUnavailable, name, "the task has no token yet")
	}
	if len(h.Contents) >= maxContents {
		return nil, k.contentError(fleet.CodeInvalid, name, fmt.Sprintf("the task has read %d others: that is the most", maxContents))
	}
	c, err := k.cfg.Server.Read(ctx, h.Record, name)
	if err != nil {
		k.doubtToken(h, err)
		return nil, err
	}
	if err := k.storeContent(ctx, h, c); err != nil {
		return nil, err
	}
	return c.Body, nil
}

// contentError returns an error about contents.
func (k *Keeper) contentError(code fleet.Code, name, why string) error {
	return fleet.Errorf(code, "%s of %s: %s", strings.TrimSuffix(name, "?"), k.cfg.Server.Name(), why)
}

// doubtToken has the token renewed soon if the server refuses what is asked with it: it may have been revoked. What is refused for
// good is no reason to renew the token more than once in maxPause.
func (k *Keeper) doubtToken(h *held, err error) {
	if !remoteapi.IsRefused(err) || remoteapi.IsMissing(err) {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if soon := h.asked.Add(maxPause); soon.Before(h.due) {
		h.due = soon
	}
}

// heldContent returns contents that the task has read before.
func (k *Keeper) heldContent(t Task, name string) (Content, bool) {
	if k.Token(t) == "" {
		return Content{}, false
	}
	h := k.findTask(t.recordKey())
	k.mu.Lock()
	defer k.mu.Unlock()
	i := slices.IndexFunc(h.Contents, func(c Content) bool { return c.Name == name })
	if i < 0 {
		return Content{}, false
	}
	return h.Contents[i], true
}

// storeContent keeps contents that were read now.
func (k *Keeper) storeContent(ctx context.Context, h *held, c Content) error {
	r, size := h.Record, len(c.Name)+len(c.Body)
	r.Contents = []Content{c}
	for _, other := range h.Contents {
		if other.Name == c.Name {
			continue
		}
		r.Contents = append(r.Contents, other)
		size += len(other.Name) + len(other.Body)
	}
	if size > maxSize {
		return k.contentError(fleet.CodeInvalid, c.Name, fmt.Sprintf("what the task reads has more than %d KiB", maxSize>>10))
	}
	sorting.Slice(r.Contents, func(a, b Content) int { return strings.Compare(a.Name, b.Name) })
	if !slices.EqualFunc(r.Contents, h.Contents, func(a, b Content) bool {
		return a.Name == b.Name && a.Lease == b.Lease && bytes.Equal(a.Body, b.Body)
	}) {
		if err := k.storeRecord(ctx, h, r); err != nil {
			return err
		}
	}
	k.setRead(h, c.Name, k.cfg.Server.ContentPause(c))
	return nil
}

func (k *Keeper) setRead(h *held, name string, pause time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	h.reads[name] = time.Now().Add(pause)
	delete(h.denied, name)
}

// renewContents renews the leases that are due, and reads contents again. It ends early if the server is away. The error has each
// refusal for as long as it lasts.
func (k *Keeper) renewContents(ctx context.Context, h *held) (away bool, err error) {
	if h.Record.Token == "" {
		return false, nil
	}
	var failed []error
	for _, c := range slices.Clone(h.Contents) {
		if time.Until(h.reads[c.Name]) > 0 {
			failed = append(failed, h.denied[c.Name])
			continue
		}
		err := k.renewContent(ctx, h, c)
		if err == nil {
			continue
		}
		if failed = append(failed, err); !remoteapi.IsRefused(err) {
			return true, errors.Join(failed...)
		}
		// Others can be read. This one is asked for again with them, and not at once.
		k.setDenied(h, c.Name, err)
		k.doubtToken(h, err)
	}
	return false, errors.Join(failed...)
}

// setDenied records that contents were refused.
func (k *Keeper) setDenied(h *held, name string, err error) {
	k.setRead(h, name, refusedPause)
	k.mu.Lock()
	defer k.mu.Unlock()
	h.denied[name] = err
}

// renewContent renews the lease of contents, or reads them again if they have none or cannot live much longer.
func (k *Keeper) renewContent(ctx context.Context, h *held, c Content) error {
	if c.Lease > 0 {
		left, err := k.cfg.Server.RenewContent(ctx, h.Record, c)
		if err != nil && !remoteapi.IsRefused(err) {
			return err
		}
		if err == nil && left > 0 && 2*left >= c.Lease {
			k.setRead(h, c.Name, LeasePause(left))
			return nil
		}
	}
	next, err := k.cfg.Server.Read(ctx, h.Record, c.Name)
	if err != nil {
		return err
	}
	return k.storeContent(ctx, h, next)
}

// LeasePause is two thirds of a lease in seconds.
func LeasePause(lease int64) time.Duration {
	return max(time.Duration(min(lease, 1<<31))*time.Second*2/3, minRenewal)
}
