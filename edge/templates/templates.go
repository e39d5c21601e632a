package templates

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"time"

	"skerry/drivers"
	"skerry/edge/artifacts"
	"skerry/edge/machinekey"
	"skerry/edge/runner"
	"skerry/fleet"
	"skerry/fleet/template"
	"skerry/internal/pace"
	"skerry/internal/remoteapi"
)

const (
	renderTimeout = 10 * time.Second
	defaultPoll   = 5 * time.Second
)

// Config is the configuration of a Hook.
type Config struct {
	// Services returns the instances of a service that the edge knows, or of all services for "". An error means that
	// there is no answer now. With nil, templates that read services wait for them.
	Services func(ctx context.Context, namespace, name string) ([]fleet.ServiceRegistration, error)
	// Variable returns the items of a variable that the edge has, and Key encrypts renderings that read one. With nil,
	// templates that read variables fail.
	Variable func(namespace, path string) (items map[string]string, ok bool)
	Key      *machinekey.Key
	// Secret returns what Vault has at a path for a task, or lists the path. nil: this edge has no Vault.
	Secret func(ctx context.Context, alloc fleet.AllocID, task *fleet.Task, path string, list bool) (template.Secret, error)
	// Pairs returns keys of Consul for a task. nil: tasks cannot log in to Consul here.
	Pairs func(ctx context.Context, alloc fleet.AllocID, task *fleet.Task, q template.KeyQuery) ([]template.Pair, error)
	// KeepValid renews the tokens of a task of Vault and Consul, and reads again what it has read there, where that is due. It is
	// called at each poll while the task waits for one of them. nil: nothing is renewed meanwhile.
	KeepValid func(ctx context.Context, p *runner.Preparation) error
	// Away returns how long ago a hub answered, for templates with a max_age. With nil they do not age.
	Away   func() time.Duration
	Routes string        // file with the kernel's routes, for sockaddr; "" means /proc/net/route
	Poll   time.Duration // pause between two renderings; 0 means 5 s
	Now    func() time.Time
	Jitter func() float64 // in [0, 1), for splay
	Log    *slog.Logger
}

// Hook renders the templates of tasks. It implements runner.Hook and runner.Watcher.
type Hook struct {
	cfg Config
}

// NewHook makes the hook. It does no I/O.
func NewHook(cfg Config) *Hook {
	cfg.Poll = cmp.Or(cfg.Poll, defaultPoll)
	if cfg.KeepValid == nil {
		cfg.KeepValid = func(context.Context, *runner.Preparation) error { return nil }
	}
	return &Hook{cfg}
}

// Name implements runner.Hook.
func (h *Hook) Name() string { return "templates" }

// Release implements runner.Hook. The renderings end with the allocation's state folder.
func (h *Hook) Release(context.Context, fleet.Alloc) error { return nil }

