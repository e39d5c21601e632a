package templates

import (
	"fmt"
	"path/filepath"

	"skerry/edge/runner"
	"skerry/fleet"
)

// block is a template block of a task, or the template that reads one of its secret blocks.
type block struct {
	p    *runner.Preparation
	t    *fleet.Template
	name string // for events and errors
	file string // of its newest rendering
	id   string // by which its encrypted rendering belongs to it, among those of the task
}

// templateBlock returns a template block of a task.
func templateBlock(p *runner.Preparation, i int) block {
	t := &p.Task.Templates[i]
	return block{p, t, templateName(i, t), templateFile(i), fmt.Sprint(i)}
}

func templateName(i int, t *fleet.Template) string {
	return fmt.Sprintf("template %d (%s)", i+1, t.DestPath)
}

func templateFile(i int) string { return fmt.Sprintf("template-%d", i) }

func secretName(s *fleet.Secret) string { return fmt.Sprintf("secret %q", s.Name) }

func secretFile(s *fleet.Secret) string { return "secret-" + s.Name }

// renderingPath returns the file of the newest rendering.
func (b block) renderingPath() string {
	return filepath.Join(filepath.Dir(b.p.Config.StateDir), b.file)
}

// boundTo returns what an encrypted rendering belongs to.
func (b block) boundTo() []byte {
	return fmt.Appendf(nil, "template/%s/%s/%s", b.p.Alloc.ID, b.p.Task.Name, b.id)
}
