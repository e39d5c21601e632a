package real

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"

	"skerry/fleet"
)

// password is the item of the variable that the tasks of a Reboot with secrets read.
const password = "correct horse battery staple"

// giveSecrets stores a variable that the tasks of a job may read, and has each task render a file with it and one without,
// and get the default identity and another one as files.
func (s *fleetRun) giveSecrets(ctx context.Context, job *fleet.Job) error {
	path := "nomad/jobs/" + string(job.ID)
	s.marks.AddVariable(password)
	if _, err := s.fleet.Hubs[0].StoreVariable(ctx, fleet.Variable{VariableMeta: fleet.VariableMeta{Path: path}, Items: map[string]string{"password": password}}); err != nil {
		return fmt.Errorf("store the variable of job %s: %w", job.ID, err)
	}
	task := &job.TaskGroups[0].Tasks[0]
	task.Templates = []fleet.Template{
		{EmbeddedTmpl: `{{ with nomadVar "` + path + `" }}{{ .password }}{{ end }}`, DestPath: "secrets/password", ChangeMode: fleet.ChangeNoop, Perms: "0600"},
		{EmbeddedTmpl: `{{ env "NOMAD_ALLOC_ID" }}`, DestPath: "local/alloc", ChangeMode: fleet.ChangeNoop, Perms: "0644"},
	}
	task.Identity = &fleet.WorkloadIdentity{Name: fleet.DefaultIdentity, Audience: []string{fleet.DefaultAudience}, File: true}
	task.Identities = []fleet.WorkloadIdentity{{Name: "bank", Audience: []string{"bank.example"}, File: true, ChangeMode: fleet.ChangeNoop}}
	return nil
}

// checkSecrets returns an error unless each task has the files that giveSecrets asked for.
func (m *coldMachine) checkSecrets() error {
	for _, id := range m.allocs {
		for file, holds := range map[string]string{"secrets/password": password, "local/alloc": string(id), "secrets/nomad_token": ".", "secrets/nomad_bank.jwt": "."} {
			text, err := os.ReadFile(filepath.Join(m.edge.Dir, "allocs", string(id), "main", file))
			if err != nil || !bytes.Contains(text, []byte(holds)) {
				return fmt.Errorf("%w: the task of allocation %s runs, and its %s holds %q (%v)", ErrViolated, fleet.Short(id), file, text, err)
			}
		}
	}
	return nil
}
