package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/image"
	"github.com/moby/moby/client"

	"skerry/drivers"
	"skerry/fleet"
	"skerry/internal/sorting"
)

var _ drivers.ImageCollector = (*Driver)(nil)

// leastUnneeded is how long an image must have been unneeded before it is removed, also on a full disk: the allocation
// that replaces an ended one often needs the same image. It is Nomad's image_delay.
const leastUnneeded = 3 * time.Minute

// CollectImages implements drivers.ImageCollector. It asks the daemon nothing unless there is an image to remove.
func (d *Driver) CollectImages(ctx context.Context, c drivers.ImageCollection) ([]string, error) {
	if _, err := os.Stat(d.cfg.Socket); err != nil || d.cfg.DataDir == "" {
		return nil, nil
	}
	list, err := d.changePulled(func(list []pulledImage) ([]pulledImage, bool) { return list, false })
	if err != nil || len(list) == 0 {
		return nil, err
	}
	needed, err := d.neededImages(ctx, c)
	if err != nil {
		return nil, err
	}
	d.unsaved += c.Elapsed
	list, err = d.changePulled(func(list []pulledImage) ([]pulledImage, bool) {
		write := ageImages(list, needed, c.Elapsed)
		return list, write || d.unsaved >= saveInterval && slices.ContainsFunc(list, func(i pulledImage) bool { return i.Unneeded > 0 })
	})
	if err != nil {
		return nil, err
	}
	if d.unsaved >= saveInterval {
		d.unsaved = 0
	}
	isShort := func() bool { return c.IsShort != nil && d.imageRoot() != "" && c.IsShort(d.imageRoot()) }
	due := dueImages(list, c.Delay, isShort())
	if len(due) == 0 {
		return nil, nil
	}
	return d.removeImages(ctx, c, due, isShort)
}

// ageImages adds the elapsed time to the images that no task may need, and begins anew for those that one needs. It
// reports whether one began anew, which must not be forgotten by a restart.
func ageImages(list []pulledImage, needed map[string]bool, elapsed time.Duration) (begunAnew bool) {
	for i := range list {
		if needed[list[i].Name] {
			begunAnew = begunAnew || list[i].Unneeded > 0
			list[i].Unneeded = 0
			continue
		}
		list[i].Unneeded += elapsed
	}
	return begunAnew
}

