// Package hubcontext has the commands of skerry context: the hubs that an operator works with, each under a name with
// its address, CA and token. It starts no goroutine; what it persists is the file of contexts.
package hubcontext

import (
	"cmp"
	"crypto/x509"
	"encoding/pem"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"skerry/client"
	"skerry/cmd/console"
	"skerry/cmd/skerry/command"
	"skerry/cmd/skerry/contextfile"
	"skerry/fleet"
)

// Command is skerry context.
func Command(s *command.Session) *cobra.Command {
	return command.Group("context", "Name the hubs that you work with: address, CA and token",
		addCommand(s), useCommand(s), listCommand(s), showCommand(s), removeCommand(s))
}

// Shown is a context without its secret.
type Shown struct {
	Name       string
	Current    bool
	Addr       string
	CA         string `json:",omitempty"` // for people; "": the CAs of the system
	CAHash     string `json:",omitempty"`
	ServerName string `json:",omitempty"`
	ClientCert string `json:",omitempty"`
	Token      string // where it is
}

func showContext(name string, file contextfile.File) Shown {
	c := file.Contexts[name]
	shown := Shown{Name: name, Current: name == file.Current, Addr: c.Addr, ServerName: c.ServerName, ClientCert: c.ClientCert, Token: "none"}
	switch {
	case c.Token != "":
		shown.Token = "in this context"
	case c.TokenFile != "":
		shown.Token = "in the file " + c.TokenFile
	}
	if c.CACert == "" {
		return shown
	}
	shown.CA = "unreadable"
	if block, _ := pem.Decode([]byte(c.CACert)); block != nil {
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil {
			shown.CA = cmp.Or(cert.Subject.CommonName, cert.Subject.String()) + ", until " + console.LocalTime(cert.NotAfter)
		}
	}
	if hash, ok := client.HashCA([]byte(c.CACert)); ok {
		shown.CAHash = hash.String()
	}
	return shown
}

func addCommand(s *command.Session) *cobra.Command {
	var hash, tokenFile string
	var replace, use bool
	c := &cobra.Command{
		Use: "add NAME [ADDR]", Short: "Add a context", Args: cobra.RangeArgs(1, 2),
		Example: `  skerry context add prod https://hub1.example.com:4646 --ca-cert ca.pem --token-file ~/.skerry-token
  skerry context add test https://hub.test.example.com:4646 --ca-hash sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08 --token -`,
		Long: `Add a context: a name for the hub at ADDR (or --addr), with the --ca-cert, --tls-server-name, --client-cert, --client-key
and --token that commands need to reach it. The CA's certificate and the token are kept in the file of the contexts,
which only you can read; the client certificate and the file of --token-file are read for each command.

With --ca-hash the CA is fetched from the hub and must have this hash, so that one line sets up a machine:
whoever runs the hubs sends it. --token - reads the token from the standard input, so that no shell remembers it.

The first context is used from then on. An address in --addr or SKERRY_ADDR replaces the context as a whole.`,
		RunE: s.RunOffline(func(c *command.Call) error {
			name := c.Args[0]
			made, err := c.NewContext()
			if err != nil {
				return err
			}
			if len(c.Args) > 1 {
				made.Addr = c.Args[1]
			}
			if made.TokenFile, err = absolute(tokenFile); err != nil {
				return err
			}
			if err := completeContext(c, &made, hash); err != nil {
				return err
			}
			return changeFile(c, "added", func(file *contextfile.File) error {
				if _, taken := file.Contexts[name]; taken && !replace {
					return fleet.Errorf(fleet.CodeConflict, "add the context %q: there is one with this name", name).
						WithHint("choose another name, or replace it with --replace")
				}
				file.Contexts[name] = made
				if use || file.Current == "" {
					file.Current = name
				}
				return nil
			})
		}),
	}
	f := c.Flags()
	f.StringVar(&hash, "ca-hash", "", "SHA-256 digest of the CA's certificate, which is fetched from the hub")
	f.StringVar(&tokenFile, "token-file", "", "file that has the token, read for each command")
	f.BoolVar(&replace, "replace", false, "replace a context of this name")
	f.BoolVar(&use, "use", false, "use this context from now on")
	return c
}

func absolute(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	return filepath.Abs(path)
}

// completeContext checks a new context, and fetches the CA of a hash.
func completeContext(c *command.Call, made *contextfile.Context, hash string) error {
	if made.Addr == "" {
		return fleet.Errorf(fleet.CodeInvalid, "add the context %q: it has no address", c.Args[0]).
			WithHint("name the hub behind the context's name: skerry context add %s https://hub.example.com:4646", c.Args[0])
	}
	if made.Token != "" && made.TokenFile != "" || hash != "" && made.CACert != "" {
		return fleet.Errorf(fleet.CodeInvalid, "add the context %q: --token and --token-file exclude each other, and so do --ca-hash and --ca-cert", c.Args[0])
	}
	cfg, err := command.ConfigOf(c.Args[0], *made)
	if err != nil {
		return err
	}
	if hash != "" {
		digest, err := client.ParseCAHash(hash)
		if err != nil {
			return err
		}
		if cfg.CACert, err = client.FetchCA(c.Context(), cfg, digest); err != nil {
			return err
		}
		made.CACert = string(cfg.CACert)
	}
	if _, err := client.New(cfg); err != nil {
		return err
	}
	if cfg.Token != "" && sendsInClear(made.Addr) {
		c.Warn([]string{"the token is sent to " + made.Addr + " unencrypted: everybody on the way can read it; a hub serves HTTPS with --http-tls"})
	}
	return nil
}

