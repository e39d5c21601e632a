package validate

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"skerry/fleet"
	"skerry/fleet/template"
)

// reserved are names of folders that an allocation has beside those of its tasks.
var reserved = []string{"alloc", ".", ".."}

var signalName = regexp.MustCompile(`^SIG[A-Z0-9]+([+-][0-9]+)?$`)

func validateTask(t *fleet.Task, ps *fleet.Problems, path string, g *fleet.TaskGroup) {
	checkName(ps, path+".Name", "a task", t.Name, fleet.MaxNameLength)
	if strings.ContainsAny(t.Name, `/\`) {
		ps.Add(path+".Name", "a task's name may not contain slashes: it names a folder")
	}
	if slices.Contains(reserved, t.Name) {
		ps.Add(path+".Name", "a task may not be named %q: that folder is the allocation's own", t.Name)
	}
	if t.Driver == "" {
		ps.Add(path+".Driver", "task %q needs a driver", t.Name)
	}
	for _, k := range slices.Sorted(maps.Keys(t.Env)) {
		if k == "" || strings.ContainsAny(k, "=\x00") {
			ps.Add(path+".Env", "%q cannot name a variable", k)
		}
		if strings.ContainsRune(t.Env[k], 0) {
			ps.Add(path+".Env."+k, "a variable may not contain a NUL")
		}
	}
	checkMeta(ps, path+".Meta", t.Meta)
	for i, c := range t.Constraints {
		if c.Operand == fleet.OpDistinctHosts || c.Operand == fleet.OpDistinctProp {
			ps.Add(fmt.Sprintf("%s.Constraints[%d].Operand", path, i),
				"%s concerns whole allocations: it belongs to the job or the group", c.Operand)
		}
	}
	if t.RestartPolicy != nil && (g.RestartPolicy == nil || *t.RestartPolicy != *g.RestartPolicy) {
		validateRestart(ps, path+".RestartPolicy", t.RestartPolicy)
	}
	checkDuration(ps, path+".KillTimeout", t.KillTimeout)
	if t.KillSignal != "" && !signalName.MatchString(t.KillSignal) {
		ps.AddHint(path+".KillSignal", "SIGTERM, SIGINT, …", "%q is not the name of a signal", t.KillSignal)
	}
	validateTaskParts(t, ps, path, g)
	validateResources(t, ps, path, g)
}

func validateResources(t *fleet.Task, ps *fleet.Problems, path string, g *fleet.TaskGroup) {
	switch r := t.Resources; {
	case r.Cores < 0:
		ps.Add(path+".Resources.Cores", "may not be negative: %d", r.Cores)
	case r.Cores > 0 && r.CPU > 0:
		ps.Add(path+".Resources.Cores", "a task asks for cpu or for cores, not for both")
	case r.Cores == 0 && r.CPU < fleet.MinCPU:
		ps.Add(path+".Resources.CPU", "must be at least %d MHz, not %d", fleet.MinCPU, r.CPU)
	}
	if most := t.Resources.MemoryMaxMB; most != 0 && most != -1 && most < t.Resources.MemoryMB {
		ps.Add(path+".Resources.MemoryMaxMB", "%d MB is less than the memory of %d MB", most, t.Resources.MemoryMB)
	}
	checkNotNegative(ps, path+".Resources.SecretsMB", t.Resources.SecretsMB)
	checkNetworks(ps, path+".Resources.Networks", t.Resources.Networks)
	validateDevices(t, ps, path)
	if t.Resources.MemoryMB < fleet.MinMemoryMB {
		ps.Add(path+".Resources.MemoryMB", "must be at least %d MB, not %d", fleet.MinMemoryMB, t.Resources.MemoryMB)
	}
	checkNotNegative(ps, path+".Resources.DiskMB", t.Resources.DiskMB)
	l := t.LogConfig
	if l.MaxFiles < 1 || l.MaxFiles > fleet.MaxLogFiles {
		ps.Add(path+".LogConfig.MaxFiles", "must be between 1 and %d, not %d", fleet.MaxLogFiles, l.MaxFiles)
		return
	}
	if l.MaxFileSizeMB < 1 {
		ps.Add(path+".LogConfig.MaxFileSizeMB", "must be at least 1 MB, not %d", l.MaxFileSizeMB)
		return
	}
	if logs := int64(l.MaxFiles) * int64(l.MaxFileSizeMB); logs >= int64(g.EphemeralDisk.SizeMB) {
		ps.AddHint(path+".LogConfig", "raise the group's ephemeral_disk, or keep fewer logs",
			"task %q may write %d MB of logs, and its group has %d MB of disk", t.Name, logs, g.EphemeralDisk.SizeMB)
	}
}

// validateTaskParts checks what a task asks for beside its process.
func validateTaskParts(t *fleet.Task, ps *fleet.Problems, at string, g *fleet.TaskGroup) {
	checkAffinities(ps, at, t.Affinities)
	checkDuration(ps, at+".ShutdownDelay", t.ShutdownDelay)
	validateScaling(t, ps, at)
	if l := t.Lifecycle; l != nil {
		checkOneOf(ps, at+".Lifecycle.Hook", "it is prestart, poststart or poststop", "unknown hook", l.Hook,
			fleet.HookPrestart, fleet.HookPoststart, fleet.HookPoststop)
	}
	for i := range t.Artifacts {
		validateArtifact(&t.Artifacts[i], ps, fmt.Sprintf("%s.Artifacts[%d]", at, i))
	}
	validateTemplates(t, ps, at)
	if d := t.DispatchPayload; d != nil {
		if d.File == "" {
			ps.Add(at+".DispatchPayload.File", "dispatch_payload needs a file")
		} else if escapesFolder("task/local", d.File) {
			ps.Add(at+".DispatchPayload.File", "%q lies outside of the allocation's folder", d.File)
		}
	}
	validateMounts(t, ps, at, g)
	if p := t.CSIPluginConfig; p != nil {
		if p.ID == "" {
			ps.Add(at+".CSIPluginConfig.ID", "a plugin needs an id")
		}
		checkOneOf(ps, at+".CSIPluginConfig.Type", "it is node, controller or monolith", "unknown type of plugin", p.Type,
			"node", "controller", "monolith")
	}
	validateIdentities(t, ps, at)
	validateActions(t, ps, at)
	validateVault(t.Vault, ps, at+".Vault")
	validateSecrets(t, ps, at)
}

// maxVaultName bounds the role and the namespace of a vault block, in bytes.
const maxVaultName = 512

func validateVault(v *fleet.Vault, ps *fleet.Problems, at string) {
	if v == nil {
		return
	}
	checkOneOf(ps, at+".ChangeMode", "it is noop, signal or restart", "unknown change_mode", v.ChangeMode,
		fleet.ChangeNoop, fleet.ChangeSignal, fleet.ChangeRestart)
	if v.ChangeMode == fleet.ChangeSignal && !signalName.MatchString(v.ChangeSignal) {
		ps.AddHint(at+".ChangeSignal", "SIGHUP, SIGUSR1, …", "%q is not the name of a signal", v.ChangeSignal)
	}
	for field, name := range map[string]string{"Role": v.Role, "Namespace": v.Namespace} {
		if len(name) > maxVaultName || strings.ContainsFunc(name, unicode.IsControl) {
			ps.Add(at+"."+field, "%.64q cannot be one of Vault: at most %d bytes, and no control characters", name, maxVaultName)
		}
	}
}

// escapesFolder reports whether a relative name leaves the allocation's folder, from a
// folder in it. What stands in ${…} is only known on the node, and checked there.
func escapesFolder(folder, name string) bool {
	clean := path.Join(folder, strings.TrimLeft(name, "/"))
	return clean == ".." || strings.HasPrefix(clean, "../")
}

func validateArtifact(a *fleet.TaskArtifact, ps *fleet.Problems, at string) {
	if a.GetterSource == "" {
		ps.Add(at+".GetterSource", "an artifact needs a source")
	}
	if getter, _, forced := strings.Cut(a.GetterSource, "::"); forced && slices.Contains([]string{"hg", "gcs", "oci"}, getter) {
		ps.AddHint(at+".GetterSource", "write oci://HOST/REPOSITORY:TAG, or offer it over https, git or s3", "%s:: is not supported", getter)
	}
	for _, name := range []string{"aws_profile"} {
		if a.GetterOptions[name] != "" {
			ps.AddHint(at+".GetterOptions."+name, "write aws_access_key_id and aws_access_key_secret", "%s is not supported yet", name)
		}
	}
	checkOneOf(ps, at+".GetterMode", "it is any, file or dir", "unknown mode", a.GetterMode,
		fleet.ArtifactAny, fleet.ArtifactFile, fleet.ArtifactDir)
	if escapesFolder("task", a.RelativeDest) {
		ps.Add(at+".RelativeDest", "%q lies outside of the allocation's folder", a.RelativeDest)
	}
}

func validateTemplates(t *fleet.Task, ps *fleet.Problems, at string) {
	seen := map[string]bool{}
	for i := range t.Templates {
		block, path := &t.Templates[i], fmt.Sprintf("%s.Templates[%d]", at, i)
		validateTemplate(block, ps, path)
		if t.Vault == nil && template.ReadsVault(textOf(block)) {
			ps.AddHint(path+".EmbeddedTmpl", "add one: vault {}", "it reads a secret of Vault, and the task has no vault block")
		}
		if !t.LogsInToConsul() && template.ReadsConsul(textOf(block)) {
			ps.AddHint(path+".EmbeddedTmpl", "add one: consul {}", "it reads a key of Consul, and the task has no consul block")
		}
		if seen[block.DestPath] && block.DestPath != "" {
			ps.Add(path+".DestPath", "two templates write %q", block.DestPath)
		}
		seen[block.DestPath] = true
	}
}

func validateTemplate(t *fleet.Template, ps *fleet.Problems, at string) {
	if t.SourcePath == "" && t.EmbeddedTmpl == "" {
		ps.Add(at, "a template needs a source or data")
	}
	switch {
	case t.DestPath == "":
		ps.Add(at+".DestPath", "a template needs a destination")
	case escapesFolder("task", t.DestPath):
		ps.Add(at+".DestPath", "%q lies outside of the allocation's folder", t.DestPath)
	}
	switch t.ChangeMode {
	case fleet.ChangeNoop, fleet.ChangeRestart:
	case fleet.ChangeSignal:
		if t.Envvars {
			ps.Add(at+".ChangeMode", "a signal cannot change the environment of a process: with env, restart it")
		}
	case fleet.ChangeScript:
		if t.ChangeScript == nil || t.ChangeScript.Command == "" {
			ps.Add(at+".ChangeScript", "change_mode script needs a change_script with a command")
		}
	default:
		ps.AddHint(at+".ChangeMode", "it is noop, signal, script or restart", "unknown change_mode %q", t.ChangeMode)
	}
	if t.ChangeMode == fleet.ChangeSignal && !signalName.MatchString(t.ChangeSignal) {
		ps.AddHint(at+".ChangeSignal", "SIGHUP, SIGUSR1, …", "%q is not the name of a signal", t.ChangeSignal)
	}
	if t.EmbeddedTmpl != "" {
		// Functions that do not work here are found by Unsupported.
		if e := checkTemplate(t); e != nil && e.Code != fleet.CodeUnsupported {
			ps.AddHint(at+".EmbeddedTmpl", e.Hint, "%s", e.Message)
		}
	}
	checkDuration(ps, at+".Splay", t.Splay)
	if t.MaxAge != 0 && t.MaxAge < minTemplateAge {
		ps.AddHint(at+".MaxAge", "heartbeats may be minutes apart; leave it out for a rendering that is used as long as it takes", "max_age of %s is less than %s", t.MaxAge, minTemplateAge)
	}
	if t.MaxAgeSignal != "" && t.MaxAge == 0 {
		ps.Add(at+".MaxAgeSignal", "max_age_signal needs a max_age")
	}
	if t.MaxAgeSignal != "" && !signalName.MatchString(t.MaxAgeSignal) {
		ps.AddHint(at+".MaxAgeSignal", "SIGHUP, SIGUSR1, …", "%q is not the name of a signal", t.MaxAgeSignal)
	}
	if _, err := strconv.ParseUint(t.Perms, 8, 12); err != nil {
		ps.Add(at+".Perms", "%q is not an octal file mode", t.Perms)
	}
	if w := t.Wait; w != nil && w.Min != nil && w.Max != nil && *w.Min > *w.Max {
		ps.Add(at+".Wait", "min of %s is more than max of %s", *w.Min, *w.Max)
	}
}

// minTemplateAge is the least max_age of a template: more than the longest pause between two heartbeats of a small fleet.
const minTemplateAge = time.Minute

// checkTemplate returns what is wrong with the text of a template; nil: nothing.
func checkTemplate(t *fleet.Template) *fleet.Error {
	return fleet.AsError(template.Check(textOf(t)))
}

func textOf(t *fleet.Template) template.Text {
	return template.Text{Text: t.EmbeddedTmpl, Left: t.LeftDelim, Right: t.RightDelim}
}

func validateMounts(t *fleet.Task, ps *fleet.Problems, at string, g *fleet.TaskGroup) {
	for i, m := range t.VolumeMounts {
		path := fmt.Sprintf("%s.VolumeMounts[%d]", at, i)
		if v, ok := g.Volumes[m.Volume]; !ok || v.Type != fleet.VolumeHost && v.Type != fleet.VolumeCSI {
			ps.Add(path+".Volume", "the group has no volume %q", m.Volume)
		}
		if m.Destination == "" {
			ps.Add(path+".Destination", "a volume_mount needs a destination")
		}
		checkOneOf(ps, path+".PropagationMode", "it is private, host-to-task or bidirectional", "unknown mode", m.PropagationMode,
			"private", "host-to-task", "bidirectional")
	}
}

// minIdentityTTL is the shortest ttl of an identity: a hub signs it again when half of it is over.
const minIdentityTTL = 5 * time.Second

// maxAudience bounds the audiences of an identity, in bytes: tokens are sent in headers.
const maxAudience = 2 << 10

func validateIdentities(t *fleet.Task, ps *fleet.Problems, at string) {
	if t.Identity != nil {
		validateIdentity(t.Identity, ps, at+".Identity")
	}
	seen := map[string]bool{fleet.DefaultIdentity: t.Identity != nil}
	for i := range t.Identities {
		w, field := &t.Identities[i], fmt.Sprintf("%s.Identities[%d]", at, i)
		validateIdentity(w, ps, field)
		if seen[w.Name] {
			ps.Add(field+".Name", "identity %q is defined twice", w.Name)
		}
		seen[w.Name] = true
	}
	files := map[string]string{}
	for _, w := range t.ExposedIdentities() {
		file := path.Clean(w.FilePath())
		if other, taken := files[file]; taken {
			ps.Add(at+".Identities", "the identities %q and %q write the same file %s", other, w.Name, file)
		}
		files[file] = w.Name
	}
}

func validateIdentity(w *fleet.WorkloadIdentity, ps *fleet.Problems, at string) {
	if !fleet.IsName(w.Name, 128, "_-") {
		ps.Add(at+".Name", "%q cannot name an identity: letters, digits, dashes and underscores", w.Name)
	}
	if fleet.IsServiceIdentity(w.Name) {
		ps.Add(at+".Name", "%q is the name of an identity of a service", w.Name)
	}
	validateIdentityTimes(w, ps, at)
	if w.ChangeSignal != "" && !signalName.MatchString(w.ChangeSignal) {
		ps.Add(at+".ChangeSignal", "%q is not the name of a signal", w.ChangeSignal)
	}
	checkOneOf(ps, at+".ChangeMode", "it is noop, signal or restart", "unknown change_mode", w.ChangeMode,
		"", fleet.ChangeNoop, fleet.ChangeSignal, fleet.ChangeRestart)
	if w.Filepath != "" && escapesFolder("task", w.Filepath) {
		ps.Add(at+".Filepath", "%q lies outside of the allocation's folder", w.Filepath)
	}
}

// validateIdentityTimes checks the audiences of an identity, and how long its tokens are valid.
func validateIdentityTimes(w *fleet.WorkloadIdentity, ps *fleet.Problems, at string) {
	checkDuration(ps, at+".TTL", w.TTL)
	if n := len(strings.Join(w.Audience, "")); n > maxAudience {
		ps.Add(at+".Audience", "the audiences have %d bytes: at most %d are allowed", n, maxAudience)
	}
	if w.TTL > 0 && w.TTL < minIdentityTTL {
		ps.Add(at+".TTL", "%s is too short: at least %s", w.TTL, minIdentityTTL)
	}
	if w.Offline && w.TTL == 0 {
		ps.Add(at+".TTL", "an offline identity needs a ttl: its edge signs it for that long")
	}
}

// maxActionName bounds the name of an action, in characters.
const maxActionName = 128

// isActionName reports whether an action may have that name: one that Nomad takes, without what a terminal does not
// show. It is no regular expression, because compiling that took 53 ms and 5 MiB in each process that is started.
func isActionName(name string) bool {
	n := utf8.RuneCountInString(name)
	return n > 0 && n <= maxActionName && !strings.ContainsFunc(name, func(r rune) bool {
		return strings.ContainsRune("\t\n\f\r ", r) || unicode.Is(unicode.C, r)
	})
}

func validateActions(t *fleet.Task, ps *fleet.Problems, at string) {
	seen := map[string]bool{}
	for i, a := range t.Actions {
		path := fmt.Sprintf("%s.Actions[%d]", at, i)
		if !isActionName(a.Name) {
			ps.Add(path+".Name", "%q cannot name an action: at most 128 characters, and no spaces", a.Name)
		}
		if seen[a.Name] {
			ps.Add(path+".Name", "action %q is defined twice", a.Name)
		}
		seen[a.Name] = true
		if a.Command == "" {
			ps.Add(path+".Command", "action %q needs a command", a.Name)
		}
	}
}

// validateDevices checks hardware that the task needs.
func validateDevices(t *fleet.Task, ps *fleet.Problems, at string) {
	for i, d := range t.Resources.Devices {
		path := fmt.Sprintf("%s.Resources.Devices[%d]", at, i)
		if d.Name == "" || strings.Count(d.Name, "/") > 2 {
			ps.Add(path+".Name", "%q cannot name a device: TYPE, VENDOR/TYPE or VENDOR/TYPE/NAME", d.Name)
		}
		if d.Count < 1 {
			ps.Add(path+".Count", "must be at least 1, not %d", d.Count)
		}
		for k, a := range d.Affinities {
			if a.Weight < -100 || a.Weight > 100 || a.Weight == 0 {
				ps.Add(fmt.Sprintf("%s.Affinities[%d].Weight", path, k), "must be between -100 and 100, and not 0: %d", a.Weight)
			}
		}
	}
}
