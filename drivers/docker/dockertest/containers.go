package dockertest

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"
)

// applets are the busybox commands in the image that Busybox makes.
var applets = []string{"sh", "sleep", "cat", "date", "echo", "dd", "id", "hostname", "ls", "kill", "true", "stty", "seq", "tail"}

// Busybox returns the file system of an image with busybox, as a tar. Different marks give different layers.
func Busybox(mark string) ([]byte, error) {
	path, err := exec.LookPath("busybox")
	if err != nil {
		return nil, fmt.Errorf("make an image: %w", err)
	}
	program, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("make an image: %w", err)
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	add := func(h tar.Header, content []byte) {
		h.Size = int64(len(content))
		failed := w.WriteHeader(&h)
		_, short := w.Write(content)
		err = errors.Join(err, failed, short)
	}
	for _, dir := range []string{"./", "bin/", "etc/"} { // Podman makes some that their owner cannot remove
		add(tar.Header{Name: dir, Mode: 0o755, Typeflag: tar.TypeDir}, nil)
	}
	add(tar.Header{Name: "bin/busybox", Mode: 0o755}, program)
	for _, name := range applets {
		add(tar.Header{Name: "bin/" + name, Typeflag: tar.TypeSymlink, Linkname: "busybox"}, nil)
	}
	add(tar.Header{Name: "etc/passwd", Mode: 0o644}, []byte("root:x:0:0::/:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n"))
	add(tar.Header{Name: "etc/mark", Mode: 0o644}, []byte(mark))
	add(tar.Header{Name: "tmp/", Mode: 0o1777, Typeflag: tar.TypeDir}, nil)
	if err := errors.Join(err, w.Close()); err != nil {
		return nil, fmt.Errorf("make an image: %w", err)
	}
	return b.Bytes(), nil
}

// Import gives the daemon an image with a file system, and with changes written as Dockerfile instructions.
func (d *Daemon) Import(ctx context.Context, image string, files []byte, changes ...string) error {
	answer, err := d.client.ImageImport(ctx, client.ImageImportSource{Source: bytes.NewReader(files), SourceName: "-"}, image,
		client.ImageImportOptions{Changes: changes})
	if err != nil {
		return fmt.Errorf("import image %s into %s: %w", image, d.Name, err)
	}
	defer answer.Close()
	if _, err := io.Copy(io.Discard, answer); err != nil {
		return fmt.Errorf("import image %s into %s: %w", image, d.Name, err)
	}
	return nil
}

// ImportBusybox gives the daemon a busybox image, unless it already has an image of that name.
func (d *Daemon) ImportBusybox(ctx context.Context, image string) error {
	if _, err := d.client.ImageInspect(ctx, image); err == nil {
		return nil
	} else if !errdefs.IsNotFound(err) {
		return fmt.Errorf("look for image %s in %s: %w", image, d.Name, err)
	}
	files, err := Busybox("")
	if err != nil {
		return err
	}
	return d.Import(ctx, image, files)
}

// RemoveContainers removes all containers, also running ones, and returns their number.
func (d *Daemon) RemoveContainers(ctx context.Context) (removed int, err error) {
	err = d.forEachContainer(ctx, func(id string) error {
		_, err := d.client.ContainerRemove(ctx, id, client.ContainerRemoveOptions{Force: true})
		if err == nil {
			removed++
		}
		return err
	})
	return removed, err
}

// forEachContainer calls do for each container and joins the errors. A container that vanishes meanwhile is no error.
func (d *Daemon) forEachContainer(ctx context.Context, do func(id string) error) error {
	list, err := d.client.ContainerList(ctx, client.ContainerListOptions{All: true})
	if err != nil {
		return fmt.Errorf("list the containers of %s: %w", d.Name, err)
	}
	var errs []error
	for _, c := range list.Items {
		if err := do(c.ID); err != nil && !errdefs.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("container %s of %s: %w", c.ID, d.Name, err))
		}
	}
	return errors.Join(errs...)
}
