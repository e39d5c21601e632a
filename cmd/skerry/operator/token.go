package operator

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"skerry/api"
	"skerry/client"
	"skerry/cmd/console"
	"skerry/cmd/skerry/command"
	"skerry/fleet"
)

// TokenCommand is skerry token.
func TokenCommand(s *command.Session) *cobra.Command {
	return command.Group("token", "Create, list and revoke join tokens for nodes and hubs",
		createTokenCommand(s), listTokensCommand(s), tokenStatusCommand(s), revokeTokenCommand(s))
}

func createTokenCommand(s *command.Session) *cobra.Command {
	var req api.CreateTokenRequest
	var ttl time.Duration
	var file, list string
	c := &cobra.Command{
		Use: "create", Short: "Create a join token, and write it to standard output or to a file", Args: cobra.NoArgs,
		Example: `  skerry token create --role edge --site shop-17 --uses 1 --out shop-17.token
  skerry token create --allow-keys keys.txt --ttl 720h --out batch.token
  skerry token create --role hub --ttl 1h --description "the third hub"`,
		Long: `Create a join token. The hubs keep only a hash of it, so this is the only time that it is shown: without --out it is
written to standard output, with --out to a file that only its owner can read.

With --node-pool and --site every node that the token admits is in that pool and at that site, whatever it names itself.
With --allow-keys the token admits only devices of a list, such as a factory's: skerry-edge key shows a device's line of it.`,
		RunE: s.Run(func(c *command.Call) (err error) {
			if list != "" {
				if req.AllowKeys, err = readKeyList(list); err != nil {
					return err
				}
			}
			if ttl != 0 {
				req.TTL = ttl.String()
			}
			made, err := c.Hub.CreateJoinToken(c.Context(), req)
			if err != nil {
				return err
			}
			return writeToken(c.Out, made, file)
		}),
	}
	f := c.Flags()
	f.StringVar(&req.Role, "role", fleet.RoleEdge, "what it admits: edge, which is a node, or hub")
	f.StringVar(&req.NodePool, "node-pool", "", "node pool of the nodes that it admits (default: the one that each names)")
	f.StringVar(&req.Site, "site", "", "site of the nodes that it admits (default: the one that each names)")
	f.Uint64Var(&req.MaxUses, "uses", 0, "how many machines it admits (default: any number)")
	f.DurationVar(&ttl, "ttl", 24*time.Hour, "time until it expires; 0: it never does")
	f.StringVar(&req.Description, "description", "", "purpose of the token, shown in lists")
	f.StringVar(&list, "allow-keys", "", "`file` with the SHA-256 hashes of the public keys that it admits, one a line (default: any key)")
	f.StringVar(&file, "out", "", "file to write the token to, which only its owner can read; it must not exist yet")
	return c
}

// readKeyList reads the hashes of public keys from a file: the first word of each line, but for empty lines and those that
// begin with #.
func readKeyList(path string) ([]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fleet.Errorf(fleet.CodeInvalid, "read the list of keys: %w", err)
	}
	var keys []string
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		if b, err := hex.DecodeString(words[0]); err != nil || len(b) != sha256.Size {
			return nil, fleet.Errorf(fleet.CodeInvalid, "read the list of keys: line %d of %s does not begin with a SHA-256 hash of 64 hexadecimal digits", number, path).
				WithHint("skerry-edge key shows the hash of a device's key")
		}
		keys = append(keys, words[0])
	}
	if len(keys) == 0 {
		return nil, fleet.Errorf(fleet.CodeInvalid, "read the list of keys: %s has none", path)
	}
	return keys, nil
}

