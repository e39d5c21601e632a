package docker

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/moby/moby/api/types/registry"
	"github.com/moby/moby/client"

	"skerry/drivers"
	"skerry/fleet"
)

// pull is a pull in progress, which all tasks that need the image wait for.
type pull struct {
	done chan struct{} // closed when it has ended
	err  error         // set before done is closed
}

// ensureImage makes sure that the daemon has a task's image, and returns the name to run. A present image is never
// fetched again, whatever its tag, unless force_pull is set: a machine without a network starts its tasks.
func (d *Driver) ensureImage(ctx context.Context, o *options, cfg drivers.TaskConfig) (string, error) {
	image := trimTransport(o.image)
	if image != "" && !o.forcePull {
		present, err := d.hasImage(ctx, image)
		if err != nil || present {
			return image, err
		}
	}
	if o.load != "" {
		return d.loadImage(ctx, o, cfg, image)
	}
	return image, d.pullShared(ctx, o, image)
}

var _ drivers.ImageFetcher = (*Driver)(nil)

// FetchImage implements drivers.ImageFetcher. An image that a task loads from a file comes with its artifacts.
func (d *Driver) FetchImage(ctx context.Context, config map[string]any) (string, error) {
	o, err := parseOptions(d.cfg.Name, config, true)
	switch {
	case err != nil:
		return "", err
	case o.load != "":
		return "", nil
	case strings.Contains(o.image, "${"):
		return "", fleet.Errorf(fleet.CodeInvalid, "image %s: only an allocation knows its name", o.image).
			WithHint("it is pulled when the allocation starts: use variables of the job and the node")
	}
	if o.pullTimeout <= 0 { // its value has ${…}
		o.pullTimeout = defaultPullTimeout
	}
	if err := d.ensureConnected(ctx); err != nil {
		return "", err
	}
	release, err := d.holdImage(ctx, trimTransport(o.image))
	if err != nil {
		return "", err
	}
	defer release()
	return d.ensureImage(ctx, &o, drivers.TaskConfig{})
}

// hasImage reports whether the daemon has an image with that name or digest.
func (d *Driver) hasImage(ctx context.Context, image string) (bool, error) {
	held, err := d.inspectImage(ctx, image)
	return held != nil, err
}