// dueImages returns the images to remove, the longest unneeded first: those that were unneeded for delay (0: none), and
// if the disk is short all that are not needed.
func dueImages(list []pulledImage, delay time.Duration, short bool) []pulledImage {
	var due []pulledImage
	for _, i := range list {
		if i.Unneeded >= leastUnneeded && (short || isOld(i, delay)) {
			due = append(due, i)
		}
	}
	sorting.Slice(due, func(a, b pulledImage) int {
		return cmp.Or(cmp.Compare(b.Unneeded, a.Unneeded), cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
	return due
}

func isOld(i pulledImage, delay time.Duration) bool { return delay > 0 && i.Unneeded >= delay }

// neededImages returns the names of the images that a task may need, those of starts that are under way included. ""
// stands for an image that only its start knows.
func (d *Driver) neededImages(ctx context.Context, c drivers.ImageCollection) (map[string]bool, error) {
	configs, err := c.Needed(ctx)
	if err != nil {
		return nil, fmt.Errorf("collect images: %w", err)
	}
	needed := map[string]bool{}
	for _, config := range configs {
		name, _ := config["image"].(string)
		if strings.Contains(name, "${") {
			return nil, fleet.Errorf(fleet.CodeConflict, "collect images: the image %s of a task is known only when it starts, so all stay", name)
		}
		if name != "" { // without a name, the task brings its image in a file
			needed[trimTransport(name)] = true
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for name := range d.held {
		needed[name] = true
	}
	return needed, nil
}

// holdImage keeps the image of a start, "" for one of a file, until release is called. While images are removed it waits.
func (d *Driver) holdImage(ctx context.Context, name string) (release func(), err error) {
	for {
		d.mu.Lock()
		removal := d.removal
		if removal == nil {
			d.held[name]++
			d.mu.Unlock()
			return func() { d.releaseImage(name) }, nil
		}
		d.mu.Unlock()
		select {
		case <-removal:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (d *Driver) releaseImage(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.held[name]--; d.held[name] == 0 {
		delete(d.held, name)
	}
}

// beginRemoval makes starts wait until end is called. It returns false if images are removed already, or if a start
// under way loads an image whose name is not known yet.
func (d *Driver) beginRemoval() (end func(), ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.removal != nil || d.held[""] > 0 {
		return nil, false
	}
	removal := make(chan struct{})
	d.removal = removal
	return func() {
		d.mu.Lock()
		d.removal = nil
		d.mu.Unlock()
		close(removal)
	}, true
}

// removeImages removes the images that are due and that nothing uses, and returns their names. It asks before each one
// whether a task needs it now, and whether its disk is still short if only that makes it due.
func (d *Driver) removeImages(ctx context.Context, c drivers.ImageCollection, due []pulledImage, isShort func() bool) ([]string, error) {
	if err := d.ensureConnected(ctx); err != nil {
		return nil, err
	}
	end, ok := d.beginRemoval()
	if !ok {
		return nil, nil
	}
	defer end()
	var removed []string
	var settled, used []pulledImage
	err := func() error {
		for _, i := range due {
			if !isOld(i, c.Delay) && !isShort() {
				continue
			}
			inUse, err := d.usedImages(ctx, c)
			switch {
			case err != nil:
				return err
			case inUse[i.ID]:
				used = append(used, i)
				continue
			}
			gone, err := d.removeImage(ctx, i)
			switch {
			case errdefs.IsConflict(err): // something that this edge does not know needs it
				d.log.Debug("image not removed", "image", cmp.Or(i.Name, i.ID), "error", err)
				used = append(used, i)
				continue
			case err != nil:
				return err
			}
			settled = append(settled, i)
			if gone {
				d.log.Info("image removed: no allocation needs it", "image", i.Name, "image_id", i.ID, "unneeded", i.Unneeded)
				removed = append(removed, cmp.Or(i.Name, i.ID))
			}
		}
		return nil
	}()
	if len(settled)+len(used) > 0 {
		_, failed := d.changePulled(func(list []pulledImage) ([]pulledImage, bool) { return settleImages(list, settled, used), true })
		err = errors.Join(err, failed)
	}
	return removed, err
}

// settleImages drops images from a list, and begins anew for those that are used.
func settleImages(list, settled, used []pulledImage) []pulledImage {
	in := func(some []pulledImage, i pulledImage) bool {
		return slices.ContainsFunc(some, func(other pulledImage) bool { return other.Name == i.Name && other.ID == i.ID })
	}
	list = slices.DeleteFunc(list, func(i pulledImage) bool { return in(settled, i) })
	for i := range list {
		if in(used, list[i]) {
			list[i].Unneeded = 0
		}
	}
	return list
}

// usedImages returns the ids of the images that a task may need, and of those of all containers, whoever made them.
func (d *Driver) usedImages(ctx context.Context, c drivers.ImageCollection) (map[string]bool, error) {
	needed, err := d.neededImages(ctx, c)
	if err != nil {
		return nil, err
	}
	used := map[string]bool{}
	for name := range needed {
		id, err := d.imageID(ctx, name)
		if err != nil {
			return nil, err
		}
		used[id] = true
	}
	containers, err := d.listContainers(ctx)
	for _, c := range containers {
		used[trimAlgorithm(c.ImageID)] = true
	}
	return used, err
}

// removeImage removes an image by its name, or by its id if it has no name any more. gone is false for one that was
// removed before, or that somebody has named since: it is theirs now.
func (d *Driver) removeImage(ctx context.Context, i pulledImage) (gone bool, err error) {
	name := i.Name
	if id := ""; name != "" {
		if id, err = d.imageID(ctx, name); err != nil {
			return false, err
		}
		if id != i.ID {
			name = ""
		}
	}
	if name == "" {
		held, err := d.inspectImage(ctx, i.ID)
		if err != nil || held == nil || slices.ContainsFunc(held.RepoTags, func(tag string) bool { return tag != "" && tag != "<none>:<none>" }) {
			return false, err
		}
		name = i.ID
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	_, err = d.client.ImageRemove(ctx, name, client.ImageRemoveOptions{PruneChildren: true})
	switch {
	case errdefs.IsNotFound(err):
		return false, nil
	case errdefs.IsConflict(err):
		return false, err
	}
	return err == nil, d.daemonError("remove image "+name, err)
}

// imageID returns the id of the image with a name or digest; "" if the daemon has none.
func (d *Driver) imageID(ctx context.Context, name string) (string, error) {
	held, err := d.inspectImage(ctx, name)
	if err != nil || held == nil {
		return "", err
	}
	return trimAlgorithm(held.ID), nil
}

// inspectImage returns the daemon's description of an image, or nil if it has none.
func (d *Driver) inspectImage(ctx context.Context, name string) (*image.InspectResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	held, err := d.client.ImageInspect(ctx, name)
	if errdefs.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, d.daemonError("look for image "+name, err)
	}
	return &held.InspectResponse, nil
}

// imageRoot returns the folder in which the daemon keeps images; "": not known yet.
func (d *Driver) imageRoot() string {
	if known := d.details.Load(); known != nil {
		return known.Root
	}
	return ""
}