// writeToken shows a new token, or puts it into a file.
func writeToken(out *console.Output, made api.CreatedToken, file string) error {
	if file == "" {
		out.Say(made, "%s", made.Token)
		return nil
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		_, err = fmt.Fprintln(f, made.Token)
		if closed := f.Close(); err == nil {
			err = closed
		}
	}
	if err != nil {
		return fleet.Errorf(fleet.CodeInvalid, "write the join token %s: %w", made.ID, err).
			WithHint("revoke it with skerry token revoke %s, and make another one", made.ID)
	}
	made.Token = ""
	out.Say(made, "Join token %s is in %s: %s", made.ID, file, tokenRules(made.JoinToken))
	return nil
}

func listTokensCommand(s *command.Session) *cobra.Command {
	list := command.Newest(command.All((*client.Client).JoinTokens), func(t api.JoinToken) int64 { return t.CreatedAt.UnixNano() })
	return &cobra.Command{
		Use: "list", Short: "List join tokens, the newest first, without their secrets", Args: cobra.NoArgs,
		Example: `  skerry token list`,
		RunE: command.Show(s, list, console.List[api.JoinToken]{
			None: "There are no join tokens: no machine can join.", Heads: []string{"ID", "ROLE", "POOL", "SITE", "USES", "ENDS", "DESCRIPTION"},
			Row: func(t api.JoinToken) []any {
				return []any{t.ID, strings.Join(t.Roles, ", "), t.NodePool, t.Site, tokenUses(t), tokenEnd(t), t.Description}
			},
		}.Write),
	}
}

func tokenStatusCommand(s *command.Session) *cobra.Command {
	return &cobra.Command{
		Use: "status ID", Short: "Show a join token, and the machines that it admitted", Args: cobra.ExactArgs(1),
		Example: `  skerry token status mslcq4vh`,
		RunE: command.Show(s, command.Named((*client.Client).JoinToken), func(out *console.Output, token api.JoinToken) {
			t := console.NewTable()
			t.Add("Token", token.ID)
			t.Add("Description", token.Description)
			t.Add("Rules", tokenRules(token))
			t.Add("Made", console.LocalTime(token.CreatedAt))
			for _, subject := range token.Admitted {
				t.Add("Admitted", subject)
			}
			out.Table(t)
		}),
	}
}

func revokeTokenCommand(s *command.Session) *cobra.Command {
	return &cobra.Command{
		Use: "revoke ID", Short: "Revoke a join token", Args: cobra.ExactArgs(1),
		Example: `  skerry token revoke mslcq4vh`,
		Long:    `Revoke a join token, by its id: no further machine can join with it. Those that joined before stay; skerry node revoke expels a node.`,
		RunE: s.Run(func(c *command.Call) error {
			answer, err := c.Hub.RevokeJoinToken(c.Context(), c.Args[0])
			if err == nil {
				c.Out.Say(answer, "Join token %s is revoked; machines that joined with it stay", c.Args[0])
			}
			return err
		}),
	}
}

// tokenRules says in one line what a token does.
func tokenRules(t api.JoinToken) string {
	parts := []string{"admits " + strings.Join(t.Roles, " and ") + "s"}
	if t.NodePool != "" {
		parts = append(parts, "to the node pool "+t.NodePool)
	}
	if t.Site != "" {
		parts = append(parts, "to the site "+t.Site)
	}
	if t.AllowedKeys != 0 {
		parts = append(parts, fmt.Sprintf("with one of %d keys", t.AllowedKeys))
	}
	return strings.Join(append(parts, tokenUses(t), "ends "+tokenEnd(t)), ", ")
}

func tokenUses(t api.JoinToken) string {
	if t.MaxUses == 0 {
		return fmt.Sprintf("%d used", t.Uses)
	}
	return fmt.Sprintf("%d of %d used", t.Uses, t.MaxUses)
}

func tokenEnd(t api.JoinToken) string {
	switch {
	case t.ExpiresAt == nil:
		return "never"
	case time.Now().After(*t.ExpiresAt):
		return "ended " + console.LocalTime(*t.ExpiresAt)
	}
	return console.LocalTime(*t.ExpiresAt)
}
