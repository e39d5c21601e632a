package job

import (
	_ "embed"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"skerry/api"
	"skerry/cmd/jobfile"
	"skerry/cmd/skerry/command"
	"skerry/cmd/skerry/follow"
	"skerry/fleet"
)

func dispatchCommand(s *command.Session) *cobra.Command {
	var req api.JobDispatchRequest
	var meta []string
	var token string
	var detach bool
	c := &cobra.Command{
		Use: "dispatch ID [FILE]", Short: "Dispatch an instance of a parameterized job", Args: cobra.RangeArgs(1, 2),
		Example: `  skerry job dispatch --meta shop=17 report input.csv`,
		Long: "Create a job from a parameterized one, and follow it until it runs. The content of FILE (- is the standard\n" +
			"input) is the payload of the job.",
		RunE: s.Run(func(c *command.Call) (err error) {
			if req.Meta, err = parseKeyValues(meta); err != nil {
				return err
			}
			if req.Payload, err = readPayload(c); err != nil {
				return err
			}
			job, err := c.FindJob(c.Args[0])
			if err != nil {
				return err
			}
			answer, err := c.Hub.DispatchJob(c.Context(), job.ID, token, req)
			if err != nil {
				return err
			}
			done := fmt.Sprintf("Job %q is dispatched", answer.DispatchedJobID)
			if answer.EvalID == "" {
				done = fmt.Sprintf("Job %q was dispatched with this token before.", answer.DispatchedJobID)
			}
			return follow.ShowAnswer(c, answer, answer.EvalID, detach, done)
		}),
	}
	c.Flags().StringArrayVar(&meta, "meta", nil, "metadata KEY=VALUE of the new job; may be repeated")
	c.Flags().StringVar(&req.IdPrefixTemplate, "id-prefix-template", "", "text in the new job's id, after the id of its parent")
	c.Flags().StringVar(&token, "idempotency-token", "", "create a job only if none was created with this token before")
	c.Flags().IntVar(&req.Priority, "priority", 0, "priority of the job (default: that of its parent)")
	command.AddDetach(c, &detach)
	return c
}

// readPayload reads the payload's file, if one is named.
func readPayload(c *command.Call) ([]byte, error) {
	switch {
	case len(c.Args) == 1:
		return nil, nil
	case c.Args[1] != "-":
		return jobfile.ReadFile(c.Args[1])
	}
	b, err := io.ReadAll(io.LimitReader(c.InOrStdin(), fleet.MaxJobSize))
	if err != nil {
		return nil, fmt.Errorf("read the payload from the standard input: %w", err)
	}
	return b, nil
}

// parseKeyValues reads KEY=VALUE.
func parseKeyValues(list []string) (map[string]string, error) {
	m := map[string]string{}
	for _, s := range list {
		k, v, ok := strings.Cut(s, "=")
		if !ok || k == "" {
			return nil, fleet.Errorf(fleet.CodeInvalid, "%q is not KEY=VALUE", s)
		}
		m[k] = v
	}
	return m, nil
}

// exampleJob is the file that job init writes.
//
//go:embed example.hcl
var exampleJob string

// initCommand writes an example job file. It never replaces an existing file.
func initCommand(s *command.Session) *cobra.Command {
	return &cobra.Command{
		Use: "init [FILE]", Short: "Write an example job file", Args: cobra.MaximumNArgs(1),
		Example: `  skerry job init shop.hcl`,
		Long:    "Write an example job file to FILE (default: example.hcl), which must not exist yet.",
		RunE: s.RunOffline(func(c *command.Call) error {
			name := "example.hcl"
			if len(c.Args) > 0 {
				name = c.Args[0]
			}
			if err := command.WriteNewFile(name, exampleJob); err != nil {
				return err
			}
			c.Out.Show(struct{ File string }{name}, func() {
				c.Out.Line("%s is written.", name)
				c.Out.Hint("to run the job: skerry job run %s", name)
			})
			return nil
		}),
	}
}
