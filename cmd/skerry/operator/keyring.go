package operator

import (
	"fmt"

	"github.com/spf13/cobra"

	"skerry/client"
	"skerry/cmd/console"
	"skerry/cmd/skerry/command"
	"skerry/fleet"
)

func listKeysCommand(s *command.Session) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the keys that encrypt variables", Args: cobra.NoArgs,
		Example: `  skerry operator root keyring list`,
		RunE:    command.Show(s, command.Listed((*client.Client).RootKeys, &client.List{}), writeKeys),
	}
}

func writeKeys(out *console.Output, keys []fleet.RootKey) {
	console.List[fleet.RootKey]{
		Heads: []string{"KEY", "STATE", "CREATED"},
		Row:   func(k fleet.RootKey) []any { return []any{k.KeyID, k.State, console.LocalNano(k.CreateTime)} },
	}.Write(out, keys)
}

func rotateKeyCommand(s *command.Session) *cobra.Command {
	full := false
	c := &cobra.Command{
		Use: "rotate", Short: "Make a new key active", Args: cobra.NoArgs,
		Example: `  skerry operator root keyring rotate --full`,
		Long: "Make a new key active, with which variables are encrypted from now on. The former key stays, since variables are\n" +
			"encrypted with it. With --full the hubs encrypt all variables with the new key, in the background: a former key is\n" +
			"rekeying until then, and deprecated afterwards.",
		RunE: s.Run(func(c *command.Call) error {
			made, err := c.Hub.RotateRootKey(c.Context(), full)
			if err == nil {
				c.Out.Show(made.Key, func() { writeKeys(c.Out, []fleet.RootKey{made.Key}) })
			}
			return err
		}),
	}
	c.Flags().BoolVar(&full, "full", false, "encrypt all variables with the new key")
	return c
}

func removeKeyCommand(s *command.Session) *cobra.Command {
	return &cobra.Command{
		Use: "remove KEY", Short: "Remove a key with which nothing is encrypted", Args: cobra.ExactArgs(1),
		Example: `  skerry operator root keyring remove 5c2f3a1e-8d7b-4f60-9e21-3c4d5e6f7a8b`,
		RunE: command.Do(s, func(c *command.Call) (string, error) {
			return fmt.Sprintf("Root key %s removed", c.Args[0]), c.Hub.RemoveRootKey(c.Context(), c.Args[0])
		}),
	}
}
