package oci

import (
	"cmp"
	"context"
	"os"
	"path/filepath"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"skerry/drivers"
	"skerry/drivers/supervised"
	"skerry/fleet"
)

// layersDir is the folder, in the state folder of a task, with the writable layer of its root.
const layersDir = "layers"

// mountPoints are folders that every container has, with their modes. An image without them gets them.
var mountPoints = map[string]os.FileMode{"dev": 0o755, "proc": 0o755, "sys": 0o755, "etc": 0o755, "tmp": 0o777 | os.ModeSticky, "alloc": 0o755, "local": 0o755, "secrets": 0o755}

// applyImage unpacks the image of a program and fills in what the image says and the task does not. It returns the
// folder of the image's root.
func (i *Isolation) applyImage(ctx context.Context, cfg drivers.TaskConfig, p *Program) (string, error) {
	img, root, err := i.unpackImage(ctx, cfg, p.Image)
	if err != nil {
		return "", err
	}
	if p.Command == "" {
		argv := img.config.Entrypoint
		if p.Args == nil {
			p.Args = img.config.Cmd
		}
		if argv = append(append([]string{}, argv...), p.Args...); len(argv) == 0 || argv[0] == "" {
			return "", fleet.Errorf(fleet.CodeInvalid, "use the image %s: it names no program", p.Image).WithHint("write command in the task's config")
		}
		p.Command, p.Args = argv[0], argv[1:]
	}
	p.WorkDir = cmp.Or(p.WorkDir, img.config.WorkingDir)
	if !filepath.IsAbs(p.WorkDir) {
		p.WorkDir = filepath.Join("/", p.WorkDir)
	}
	p.User = cmp.Or(p.User, img.config.User)
	p.Env = supervised.Environment(append([]string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}, img.config.Env...), cfg.Env)
	return root, nil
}

// findUser returns a user of an image, or of the machine for "".
func findUser(root, name string) (*supervised.User, error) {
	if root == "" {
		return supervised.FindUser(name)
	}
	if name == DefaultUser {
		if u, err := userOfImage(root, name); err == nil {
			return u, nil
		}
		name = "65534:65534" // the image has no accounts
	}
	return userOfImage(root, name)
}

// layOver returns the layers of a task's root over an image. The root is read-only where no overlay file system can be
// mounted.
func (b *bundle) layOver(root string) (*supervised.Layers, error) {
	dir := filepath.Join(b.cfg.StateDir, layersDir)
	if err := os.RemoveAll(dir); err != nil { // of an earlier container of this attempt
		return nil, drivers.Recoverable(err)
	}
	for _, m := range b.cfg.Mounts {
		if propagationOption(m.Propagation) == "rshared" {
			return nil, fleet.Errorf(fleet.CodeInvalid, "the volume at %s has the propagation bidirectional, which a task with an image cannot have", m.Target)
		}
	}
	l := &supervised.Layers{Lower: root, Upper: filepath.Join(dir, "upper"), Work: filepath.Join(dir, "work"), Root: filepath.Join(dir, "root")}
	if l.TryMount() != nil {
		l.Upper, l.Work = "", ""
	}
	return l, nil
}

// rootOf returns the root of the container.
func (b *bundle) rootOf(c *supervised.Container) *specs.Root {
	if c.Layers == nil {
		return &specs.Root{Path: b.cfg.Dir}
	}
	return &specs.Root{Path: c.Layers.Root, Readonly: c.Layers.Upper == ""}
}