// sendsInClear reports whether requests to an address leave this machine unencrypted.
func sendsInClear(addr string) bool {
	u, err := url.Parse(addr)
	if err != nil || u.Scheme == "https" {
		return false
	}
	host := cmp.Or(u.Hostname(), addr)
	return host != "localhost" && host != "127.0.0.1" && host != "::1"
}

// changeFile changes the file of contexts about the one of the first argument, and says what was done to it and which
// context commands use now. It warns where the environment says otherwise.
func changeFile(c *command.Call, done string, change func(*contextfile.File) error) error {
	name := c.Args[0]
	if err := contextfile.CheckName(name); err != nil {
		return err
	}
	file, err := contextfile.Load(c.ContextFile())
	if err == nil {
		err = change(&file)
	}
	if err == nil {
		err = file.Save(c.ContextFile())
	}
	if err != nil {
		return err
	}
	for _, variable := range []string{console.EnvPrefix + "ADDR", console.EnvPrefix + "CONTEXT"} {
		if os.Getenv(variable) != "" {
			c.Warn([]string{variable + " is set: commands follow it, and not the context in use"})
		}
	}
	c.Out.Show(struct{ Name, Current string }{name, file.Current}, func() {
		c.Out.Line("Context %q %s.", name, done)
		switch file.Current {
		case name:
			c.Out.Line("Commands use it from now on.")
		case "":
			c.Out.Line("No context is in use: commands ask %s.", client.DefaultAddr)
		default:
			c.Out.Line("Commands use the context %q.", file.Current)
		}
	})
	return nil
}

func useCommand(s *command.Session) *cobra.Command {
	return &cobra.Command{
		Use: "use NAME", Short: "Use a context from now on", Args: cobra.ExactArgs(1),
		Example: `  skerry context use test`,
		RunE: s.RunOffline(func(c *command.Call) error {
			return changeFile(c, "chosen", func(file *contextfile.File) error {
				file.Current = c.Args[0]
				_, err := file.Find(c.Args[0])
				return err
			})
		}),
	}
}

func listCommand(s *command.Session) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List contexts, without their tokens", Args: cobra.NoArgs,
		Example: `  skerry context list`,
		RunE: s.RunOffline(func(c *command.Call) error {
			file, err := contextfile.Load(c.ContextFile())
			if err != nil {
				return err
			}
			list := []Shown{}
			for _, name := range slices.Sorted(maps.Keys(file.Contexts)) {
				list = append(list, showContext(name, file))
			}
			c.Out.Show(list, func() {
				console.List[Shown]{
					None: "There are no contexts.", Heads: []string{"", "NAME", "ADDRESS", "CA", "TOKEN"},
					Row: func(s Shown) []any {
						mark := map[bool]string{true: "*"}[s.Current]
						return []any{mark, s.Name, s.Addr, cmp.Or(s.CA, "of the system"), s.Token}
					},
				}.Write(c.Out, list)
			})
			return nil
		}),
	}
}

func showCommand(s *command.Session) *cobra.Command {
	return &cobra.Command{
		Use: "show [NAME]", Short: "Show a context (default: the one in use), without its token", Args: cobra.MaximumNArgs(1),
		Example: `  skerry context show
  skerry context show prod`,
		Long: "Show a context (default: the one in use), without its token, and the line that sets up another machine for the same hub.",
		RunE: s.RunOffline(func(c *command.Call) error {
			file, err := contextfile.Load(c.ContextFile())
			if err != nil {
				return err
			}
			name := cmp.Or(append(c.Args, c.ContextName(), file.Current)...)
			if name == "" {
				return fleet.Errorf(fleet.CodeNotFound, "show the context in use: there is none").WithHint("skerry context add makes one")
			}
			if _, err := file.Find(name); err != nil {
				return err
			}
			shown := showContext(name, file)
			c.Out.Show(shown, func() { writeContext(c.Out, shown) })
			return nil
		}),
	}
}

func writeContext(out *console.Output, shown Shown) {
	t := console.NewTable()
	t.Add("Name", shown.Name)
	t.Add("In use", shown.Current)
	t.Add("Address", shown.Addr)
	t.Add("CA", cmp.Or(shown.CA, "those of the system"))
	t.AddSet("CA hash", shown.CAHash)
	t.AddSet("Server name", shown.ServerName)
	t.AddSet("Client certificate", shown.ClientCert)
	t.Add("Token", shown.Token)
	out.Table(t)
	line := "skerry context add " + shown.Name + " " + shown.Addr
	if shown.CAHash != "" {
		line += " --ca-hash " + shown.CAHash
	}
	if shown.ServerName != "" {
		line += " --tls-server-name " + shown.ServerName
	}
	out.Hint("this line sets up another machine, and asks for its token: %s --token -", line)
}

func removeCommand(s *command.Session) *cobra.Command {
	return &cobra.Command{
		Use: "remove NAME", Short: "Remove a context; its token stays valid", Args: cobra.ExactArgs(1),
		Example: `  skerry context remove test`,
		RunE: s.RunOffline(func(c *command.Call) error {
			return changeFile(c, "removed", func(file *contextfile.File) error {
				_, err := file.Find(c.Args[0])
				delete(file.Contexts, c.Args[0])
				if file.Current == c.Args[0] {
					file.Current = ""
				}
				return err
			})
		}),
	}
}
