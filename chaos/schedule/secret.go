package schedule

import (
	"fmt"
	"math/rand/v2"
	"time"

	"skerry/fleet"
)

// SecretItem is the item of variables that tasks render.
const SecretItem = "value"

// SecretPath returns the path of the variable that a task of a job with Secret needs, and GroupSecretPath that of one
// that it renders if there is one.
func SecretPath(job fleet.JobID) string { return fleet.VariablesOfJobs + "/" + string(job) }

// GroupSecretPath returns the path of the variable of the job's group.
func GroupSecretPath(job fleet.JobID) string { return SecretPath(job) + "/" + GroupName }

// secretTemplates returns the templates of the job's task: of a job with Secret one that reads its variables.
func (j Job) secretTemplates() []fleet.Template {
	if !j.Secret {
		return nil
	}
	text := fmt.Sprintf(`{{ with nomadVar %q }}{{ .%s }}{{ end }}{{ if nomadVarExists %q }}{{ with nomadVar %q }} {{ .%s }}{{ end }}{{ end }}`,
		SecretPath(j.ID), SecretItem, GroupSecretPath(j.ID), GroupSecretPath(j.ID), SecretItem)
	return []fleet.Template{{EmbeddedTmpl: text, DestPath: "secrets/value", ChangeMode: fleet.ChangeNoop}}
}

// taskIdentity returns the identity of the job's task for the hubs; nil: the task gets no token.
func (j Job) taskIdentity() *fleet.WorkloadIdentity {
	if j.Identity == 0 {
		return nil
	}
	return &fleet.WorkloadIdentity{Name: fleet.DefaultIdentity, File: true, TTL: j.Identity, Offline: j.Offline}
}

// identityStream and offlineStream separate the random numbers of addIdentities from the others, as windowStream does.
const identityStream, offlineStream = 0x1de7, 0x0ff1

// addIdentities gives the tasks of some jobs with Secret an identity, which often ends while their edge is away, or is
// renewed by the edge meanwhile.
func (d *drawer) addIdentities() {
	d.rng = rand.New(rand.NewPCG(d.s.Seed, identityStream))
	offline := rand.New(rand.NewPCG(d.s.Seed, offlineStream))
	for i := range d.s.Jobs {
		if j := &d.s.Jobs[i]; j.Secret && d.drawBool(60) {
			j.Identity = pick(d.rng, time.Minute, 2*time.Minute, 5*time.Minute, 10*time.Minute)
			j.Offline = offline.IntN(2) == 0
		}
	}
}
