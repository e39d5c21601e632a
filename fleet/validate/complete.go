package validate

import (
	"path"
	"strings"
	"time"

	"skerry/fleet"
)

func completeAffinity(a *fleet.Affinity) { setDefault(&a.Operand, fleet.OpEqual) }

func completeArtifact(a *fleet.TaskArtifact) {
	setDefault(&a.GetterMode, fleet.ArtifactAny)
	if a.RelativeDest != "" {
		return
	}
	a.RelativeDest = "local/"
	if a.GetterMode == fleet.ArtifactFile && a.GetterSource != "" {
		a.RelativeDest = path.Join("local", path.Base(a.GetterSource))
	}
}

func completeConstraint(c *fleet.Constraint) { setDefault(&c.Operand, fleet.OpEqual) }

func completeConsul(c *fleet.Consul) { setDefault(&c.Cluster, fleet.DefaultCluster) }

// completeJob fills in fields that are never meant to be empty: names, modes, and values that
// follow from the place of a block in the job.
func completeJob(j *fleet.Job) {
	setDefault(&j.Region, fleet.DefaultRegion)
	setDefault(&j.Namespace, fleet.DefaultNamespace)
	setDefault(&j.Name, string(j.ID))
	setDefault(&j.NodePool, fleet.DefaultPool)
	if len(j.Datacenters) == 0 {
		j.Datacenters = []string{"*"}
	}
	if j.Periodic != nil {
		completePeriodic(j.Periodic)
	}
	if j.ParameterizedJob != nil {
		completeParameterized(j.ParameterizedJob)
	}
	forEachElement(j.Constraints, completeConstraint)
	forEachElement(j.Affinities, completeAffinity)
	for i := range j.TaskGroups {
		completeGroup(&j.TaskGroups[i], j)
	}
}

func completeGroup(g *fleet.TaskGroup, j *fleet.Job) {
	if g.Scaling != nil {
		completeScalingPolicy(g.Scaling, g.Count)
	}
	if g.Consul != nil {
		completeConsul(g.Consul)
	}
	forEachElement(g.Constraints, completeConstraint)
	forEachElement(g.Affinities, completeAffinity)
	forEachElement(g.Networks, completeNetwork)
	forEachElement(g.Services, func(s *fleet.Service) { completeService(s, j.Name, g.Name, "") })
	for name, v := range g.Volumes {
		v.Name = name
		g.Volumes[name] = v
	}
	for i := range g.Tasks {
		completeTask(&g.Tasks[i], j, g)
	}
}

func completeTask(t *fleet.Task, j *fleet.Job, g *fleet.TaskGroup) {
	setDefault(&t.KillSignal, fleet.DefaultKillSignal)
	forEachElement(t.Constraints, completeConstraint)
	forEachElement(t.Affinities, completeAffinity)
	forEachElement(t.Resources.Networks, completeNetwork)
	for i := range t.Resources.Devices {
		d := &t.Resources.Devices[i]
		forEachElement(d.Constraints, completeConstraint)
		forEachElement(d.Affinities, completeAffinity)
	}
	forEachElement(t.Services, func(s *fleet.Service) { setDefault(&s.TaskName, t.Name); completeService(s, j.Name, g.Name, t.Name) })
	forEachElement(t.Artifacts, completeArtifact)
	forEachElement(t.Templates, completeTemplate)
	forEachElement(t.VolumeMounts, completeVolumeMount)
	forEachElement(t.Identities, completeIdentity)
	if t.Identity != nil {
		setDefault(&t.Identity.Name, fleet.DefaultIdentity)
		completeIdentity(t.Identity)
	}
	if t.Vault != nil {
		completeVault(t.Vault)
	}
	if t.Consul != nil {
		completeConsul(t.Consul)
	}
	if t.CSIPluginConfig != nil {
		completeCSIPlugin(t.CSIPluginConfig)
	}
}

func forEachElement[T any](list []T, f func(*T)) {
	for i := range list {
		f(&list[i])
	}
}

func setDefault[T comparable](field *T, to T) {
	var zero T
	if *field == zero {
		*field = to
	}
}

func completeIdentity(w *fleet.WorkloadIdentity) {
	if w.Name == fleet.DefaultIdentity && len(w.Audience) == 0 {
		w.Audience = []string{fleet.DefaultAudience}
	}
	if w.ChangeMode == fleet.ChangeSignal {
		setDefault(&w.ChangeSignal, "SIGHUP")
	}
	w.ChangeSignal = strings.ToUpper(w.ChangeSignal)
}

func completeNetwork(n *fleet.NetworkResource) { setDefault(&n.Mode, fleet.NetworkHost) }

func completeParameterized(p *fleet.ParameterizedJob) { setDefault(&p.Payload, fleet.PayloadOptional) }

func completePeriodic(p *fleet.Periodic) {
	setDefault(&p.SpecType, fleet.PeriodicCron)
	setDefault(&p.TimeZone, "UTC")
}

func completeScalingPolicy(s *fleet.ScalingPolicy, count int) {
	setDefault(&s.Type, fleet.ScalingHorizontal)
	if s.Min == nil && s.Type == fleet.ScalingHorizontal {
		s.Min = &count
	}
}

// completeService fills in the values that follow from the service's place in the job; task is
// "" for a group's service.
func completeService(s *fleet.Service, job, group, task string) {
	name := job + "-" + group
	if task != "" {
		name += "-" + task
	}
	setDefault(&s.Name, name)
	setDefault(&s.AddressMode, fleet.AddressAuto)
	setDefault(&s.Provider, fleet.ProviderConsul)
	setDefault(&s.OnUpdate, fleet.OnUpdateRequireHealthy)
	if s.Provider == fleet.ProviderConsul {
		setDefault(&s.Cluster, fleet.DefaultCluster)
	}
	if s.Connect != nil {
		s.Connect = tidyConnect(s.Connect)
	}
	if s.Identity != nil {
		completeIdentity(s.Identity)
	}
	for i := range s.Checks {
		c := &s.Checks[i]
		setDefault(&c.OnUpdate, s.OnUpdate)
		if c.CheckRestart == nil && s.CheckRestart != nil {
			restart := *s.CheckRestart
			c.CheckRestart = &restart
		}
	}
}

func completeTemplate(t *fleet.Template) {
	setDefault(&t.ChangeMode, fleet.ChangeRestart)
	if t.ChangeMode == fleet.ChangeSignal {
		setDefault(&t.ChangeSignal, "SIGHUP")
	}
	t.ChangeSignal = strings.ToUpper(t.ChangeSignal)
	setDefault(&t.Perms, "0644")
	setDefault(&t.LeftDelim, "{{")
	setDefault(&t.RightDelim, "}}")
}

func completeVault(v *fleet.Vault) {
	setDefault(&v.Cluster, fleet.DefaultCluster)
	setDefault(&v.ChangeMode, fleet.ChangeRestart)
	if v.ChangeMode == fleet.ChangeSignal {
		setDefault(&v.ChangeSignal, "SIGHUP")
	}
	v.ChangeSignal = strings.ToUpper(v.ChangeSignal)
}

func completeVolumeMount(m *fleet.VolumeMount) { setDefault(&m.PropagationMode, "private") }

func completeCSIPlugin(p *fleet.CSIPlugin) {
	setDefault(&p.HealthTimeout, 30*time.Second)
	setDefault(&p.MountDir, "/csi")
	setDefault(&p.StagePublishBaseDir, "/local/csi")
}