// Prepare implements runner.Hook: it reads the task's secrets, renders its templates into its folders, and adds the variables
// of those with env.
func (h *Hook) Prepare(ctx context.Context, p *runner.Preparation) error {
	err := h.prepareSecrets(ctx, p)
	for i := 0; err == nil && i < len(p.Task.Templates); i++ {
		err = h.prepareTemplate(ctx, templateBlock(p, i))
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	event := p.Event(fleet.TaskTemplate, err.Error())
	switch fleet.CodeOf(err) {
	case fleet.CodeInvalid, fleet.CodeUnsupported:
		return errors.Join(err, event)
	}
	return errors.Join(drivers.Recoverable(err), event)
}

func (h *Hook) prepareTemplate(ctx context.Context, b block) error {
	if err := h.awaitYoung(ctx, b); err != nil {
		return err
	}
	last, known, err := h.renderOrReuse(ctx, b)
	if err != nil {
		return err
	}
	if b.t.Envvars {
		if err := setVars(b.p, last); err != nil {
			return fmt.Errorf("set the variables of %s: %w", b.name, err)
		}
	}
	if err := h.recordRendering(b, last, known); err != nil {
		return err
	}
	return writeDestination(b, last)
}

// renderOrReuse returns the rendering for the next attempt: a new one, or the newest if the block cannot be rendered now or once is
// enough. known says that there was one before. It waits for a server without which there is none.
func (h *Hook) renderOrReuse(ctx context.Context, b block) (r rendering, known bool, err error) {
	last, known := h.readRendering(b)
	if known && b.t.Once && !b.p.RenderTemplates {
		return last, known, nil
	}
	next, err := h.renderTemplate(ctx, b)
	if !known {
		next, err = h.awaitServer(ctx, b, next, err)
	}
	switch {
	case err == nil:
		next.Pending = !known && runsAtFirst(b.t)
		return next, known, nil
	case !known || ctx.Err() != nil:
		return rendering{}, known, fmt.Errorf("render %s: %w", b.name, err)
	}
	return h.withFailure(last, err), known, b.p.Event(fleet.TaskTemplate, h.staleMessage(b.name, last, err))
}

// recordRendering makes a rendering durable. An older one on the disk is good enough if that fails.
func (h *Hook) recordRendering(b block, r rendering, known bool) error {
	err := h.writeRendering(b, r)
	if err != nil && known {
		h.cfg.Log.Warn("rendering of a template not recorded", "alloc_id", string(b.p.Alloc.ID), "task", b.p.Task.Name, "error", err)
		return nil
	}
	return err
}

// setVars sets the variables of a rendering.
func setVars(p *runner.Preparation, r rendering) error {
	vars, err := parseEnv(r.Text)
	if err != nil {
		return err
	}
	if r.Secret {
		return p.SetSecretVars(vars)
	}
	p.SetVars(vars)
	return nil
}

// RestoreVars implements runner.VarRestorer.
func (h *Hook) RestoreVars(p *runner.Preparation) {
	h.restoreSecrets(p)
	for i := range p.Task.Templates {
		if r, known := h.readRendering(templateBlock(p, i)); known && p.Task.Templates[i].Envvars {
			_ = setVars(p, r) // it was set before
		}
	}
}

// awaitServer renders a template again until Vault or Consul has what it reads, and says once that the task waits. The task's tokens
// are kept valid meanwhile: its watchers do that only once it runs. Other errors, and renderings, are returned as they are.
func (h *Hook) awaitServer(ctx context.Context, b block, next rendering, err error) (rendering, error) {
	said, refused := false, false
	for err != nil && next.away != "" && ctx.Err() == nil {
		if !said {
			said = true
			if err := b.p.Event(fleet.TaskTemplate, fmt.Sprintf("The task waits for %s: render %s: %v", next.away, b.name, err)); err != nil {
				return next, err
			}
		}
		if !pace.Rest(ctx, h.cfg.Poll) {
			return next, context.Cause(ctx)
		}
		if err := h.cfg.KeepValid(ctx, b.p); remoteapi.IsRefused(err) && !refused {
			refused = true
			if err := b.p.Event(fleet.TaskTemplate, fmt.Sprintf("What the task has of %s is not renewed while it waits: %v", next.away, err)); err != nil {
				return next, err
			}
		}
		next, err = h.renderTemplate(ctx, b)
	}
	return next, err
}

// runsAtFirst reports whether the first rendering runs the template's script.
func runsAtFirst(t *fleet.Template) bool {
	return t.ChangeMode == fleet.ChangeScript && t.ChangeScript != nil && t.ChangeScript.RunOnFirstRender
}

// staleMessage says that an older rendering is used, and its age by the edge's wall clock.
func (h *Hook) staleMessage(what string, last rendering, err error) string {
	at := time.Unix(last.At, 0).UTC()
	return fmt.Sprintf("The rendering of %s is used, which is %v old, because %s cannot be rendered now: %v",
		at.Format(time.RFC3339), h.cfg.Now().Sub(at).Round(time.Second), what, err)
}

// renderTemplate renders a template from its sources as they are now.
func (h *Hook) renderTemplate(ctx context.Context, b block) (rendering, error) {
	p, t := b.p, b.t
	text, secret := t.EmbeddedTmpl, false
	if t.SourcePath != "" {
		var err error
		if text, secret, err = readFile(p, t.SourcePath); err != nil {
			return rendering{}, fmt.Errorf("read source %s: %w", t.SourcePath, err)
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, renderTimeout,
		fleet.Errorf(fleet.CodeInvalid, "rendering took longer than %v", renderTimeout))
	defer cancel()
	away := ""
	r, err := template.Render(ctx, template.Text{
		Name: b.name, Text: text, Left: t.LeftDelim, Right: t.RightDelim, MissingKey: t.ErrMissingKey, Secret: secret,
	}, template.Sources{
		Env:       func(name string) (string, bool) { return lookUp(p, name) },
		SecretEnv: p.IsSecretVar,
		File:      func(path string) (string, bool, error) { return readFile(p, path) },
		Services:  func(name string) ([]template.Service, error) { return h.listServices(ctx, p.Alloc.Namespace, name) },
		Addresses: func() (any, map[string]any, error) { return addressFunctions(h.cfg.Routes) },
		Now:       h.cfg.Now,
		Variable: func(path string) (map[string]string, bool) {
			if h.cfg.Variable == nil {
				return nil, false
			}
			return h.cfg.Variable(p.Alloc.Namespace, path)
		},
		VariablePaths: p.Alloc.VariablePaths(p.Task.Name),
		Secret:        h.secretsOf(ctx, p, &away),
		Pairs:         h.pairsOf(ctx, p, &away),
	})
	if err != nil {
		return rendering{away: away}, err
	}
	if r.Secret && t.Envvars {
		if _, err := p.RequireMemory(); err != nil {
			return rendering{}, fleet.Errorf(fleet.CodeOf(err), "it reads a variable, a secret or a file of a secrets folder, and has env = true: %w", err).
				WithHint("render a file in the task's secrets folder, and let the task read it")
		}
	}
	return rendering{
		Secret:  r.Secret,
		Version: renderingVersion, Digest: digestOf(t), Text: r.Text, At: h.cfg.Now().Unix(), Reads: r.Reads || t.SourcePath != "",
	}, nil
}

// secretsOf returns what reads secrets for a task; nil: it has no Vault. It sets away when Vault does not give one now.
func (h *Hook) secretsOf(ctx context.Context, p *runner.Preparation, away *string) func(path string, list bool) (template.Secret, error) {
	if h.cfg.Secret == nil || p.Task.Vault == nil {
		return nil
	}
	return func(path string, list bool) (template.Secret, error) {
		s, err := h.cfg.Secret(ctx, p.Alloc.ID, p.Task, path, list)
		return s, noteAway(ctx, "Vault", err, away)
	}
}

// pairsOf returns what reads keys for a task; nil: it does not log in to Consul. It sets away when Consul does not give them now.
func (h *Hook) pairsOf(ctx context.Context, p *runner.Preparation, away *string) func(q template.KeyQuery) ([]template.Pair, error) {
	if h.cfg.Pairs == nil || !p.Task.LogsInToConsul() {
		return nil
	}
	return func(q template.KeyQuery) ([]template.Pair, error) {
		found, err := h.cfg.Pairs(ctx, p.Alloc.ID, p.Task, q)
		return found, noteAway(ctx, "Consul", err, away)
	}
}

// noteAway sets away if an error says that a server has no answer now, and returns the error for the template.
func noteAway(ctx context.Context, server string, err error, away *string) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil { // the time of the rendering is over: the server is slow, and the template is not wrong
		err = fleet.Errorf(fleet.CodeUnavailable, "%s has not answered in time", server)
	}
	if code := fleet.CodeOf(err); code != fleet.CodeInvalid && code != fleet.CodeUnsupported {
		*away = server
	}
	return err
}

// lookUp returns a variable of the task or a property of its node.
func lookUp(p *runner.Preparation, name string) (string, bool) {
	reference := "${" + name + "}"
	v := p.Replace(reference)
	if v == reference {
		return "", false
	}
	return v, true
}

func (h *Hook) listServices(ctx context.Context, namespace, name string) ([]template.Service, error) {
	if h.cfg.Services == nil {
		return nil, fleet.Errorf(fleet.CodeUnavailable, "this edge has no copy of the services")
	}
	list, err := h.cfg.Services(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	out := make([]template.Service, len(list))
	for i, r := range list {
		out[i] = template.Service{
			ID: r.ID, Name: r.ServiceName, Namespace: r.Namespace, Datacenter: r.Datacenter, Node: string(r.NodeID),
			JobID: string(r.JobID), AllocID: string(r.AllocID), Address: r.Address, Port: r.Port, Tags: r.Tags,
		}
	}
	return out, nil
}

// readFile reads a file of the allocation's folder, and reports whether it lies in the secrets folder of a task. A file outside is a
// fleet.CodeInvalid. The error for a missing file has no such code: the file may appear later.
func readFile(p *runner.Preparation, name string) (text string, secret bool, err error) {
	place, err := artifacts.Destination(p, name, ".")
	if err != nil {
		return "", false, err
	}
	f, err := artifacts.OpenFile(p, place)
	if err != nil {
		return "", false, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if secret, err = leadsToSecrets(filepath.Dir(p.Config.Dir), place); err != nil {
		return "", true, fmt.Errorf("find out whether %s is a secret: %w", name, err)
	}
	b, err := io.ReadAll(io.LimitReader(f, template.MaxBytes+1))
	if err == nil && len(b) > template.MaxBytes {
		err = fleet.Errorf(fleet.CodeInvalid, "the file %s has more than %d MiB", name, template.MaxBytes>>20)
	}
	return string(b), secret, err
}

// leadsToSecrets reports whether a path below a folder lies in the secrets folder of a task, by itself or because a link leads there.
func leadsToSecrets(folder, place string) (bool, error) {
	if artifacts.IsSecret(place) {
		return true, nil
	}
	folder, err := filepath.EvalSymlinks(folder)
	if err != nil {
		return true, err
	}
	real, err := filepath.EvalSymlinks(filepath.Join(folder, filepath.FromSlash(place)))
	if err != nil {
		return true, err
	}
	below, err := filepath.Rel(folder, real)
	return err != nil || artifacts.IsSecret(filepath.ToSlash(below)), err
}