// pullShared pulls an image, or waits while another task pulls the same one. If the other task gives up, it pulls the
// image itself.
func (d *Driver) pullShared(ctx context.Context, o *options, image string) error {
	for {
		d.mu.Lock()
		p, running := d.pulls[image]
		if !running {
			p = &pull{done: make(chan struct{})}
			d.pulls[image] = p
		}
		d.mu.Unlock()
		if !running {
			p.err = d.pullImage(ctx, o, image)
			d.mu.Lock()
			delete(d.pulls, image)
			d.mu.Unlock()
			close(p.done)
			return p.err
		}
		select {
		case <-p.done:
			if !errors.Is(p.err, context.Canceled) {
				return p.err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// pullImage pulls an image within the task's image_pull_timeout.
func (d *Driver) pullImage(ctx context.Context, o *options, image string) error {
	limited, cancel := context.WithTimeout(ctx, o.pullTimeout)
	defer cancel()
	auth, err := encodeAuth(o.auth)
	if err != nil {
		return err
	}
	before := d.imagesBefore(limited)
	err = d.pullOnce(limited, image, auth)
	if err != nil && auth != "" && o.authSoftFail && limited.Err() == nil { // the image may be public
		with := daemonMessage(err)
		if err = d.pullOnce(limited, image, ""); err != nil {
			err = fmt.Errorf("with the credentials of auth: %s; without: %s", with, daemonMessage(err))
		}
	}
	switch {
	case err == nil:
		d.log.Info("image pulled", "image", image)
		d.recordPulled(ctx, image, before)
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case limited.Err() != nil:
		return drivers.Recoverable(fleet.Errorf(fleet.CodeUnavailable, "pull image %s: not complete within %v", image, o.pullTimeout).
			WithHint("set image_pull_timeout for a slow link"))
	}
	return drivers.Recoverable(fleet.Errorf(fleet.CodeUnavailable, "pull image %s: %s", image, daemonMessage(err)).WithHint("%s", d.pullHint(err)))
}

// pullOnce pulls an image and waits for the end.
func (d *Driver) pullOnce(ctx context.Context, image, auth string) error {
	progress, err := d.client.ImagePull(ctx, image, client.ImagePullOptions{RegistryAuth: auth})
	if err != nil {
		return err
	}
	defer progress.Close()
	return progress.Wait(ctx)
}

// pullHint returns the hint for a failed pull.
func (d *Driver) pullHint(err error) string {
	said := strings.ToLower(err.Error())
	contains := func(parts ...string) bool {
		for _, p := range parts {
			if strings.Contains(said, p) {
				return true
			}
		}
		return false
	}
	switch {
	case contains("short-name"):
		return podmanPullHint
	case contains("unauthorized", "denied", "authentication required", "no basic auth credentials"):
		return "check that the image exists, and the credentials in auth { username, password }"
	case contains("manifest unknown", "not found", "no such image"):
		return "check the image's name and tag: its registry has no such image"
	case contains("verification failed", "did not match", "does not match", "invalid character"):
		return "the registry sent other bytes than the image's digests say: check the digest of the image and the proxies on the way, or push the image again"
	}
	return "the registry must be reachable once; to start without it, load the image beforehand: " + d.cfg.Name + " load --input FILE"
}

// encodeAuth encodes credentials as the daemon reads them; nil gives "".
func encodeAuth(auth *registry.AuthConfig) (string, error) {
	if auth == nil || *auth == (registry.AuthConfig{}) {
		return "", nil
	}
	b, err := json.Marshal(auth)
	if err != nil {
		return "", fmt.Errorf("encode credentials: %w", err)
	}
	return base64.URLEncoding.EncodeToString(b), nil
}

// loadImage loads the image from a tar file in the task's folder, and returns the name that the job gives, or else the
// one in the file.
func (d *Driver) loadImage(ctx context.Context, o *options, cfg drivers.TaskConfig, image string) (string, error) {
	file, inside := resolveInTask(cfg, o.load)
	if !inside {
		return "", fleet.Errorf(fleet.CodeInvalid, "load image from %s: the file is not in the task's folder", o.load).
			WithHint("fetch it with an artifact block, and write load = \"local/FILE\"")
	}
	if info, err := os.Stat(file); err != nil || !info.Mode().IsRegular() {
		return "", fleet.Errorf(fleet.CodeInvalid, "load image from %s: the task's folder has no such file", o.load).
			WithHint("fetch it with an artifact block, and options { archive = \"false\" }, which leaves the archive whole")
	}
	f, err := os.Open(file)
	if err != nil {
		return "", fleet.Errorf(fleet.CodeInvalid, "load image: %w", err).WithHint("let the user of the edge read the file")
	}
	defer f.Close()
	ctx, cancel := context.WithTimeout(ctx, o.pullTimeout)
	defer cancel()
	before := d.imagesBefore(ctx)
	result, err := d.client.ImageLoad(ctx, f)
	if err != nil {
		return "", d.loadError(o.load, err)
	}
	defer result.Close()
	loaded, err := loadedImage(result)
	if err != nil {
		return "", d.loadError(o.load, err)
	}
	if image == "" {
		image = loaded
	}
	d.recordPulled(ctx, loaded, before)
	if present, err := d.hasImage(ctx, image); err != nil || present {
		return image, err
	}
	return "", fleet.Errorf(fleet.CodeInvalid, "load image from %s: the file has the image %q, not %q", o.load, loaded, image).
		WithHint("write the name that the image has in the file")
}

// loadRefusal is the daemon's reason not to take an image from a file.
type loadRefusal string

func (r loadRefusal) Error() string { return string(r) }

// loadError explains why the image in a file was not loaded. A file that is no image is a permanent error.
func (d *Driver) loadError(file string, err error) error {
	doing := "load image from " + file
	said, _, _ := strings.Cut(daemonMessage(err), "\n") // Podman lists all formats that it has tried
	_, refused := errors.AsType[loadRefusal](err)
	switch {
	case strings.Contains(said, "no space left"):
		return drivers.Recoverable(fleet.Errorf(fleet.CodeUnavailable, "%s: %s", doing, said).WithHint("free space on the disk with the daemon's images"))
	case refused || strings.Contains(said, "payload does not match"):
		return fleet.Errorf(fleet.CodeInvalid, "%s: %s", doing, strings.TrimSuffix(said, ":")).
			WithHint("the file must be a whole archive of an image, as %s save makes it: check its size, and checksum in the artifact block", d.cfg.Name)
	}
	return d.daemonError(doing, err)
}

// loadedImage reads the daemon's answer to a load and returns the name or id of the last image in it. The error is a loadRefusal if the
// daemon did not take the file.
func loadedImage(r io.Reader) (string, error) {
	name := ""
	lines := json.NewDecoder(io.LimitReader(r, maxAnswer))
	for {
		var line struct {
			Stream string `json:"stream"`
			Error  string `json:"error"`
		}
		err := lines.Decode(&line)
		switch {
		case errors.Is(err, io.EOF):
			return name, nil
		case err != nil:
			return "", fmt.Errorf("read the daemon's answer: %w", err)
		case line.Error != "":
			return "", loadRefusal(line.Error)
		}
		for _, prefix := range []string{"Loaded image: ", "Loaded image ID: ", "Loaded image(s): "} {
			if found, ok := strings.CutPrefix(strings.TrimSpace(line.Stream), prefix); ok {
				name, _, _ = strings.Cut(found, ",")
			}
		}
	}
}
