package schedule

import (
	"fmt"

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
