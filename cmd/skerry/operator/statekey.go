package operator

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"skerry/api"
	"skerry/client"
	"skerry/cmd/console"
	"skerry/cmd/skerry/command"
)

func rotateStateKeyCommand(s *command.Session) *cobra.Command {
	var keep time.Duration
	c := &cobra.Command{
		Use: "rotate", Short: "Replace the state key", Args: cobra.NoArgs,
		Example: `  skerry operator state-key rotate --keep 720h`,
		Long: "Replace the state key, which is in a file of each hub and encrypts the keys of the CA, of the gossip and of variables in\n" +
			"the state. The new key goes to every hub, and everything is encrypted with it, in the background. A hub that is down gets\n" +
			"it when it comes back. The key before is kept for --keep, and then erased once every hub has the new one. A snapshot from\n" +
			"before the rotation may need the key before: see skerry operator snapshot inspect.",
		RunE: s.Run(func(c *command.Call) error {
			req := api.RotateStateKeyRequest{}
			if c.Changed("keep") {
				req.Keep = keep.String()
			}
			begun, err := c.Hub.RotateStateKey(c.Context(), req)
			if err != nil {
				return err
			}
			c.Out.Say(begun, "The rotation to the state key %s has begun", begun.ID)
			c.Out.Hint("skerry operator state-key status shows which hubs have it")
			return nil
		}),
	}
	c.Flags().DurationVar(&keep, "keep", 30*24*time.Hour, "how long hubs keep the key that is replaced")
	return c
}

func stateKeyStatusCommand(s *command.Session) *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Show the state keys, and which hubs have them", Args: cobra.NoArgs,
		Example: `  skerry operator state-key status`,
		RunE:    command.Show(s, command.All((*client.Client).StateKeyStatus), writeStateKeyStatus),
	}
}

func writeStateKeyStatus(out *console.Output, s api.StateKeyStatus) {
	t := console.NewTable("NUMBER", "KEY", "STATUS", "SECRETS", "STORED BY", "ERASED BY", "ACTIVE SINCE", "KEPT UNTIL")
	for _, k := range s.Keys {
		t.Add(k.Number, k.ID, k.Status, k.Secrets, len(k.Hubs), len(k.Erased), timeOrNone(k.ActiveSince), timeOrNone(k.KeptUntil))
	}
	out.Table(t)
	switch {
	case s.UnderWay:
		out.Line("\nThe rotation is under way. Hubs without the newest key: %s.", hubNames(s.HubsMissing))
	case len(s.HubsMissing) > 0:
		out.Line("\nHubs without the newest key: %s. They get it when they come back; until then no key is forgotten.", hubNames(s.HubsMissing))
	}
}

func timeOrNone(t *time.Time) any {
	if t == nil {
		return "-"
	}
	return *t
}

func forgetStateKeyCommand(s *command.Session) *cobra.Command {
	return &cobra.Command{
		Use: "forget KEY", Short: "Have the hubs erase a state key that was replaced", Args: cobra.ExactArgs(1),
		Example: `  skerry operator state-key forget 0f3c5a1e9b7d2468`,
		Long: "Have the hubs erase a state key that was replaced, before the time for which it is kept is over. It is erased once every\n" +
			"hub has the active key. A snapshot whose secrets are encrypted with it then needs a backup of a hub's identity/state-key.",
		RunE: command.Do(s, func(c *command.Call) (string, error) {
			return fmt.Sprintf("State key %s is kept no longer", c.Args[0]), c.Hub.ForgetStateKey(c.Context(), c.Args[0])
		}),
	}
}
