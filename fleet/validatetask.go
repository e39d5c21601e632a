package fleet

import (
	"fmt"
	"path"
	"regexp"
	"strconv"
	"strings"
)

// validateParts checks what a task asks for beside its process.
func (t *Task) validateParts(ps *Problems, at string, g *TaskGroup) {
	checkAffinities(ps, at, t.Affinities)
	checkDuration(ps, at+".ShutdownDelay", t.ShutdownDelay)
	t.validateScaling(ps, at)
	if l := t.Lifecycle; l != nil {
		switch l.Hook {
		case HookPrestart, HookPoststart, HookPoststop:
		default:
			ps.addHint(at+".Lifecycle.Hook", "it is prestart, poststart or poststop", "unknown hook %q", l.Hook)
		}
	}
	for i := range t.Artifacts {
		t.Artifacts[i].validateArtifact(ps, fmt.Sprintf("%s.Artifacts[%d]", at, i))
	}
	t.validateTemplates(ps, at)
	if d := t.DispatchPayload; d != nil {
		if d.File == "" {
			ps.add(at+".DispatchPayload.File", "dispatch_payload needs a file")
		} else if escapesFolder("task/local", d.File) {
			ps.add(at+".DispatchPayload.File", "%q lies outside of the allocation's folder", d.File)
		}
	}
	t.validateMounts(ps, at, g)
	if p := t.CSIPluginConfig; p != nil {
		if p.ID == "" {
			ps.add(at+".CSIPluginConfig.ID", "a plugin needs an id")
		}
		switch p.Type {
		case "node", "controller", "monolith":
		default:
			ps.addHint(at+".CSIPluginConfig.Type", "it is node, controller or monolith", "unknown type of plugin %q", p.Type)
		}
	}
	t.validateIdentities(ps, at)
	t.validateActions(ps, at)
	if v := t.Vault; v != nil && v.ChangeMode != ChangeNoop && v.ChangeMode != ChangeSignal && v.ChangeMode != ChangeRestart {
		ps.addHint(at+".Vault.ChangeMode", "it is noop, signal or restart", "unknown change_mode %q", v.ChangeMode)
	}
}

// escapesFolder reports whether a relative name leaves the allocation's folder, from a
// folder in it. What stands in ${…} is only known on the node, and checked there.
func escapesFolder(folder, name string) bool {
	clean := path.Join(folder, strings.TrimLeft(name, "/"))
	return clean == ".." || strings.HasPrefix(clean, "../")
}

func (a *TaskArtifact) validateArtifact(ps *Problems, at string) {
	if a.GetterSource == "" {
		ps.add(at+".GetterSource", "an artifact needs a source")
	}
	switch a.GetterMode {
	case ArtifactAny, ArtifactFile, ArtifactDir:
	default:
		ps.addHint(at+".GetterMode", "it is any, file or dir", "unknown mode %q", a.GetterMode)
	}
	if escapesFolder("task", a.RelativeDest) {
		ps.add(at+".RelativeDest", "%q lies outside of the allocation's folder", a.RelativeDest)
	}
}

func (t *Task) validateTemplates(ps *Problems, at string) {
	seen := map[string]bool{}
	for i := range t.Templates {
		template, path := &t.Templates[i], fmt.Sprintf("%s.Templates[%d]", at, i)
		template.validateTemplate(ps, path)
		if seen[template.DestPath] && template.DestPath != "" {
			ps.add(path+".DestPath", "two templates write %q", template.DestPath)
		}
		seen[template.DestPath] = true
	}
}

func (t *Template) validateTemplate(ps *Problems, at string) {
	if t.SourcePath == "" && t.EmbeddedTmpl == "" {
		ps.add(at, "a template needs a source or data")
	}
	switch {
	case t.DestPath == "":
		ps.add(at+".DestPath", "a template needs a destination")
	case escapesFolder("task", t.DestPath):
		ps.add(at+".DestPath", "%q lies outside of the allocation's folder", t.DestPath)
	}
	switch t.ChangeMode {
	case ChangeNoop, ChangeRestart:
	case ChangeSignal:
		if t.Envvars {
			ps.add(at+".ChangeMode", "a signal cannot change the environment of a process: with env, restart it")
		}
	case ChangeScript:
		if t.ChangeScript == nil || t.ChangeScript.Command == "" {
			ps.add(at+".ChangeScript", "change_mode script needs a change_script with a command")
		}
	default:
		ps.addHint(at+".ChangeMode", "it is noop, signal, script or restart", "unknown change_mode %q", t.ChangeMode)
	}
	checkDuration(ps, at+".Splay", t.Splay)
	if _, err := strconv.ParseUint(t.Perms, 8, 12); err != nil {
		ps.add(at+".Perms", "%q is no octal number of permissions", t.Perms)
	}
	if w := t.Wait; w != nil && w.Min != nil && w.Max != nil && *w.Min > *w.Max {
		ps.add(at+".Wait", "min of %s is more than max of %s", *w.Min, *w.Max)
	}
}

