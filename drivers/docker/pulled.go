package docker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/moby/moby/client"

	"skerry/drivers/record"
	"skerry/internal/durable"
)

const (
	// imagesFolder is the folder, below the data directory, with a record of fetched images for each daemon.
	imagesFolder = "images"
	// maxPulled bounds that record. Images beyond it stay on the machine.
	maxPulled = 1000
	// saveInterval is the time of unneeded images that a restart of the agent may lose. It bounds the writes to flash.
	saveInterval = 30 * time.Minute
)

// pulledImage is an image that this driver fetched for its data directory.
type pulledImage struct {
	Name     string        `json:"name"` // as jobs write it; "": another image has got the name since
	ID       string        `json:"id"`   // without "sha256:"
	Unneeded time.Duration `json:"unneeded"`
}

// pulledRecord is the record of all images that this driver fetched and has not removed.
type pulledRecord struct {
	Version int           `json:"version"`
	Folder  string        `json:"folder"` // identity of the data directory: a copy of the directory fetched nothing
	Images  []pulledImage `json:"images"`
}

// ValidateRecord returns an error for an unknown version, too many images, or an image that no request can name.
func (r *pulledRecord) ValidateRecord() error {
	if err := checkVersion(r.Version); err != nil {
		return err
	}
	if len(r.Images) > maxPulled {
		return fmt.Errorf("%d images", len(r.Images))
	}
	for _, i := range r.Images {
		if i.ID == "" || strings.Trim(i.ID, "0123456789abcdef") != "" || i.Unneeded < 0 {
			return fmt.Errorf("the image %.80q has the id %.80q, unneeded for %v", i.Name, i.ID, i.Unneeded)
		}
	}
	return nil
}

// changePulled reads the record of fetched images and lets change replace its list. It writes the result if write says
// so. It returns the new list. Without a data directory there are no such images.
func (d *Driver) changePulled(change func(list []pulledImage) (changed []pulledImage, write bool)) ([]pulledImage, error) {
	if d.cfg.DataDir == "" {
		return nil, nil
	}
	d.recording.Lock()
	defer d.recording.Unlock()
	dir := filepath.Join(d.cfg.DataDir, imagesFolder)
	if d.pulled == nil {
		folder, err := identity(d.cfg.DataDir)
		if err != nil {
			return nil, err
		}
		var r pulledRecord
		err = record.Read(dir, d.cfg.Name+".json", &r)
		if err != nil && !errors.Is(err, record.ErrNone) {
			return nil, err
		}
		if err != nil || r.Folder != folder {
			r = pulledRecord{Version: recordVersion, Folder: folder}
		}
		d.pulled = &r
	}
	next := *d.pulled
	write := false
	if next.Images, write = change(slices.Clone(next.Images)); write {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("record fetched images: %w", err)
		}
		if err := record.Write(durable.Replace, dir, d.cfg.Name+".json", next); err != nil {
			return nil, fmt.Errorf("record fetched images: %w", err)
		}
	}
	d.pulled = &next
	return slices.Clone(next.Images), nil
}

// imagesBefore returns the ids of the images that the daemon has before this driver fetches one; nil if no image is
// recorded.
func (d *Driver) imagesBefore(ctx context.Context) map[string]bool {
	if d.cfg.DataDir == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	list, err := d.client.ImageList(ctx, client.ImageListOptions{All: true})
	if err != nil {
		d.log.Warn("images of the daemon not listed: the one that is fetched now will stay", "error", err)
		return nil
	}
	ids := make(map[string]bool, len(list.Items))
	for _, i := range list.Items {
		ids[trimAlgorithm(i.ID)] = true
	}
	return ids
}

// recordPulled records that an image was fetched, unless the daemon had it before under any name: then it belongs to
// somebody else. An image without a record is never removed, so errors are only logged.
func (d *Driver) recordPulled(ctx context.Context, name string, before map[string]bool) {
	if before == nil {
		return
	}
	id, err := d.imageID(ctx, name)
	if err == nil && id != "" {
		_, err = d.changePulled(func(list []pulledImage) ([]pulledImage, bool) { return addPulled(list, name, id, before[id]) })
	}
	if err != nil {
		d.log.Warn("fetched image not recorded: it will stay", "image", name, "error", err)
	}
}

// addPulled adds a fetched image to a list, and reports whether that changes it. present says that the daemon had the
// image before. An older image of that name in the list has lost the name.
func addPulled(list []pulledImage, name, id string, present bool) ([]pulledImage, bool) {
	ours, changed := !present, false
	for i := range list {
		switch {
		case list[i].ID != id && list[i].Name == name:
			list[i].Name, changed = "", true
		case list[i].ID == id && list[i].Name == name:
			return list, changed
		case list[i].ID == id:
			ours = true
		}
	}
	if !ours || len(list) >= maxPulled {
		return list, changed
	}
	return append(list, pulledImage{Name: name, ID: id}), true
}

func trimAlgorithm(id string) string { return strings.TrimPrefix(id, "sha256:") }
