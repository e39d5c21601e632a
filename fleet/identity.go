package fleet

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// DefaultIdentity is the name of the identity that every task has, and
// DefaultAudience whom it is for.
const (
	DefaultIdentity = "default"
	DefaultAudience = "nomadproject.io"
)

// AttributeIdentities is the attribute of nodes whose edge gives tasks their identities. Those of older releases lack it.
const AttributeIdentities = "skerry.identities"

// OfflineIdentities is the value of AttributeIdentities of edges that renew offline identities themselves. Those of older
// releases have another one.
const OfflineIdentities = "2"

// WorkloadIdentity is a signed token that says who a task or a service is.
type WorkloadIdentity struct {
	Name         string
	Audience     []string
	ChangeMode   string
	ChangeSignal string
	Env          bool
	File         bool
	Filepath     string
	ServiceName  string
	TTL          time.Duration
	ExtraClaims  []string
	// Offline lets the edge of the task sign a new token with its own key while no hub is in reach.
	Offline bool `json:",omitempty"`
}

// FilePath is the path of the file with the token below the task's folder, where File is set.
func (w *WorkloadIdentity) FilePath() string {
	switch {
	case w.Filepath != "":
		return w.Filepath
	case w.Name == DefaultIdentity:
		return "secrets/nomad_token"
	}
	return "secrets/nomad_" + w.Name + ".jwt"
}

// EnvName is the name of the variable with the token, where Env is set.
func (w *WorkloadIdentity) EnvName() string {
	if w.Name == DefaultIdentity {
		return "NOMAD_TOKEN"
	}
	return "NOMAD_TOKEN_" + w.Name
}

// ExposedIdentities returns the identities whose tokens the task gets, in files or in its environment, the default one first.
func (t *Task) ExposedIdentities() []WorkloadIdentity {
	var all []WorkloadIdentity
	if t.Identity != nil {
		all = append(all, *t.Identity)
	}
	all = append(all, t.Identities...)
	return slices.DeleteFunc(all, func(w WorkloadIdentity) bool { return !w.File && !w.Env })
}

// loginIdentity returns the identity with which an edge logs in to a server for the task: that of its block, or the implicit one.
func (t *Task) loginIdentity(name, audience string, ttl time.Duration) WorkloadIdentity {
	if i := slices.IndexFunc(t.Identities, func(w WorkloadIdentity) bool { return w.Name == name }); i >= 0 {
		return t.Identities[i]
	}
	return WorkloadIdentity{Name: name, Audience: []string{audience}, TTL: ttl}
}

// IsLogin reports whether an edge logs in to Vault or Consul for the task with an identity.
func (t *Task) IsLogin(identity string) bool {
	return t.Vault != nil && identity == VaultIdentity || identity == ConsulIdentity && t.LogsInToConsul()
}

// DeliveredIdentities returns the identities of the task whose tokens an edge needs: those that the task gets, and those for
// Vault and Consul.
func (t *Task) DeliveredIdentities() []WorkloadIdentity {
	all := t.ExposedIdentities()
	for _, w := range []WorkloadIdentity{
		t.loginIdentity(VaultIdentity, DefaultVaultAudience, DefaultVaultTTL), t.loginIdentity(ConsulIdentity, DefaultConsulAudience, DefaultConsulTTL),
	} {
		if t.IsLogin(w.Name) && !slices.ContainsFunc(all, func(other WorkloadIdentity) bool { return other.Name == w.Name }) {
			all = append(all, w)
		}
	}
	return all
}

// OwnedIdentity is an identity of a task or a service of a group.
type OwnedIdentity struct {
	Task    string // "": it is that of a service of the group
	Service string // "": it is that of a task
	WorkloadIdentity
}

// Owner is the service or the task that a token names.
func (w *OwnedIdentity) Owner() string { return cmp.Or(w.Service, w.Task) }

// DeliveredIdentities returns the identities whose tokens an edge needs for the group.
func (g *TaskGroup) DeliveredIdentities() (all []OwnedIdentity) {
	ofServices := func(task string, list []Service) {
		for i := range list {
			if s := &list[i]; s.Identity != nil && s.Provider == ProviderConsul {
				all = append(all, OwnedIdentity{task, s.Name, *s.Identity})
			}
		}
	}
	for i := range g.Tasks {
		t := &g.Tasks[i]
		for _, w := range t.DeliveredIdentities() {
			all = append(all, OwnedIdentity{Task: t.Name, WorkloadIdentity: w})
		}
		ofServices(t.Name, t.Services)
	}
	ofServices("", g.Services)
	return all
}

// HasIdentities reports whether an edge needs the token of an identity for the group.
func (g *TaskGroup) HasIdentities() bool { return len(g.DeliveredIdentities()) > 0 }

// HasOfflineIdentities reports whether the edge of the group may sign the token of an identity itself.
func (g *TaskGroup) HasOfflineIdentities() bool {
	return slices.ContainsFunc(g.DeliveredIdentities(), func(w OwnedIdentity) bool { return w.Offline })
}

// JobOfIdentity is the job that the identities of an allocation name: a child of a periodic or parameterized job has those
// of its parent.
func (a *Alloc) JobOfIdentity() JobID {
	if a.Job != nil && a.Job.ParentID != "" {
		return a.Job.ParentID
	}
	return a.JobID
}

// IdentitySubject is the subject of a token of a task or a service, in Nomad's form.
func (a *Alloc) IdentitySubject(owner, identity string) string {
	region := DefaultRegion
	if a.Job != nil && a.Job.Region != "" {
		region = a.Job.Region
	}
	return strings.Join([]string{region, a.Namespace, string(a.JobOfIdentity()), a.TaskGroup, owner, identity}, ":")
}
