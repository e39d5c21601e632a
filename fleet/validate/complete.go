package validate

import (
	"path"
	"reflect"
	"strings"
	"time"

	"skerry/fleet"
)

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
	for i := range j.TaskGroups {
		completeGroup(&j.TaskGroups[i], j.Name)
	}
	forEachNoun(reflect.ValueOf(j).Elem(), completeNoun)
}

// completeGroup fills in the values that follow from the place of a block in its group.
func completeGroup(g *fleet.TaskGroup, job string) {
	if g.Scaling != nil {
		completeScalingPolicy(g.Scaling, g.Count)
	}
	for i := range g.Services {
		completeService(&g.Services[i], job+"-"+g.Name)
	}
	for name, v := range g.Volumes {
		v.Name = name
		g.Volumes[name] = v
	}
	for i := range g.Tasks {
		t := &g.Tasks[i]
		for k := range t.Services {
			setDefault(&t.Services[k].TaskName, t.Name)
			completeService(&t.Services[k], job+"-"+g.Name+"-"+t.Name)
		}
		if t.Identity != nil {
			setDefault(&t.Identity.Name, fleet.DefaultIdentity)
		}
	}
}

// forEachNoun calls f with a pointer to each struct below v, the inner ones first.
func forEachNoun(v reflect.Value, f func(noun any)) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			forEachNoun(v.Elem(), f)
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Struct {
			for i := range v.Len() {
				forEachNoun(v.Index(i), f)
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				forEachNoun(v.Field(i), f)
			}
		}
		f(v.Addr().Interface())
	}
}

// completeNoun fills in a block whose defaults do not depend on where it stands.
func completeNoun(noun any) {
	switch v := noun.(type) {
	case *fleet.Affinity:
		setDefault(&v.Operand, fleet.OpEqual)
	case *fleet.Constraint:
		setDefault(&v.Operand, fleet.OpEqual)
	case *fleet.Consul:
		setDefault(&v.Cluster, fleet.DefaultCluster)
	case *fleet.CSIPlugin:
		setDefault(&v.HealthTimeout, 30*time.Second)
		setDefault(&v.MountDir, "/csi")
		setDefault(&v.StagePublishBaseDir, "/local/csi")
	case *fleet.NetworkResource:
		setDefault(&v.Mode, fleet.NetworkHost)
	case *fleet.ParameterizedJob:
		setDefault(&v.Payload, fleet.PayloadOptional)
	case *fleet.Periodic:
		setDefault(&v.SpecType, fleet.PeriodicCron)
		setDefault(&v.TimeZone, "UTC")
	case *fleet.Task:
		setDefault(&v.KillSignal, fleet.DefaultKillSignal)
	case *fleet.TaskArtifact:
		completeArtifact(v)
	case *fleet.Template:
		setDefault(&v.ChangeMode, fleet.ChangeRestart)
		completeSignal(v.ChangeMode, &v.ChangeSignal)
		setDefault(&v.Perms, "0644")
		setDefault(&v.LeftDelim, "{{")
		setDefault(&v.RightDelim, "}}")
	case *fleet.Vault:
		setDefault(&v.Cluster, fleet.DefaultCluster)
		setDefault(&v.ChangeMode, fleet.ChangeRestart)
		completeSignal(v.ChangeMode, &v.ChangeSignal)
	case *fleet.VolumeMount:
		setDefault(&v.PropagationMode, "private")
	case *fleet.WorkloadIdentity:
		if v.Name == fleet.DefaultIdentity && len(v.Audience) == 0 {
			v.Audience = []string{fleet.DefaultAudience}
		}
		switch {
		case v.Name == fleet.VaultIdentity:
			completeLogin(v, fleet.DefaultVaultAudience, fleet.DefaultVaultTTL)
		case v.Name == fleet.ConsulIdentity || fleet.IsServiceIdentity(v.Name):
			completeLogin(v, fleet.DefaultConsulAudience, fleet.DefaultConsulTTL)
		}
		completeSignal(v.ChangeMode, &v.ChangeSignal)
	}
}

// completeLogin fills in an identity with which an edge logs in to a server.
func completeLogin(w *fleet.WorkloadIdentity, audience string, ttl time.Duration) {
	if len(w.Audience) == 0 {
		w.Audience = []string{audience}
	}
	setDefault(&w.TTL, ttl)
}

func setDefault[T comparable](field *T, to T) {
	var zero T
	if *field == zero {
		*field = to
	}
}

// completeSignal fills in the signal of a change mode.
func completeSignal(mode string, signal *string) {
	if mode == fleet.ChangeSignal {
		setDefault(signal, "SIGHUP")
	}
	*signal = strings.ToUpper(*signal)
}

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

func completeScalingPolicy(s *fleet.ScalingPolicy, count int) {
	setDefault(&s.Type, fleet.ScalingHorizontal)
	if s.Min == nil && s.Type == fleet.ScalingHorizontal {
		s.Min = &count
	}
}

// completeService fills in the values of a service, whose name follows from its place in the job.
func completeService(s *fleet.Service, name string) {
	setDefault(&s.Name, name)
	setDefault(&s.AddressMode, fleet.AddressAuto)
	setDefault(&s.Provider, fleet.ProviderConsul)
	setDefault(&s.OnUpdate, fleet.OnUpdateRequireHealthy)
	if s.Provider == fleet.ProviderConsul {
		setDefault(&s.Cluster, fleet.DefaultCluster)
	}
	if s.Identity != nil {
		setDefault(&s.Identity.Name, s.IdentityName())
	}
	if s.Weights != nil {
		setDefault(&s.Weights.Passing, 1)
		setDefault(&s.Weights.Warning, 1)
	}
	if s.Connect != nil {
		s.Connect = tidyConnect(s.Connect)
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