func (t *Task) validateMounts(ps *Problems, at string, g *TaskGroup) {
	for i, m := range t.VolumeMounts {
		path := fmt.Sprintf("%s.VolumeMounts[%d]", at, i)
		if v, ok := g.Volumes[m.Volume]; !ok || v.Type != VolumeHost && v.Type != VolumeCSI {
			ps.add(path+".Volume", "the group has no volume %q", m.Volume)
		}
		if m.Destination == "" {
			ps.add(path+".Destination", "a volume_mount needs a destination")
		}
		switch m.PropagationMode {
		case "private", "host-to-task", "bidirectional":
		default:
			ps.addHint(path+".PropagationMode", "it is private, host-to-task or bidirectional", "unknown mode %q", m.PropagationMode)
		}
	}
}

var identityName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,128}$`)

func (t *Task) validateIdentities(ps *Problems, at string) {
	if t.Identity != nil {
		t.Identity.validateIdentity(ps, at+".Identity")
	}
	seen := map[string]bool{DefaultIdentity: t.Identity != nil}
	for i := range t.Identities {
		w, path := &t.Identities[i], fmt.Sprintf("%s.Identities[%d]", at, i)
		w.validateIdentity(ps, path)
		if seen[w.Name] {
			ps.add(path+".Name", "identity %q is there twice", w.Name)
		}
		seen[w.Name] = true
	}
}

func (w *WorkloadIdentity) validateIdentity(ps *Problems, at string) {
	if !identityName.MatchString(w.Name) {
		ps.add(at+".Name", "%q cannot name an identity: letters, digits, dashes and underscores", w.Name)
	}
	checkDuration(ps, at+".TTL", w.TTL)
	switch w.ChangeMode {
	case "", ChangeNoop, ChangeSignal, ChangeRestart:
	default:
		ps.addHint(at+".ChangeMode", "it is noop, signal or restart", "unknown change_mode %q", w.ChangeMode)
	}
	if w.Filepath != "" && escapesFolder("task", w.Filepath) {
		ps.add(at+".Filepath", "%q lies outside of the allocation's folder", w.Filepath)
	}
}

// actionName is what Nomad takes, but for what a terminal would not show.
var actionName = regexp.MustCompile(`^[^\s\pC]{1,128}$`)

func (t *Task) validateActions(ps *Problems, at string) {
	seen := map[string]bool{}
	for i, a := range t.Actions {
		path := fmt.Sprintf("%s.Actions[%d]", at, i)
		if !actionName.MatchString(a.Name) {
			ps.add(path+".Name", "%q cannot name an action: at most 128 characters, and no spaces", a.Name)
		}
		if seen[a.Name] {
			ps.add(path+".Name", "action %q is there twice", a.Name)
		}
		seen[a.Name] = true
		if a.Command == "" {
			ps.add(path+".Command", "action %q needs a command", a.Name)
		}
	}
}

// validateDevices checks hardware that the task needs.
func (t *Task) validateDevices(ps *Problems, at string) {
	for i, d := range t.Resources.Devices {
		path := fmt.Sprintf("%s.Resources.Devices[%d]", at, i)
		if d.Name == "" || strings.Count(d.Name, "/") > 2 {
			ps.add(path+".Name", "%q cannot name a device: TYPE, VENDOR/TYPE or VENDOR/TYPE/NAME", d.Name)
		}
		if d.Count < 1 {
			ps.add(path+".Count", "must be at least 1, not %d", d.Count)
		}
		for k, a := range d.Affinities {
			if a.Weight < -100 || a.Weight > 100 || a.Weight == 0 {
				ps.add(fmt.Sprintf("%s.Affinities[%d].Weight", path, k), "must be between -100 and 100, and not 0: %d", a.Weight)
			}
		}
	}
}
