package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"skerry/api"
	"skerry/cmd/console"
	"skerry/fleet"
)

func tokenCommand(o *operator) *cobra.Command {
	c := &cobra.Command{Use: "token", Short: "Create, list and revoke join tokens for nodes and hubs"}
	c.AddCommand(tokenCreate(o), tokenList(o), tokenStatus(o), tokenRevoke(o))
	return c
}

func tokenCreate(o *operator) *cobra.Command {
	var req api.CreateTokenRequest
	var ttl time.Duration
	var file string
	c := &cobra.Command{
		Use: "create", Short: "Create a join token, and write it to standard output or to a file", Args: cobra.NoArgs,
		Long: `Make a join token. The hubs keep a hash of it alone, so this is the only time that it is shown: without --out it is
written to standard output, with --out to a file that its owner alone can read.

With --node-pool and --site every node that the token admits is in that pool and at that site, whatever it says itself.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			hub, err := o.hubClient()
			if err != nil {
				return err
			}
			if ttl != 0 {
				req.TTL = ttl.String()
			}
			made, err := hub.CreateJoinToken(cmd.Context(), req)
			if err != nil {
				return err
			}
			return writeToken(cmd.OutOrStdout(), made, file, o.json)
		},
	}
	f := c.Flags()
	f.StringVar(&req.Role, "role", fleet.RoleEdge, "what it admits: edge, which is a node, or hub")
	f.StringVar(&req.NodePool, "node-pool", "", "node pool of the nodes that it admits (default: what each says)")
	f.StringVar(&req.Site, "site", "", "site of the nodes that it admits (default: what each says)")
	f.Uint64Var(&req.MaxUses, "uses", 0, "how many machines it admits (default: any number)")
	f.DurationVar(&ttl, "ttl", 24*time.Hour, "after which time it admits nobody any more; 0: never")
	f.StringVar(&req.Description, "description", "", "what it is for, shown in lists")
	f.StringVar(&file, "out", "", "file to write the token to, readable by its owner alone; one that is there is left alone")
	return c
}

// writeToken shows a new token, or puts it into a file.
func writeToken(w io.Writer, made api.CreatedToken, file string, asJSON bool) error {
	if file != "" {
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
	}
	switch {
	case asJSON:
		return console.JSON(w, made)
	case file != "":
		_, err := fmt.Fprintf(w, "Join token %s is in %s: %s\n", made.ID, file, tokenRules(made.JoinToken))
		return err
	}
	_, err := fmt.Fprintln(w, made.Token)
	return err
}

func tokenList(o *operator) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List join tokens, the newest first, without their secrets", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			hub, err := o.hubClient()
			if err != nil {
				return err
			}
			list, err := hub.JoinTokens(cmd.Context())
			if err != nil {
				return err
			}
			newestFirst(list, func(t api.JoinToken) int64 { return t.CreatedAt.UnixNano() })
			if o.json {
				return console.JSON(cmd.OutOrStdout(), list)
			}
			if len(list) == 0 {
				_, err := fmt.Fprintln(cmd.OutOrStdout(), "There are no join tokens: no machine can join.")
				return err
			}
			t := console.Table{Heads: []string{"ID", "ROLE", "POOL", "SITE", "USES", "ENDS", "DESCRIPTION"}}
			for _, token := range list {
				t.Add(token.ID, strings.Join(token.Roles, ", "), token.NodePool, token.Site, tokenUses(token), tokenEnd(token), token.Description)
			}
			return t.Write(cmd.OutOrStdout())
		},
	}
}

func tokenStatus(o *operator) *cobra.Command {
	return &cobra.Command{
		Use: "status ID", Short: "Show a join token, and what it admitted", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			hub, err := o.hubClient()
			if err != nil {
				return err
			}
			token, err := hub.JoinToken(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if o.json {
				return console.JSON(cmd.OutOrStdout(), token)
			}
			t := console.Table{}
			t.Add("Token", token.ID)
			t.Add("Description", token.Description)
			t.Add("Rules", tokenRules(token))
			t.Add("Made", console.LocalTime(token.CreatedAt))
			for _, subject := range token.Admitted {
				t.Add("Admitted", subject)
			}
			return t.Write(cmd.OutOrStdout())
		},
	}
}

func tokenRevoke(o *operator) *cobra.Command {
	return &cobra.Command{
		Use: "revoke ID", Short: "Revoke a join token", Args: cobra.ExactArgs(1),
		Long: `Have a join token admit nobody any more. What it admitted before stays: a node is expelled with skerry node revoke.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			hub, err := o.hubClient()
			if err != nil {
				return err
			}
			answer, err := hub.RevokeJoinToken(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if o.json {
				return console.JSON(cmd.OutOrStdout(), answer)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "Join token %s is revoked; what it admitted stays\n", args[0])
			return err
		},
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
