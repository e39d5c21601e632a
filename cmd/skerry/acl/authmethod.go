package acl

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"skerry/api"
	"skerry/client"
	"skerry/cmd/console"
	"skerry/cmd/skerry/command"
	"skerry/cmd/skerry/spec"
	"skerry/fleet"
)

func authMethodCommand(s *command.Session) *cobra.Command {
	return command.Group("auth-method", "Create, show and delete auth methods, by which people log in who have no token yet",
		createAuthMethodCommand(s), updateAuthMethodCommand(s), listAuthMethodsCommand(s), authMethodInfoCommand(s), deleteAuthMethodCommand(s))
}

func writeAuthMethod(out *console.Output, m fleet.ACLAuthMethod) {
	t := console.NewTable()
	t.Add("Name", m.Name)
	t.Add("Type", m.Type)
	t.Add("Locality", m.TokenLocality)
	t.AddSet("Token Name Format", m.TokenNameFormat)
	t.Add("Max Token TTL", m.MaxTokenTTL)
	t.Add("Default", m.Default)
	t.Add("Create Index", m.CreateIndex)
	t.Add("Modify Index", m.ModifyIndex)
	if c := m.Config; c != nil {
		t.AddSet("JWT Validation Public Keys", strings.Join(c.JWTValidationPubKeys, ""))
		t.AddSet("JWKS URL", c.JWKSURL)
		t.AddSet("JWKS CA cert", c.JWKSCACert)
		t.AddSet("OIDC Discovery URL", c.OIDCDiscoveryURL)
		t.AddSet("Discovery CA pem", strings.Join(c.DiscoveryCaPem, ""))
		t.AddSet("OIDC Client ID", c.OIDCClientID)
		t.AddSet("OIDC Client Secret", c.OIDCClientSecret)
		if m.Type == fleet.ACLAuthMethodOIDC {
			t.Add("OIDC Enable PKCE", c.OIDCEnablePKCE)
			t.Add("OIDC Disable UserInfo", c.OIDCDisableUserInfo)
		}
		t.AddSet("OIDC Scopes", strings.Join(c.OIDCScopes, ", "))
		t.AddSet("Bound audiences", strings.Join(c.BoundAudiences, ", "))
		t.AddSet("Bound issuer", strings.Join(c.BoundIssuer, ", "))
		t.AddSet("Allowed redirects URIs", strings.Join(c.AllowedRedirectURIs, ", "))
		t.AddSet("Signing algorithms", strings.Join(c.SigningAlgs, ", "))
		t.Add("Expiration Leeway", c.ExpirationLeeway)
		t.Add("NotBefore Leeway", c.NotBeforeLeeway)
		t.Add("ClockSkew Leeway", c.ClockSkewLeeway)
		t.AddSet("Claim mappings", mappingText(c.ClaimMappings))
		t.AddSet("List claim mappings", mappingText(c.ListClaimMappings))
	}
	out.Table(t)
}

// mappingText shows which claim has which name for rules.
func mappingText(m map[string]string) string {
	var parts []string
	for _, source := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, "{"+source+": "+m[source]+"}")
	}
	return strings.Join(parts, "; ")
}

// authMethodFlags are those of create and update.
type authMethodFlags struct {
	kind, locality, nameFormat, config string
	ttl                                time.Duration
	isDefault                          bool
}

func (f *authMethodFlags) addAuthMethodFlags(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&f.kind, "type", "", "JWT or OIDC")
	flags.StringVar(&f.locality, "token-locality", "", "local or global; a cluster is one region")
	flags.StringVar(&f.nameFormat, "token-name-format", "", "name of the tokens, with ${auth_method_type}, ${auth_method_name} and ${value.NAME} (default: the first two with a dash)")
	flags.DurationVar(&f.ttl, "max-token-ttl", 0, "time after which a token of a login ends")
	flags.BoolVar(&f.isDefault, "default", false, "make it the method of its type that skerry login uses")
	flags.StringVar(&f.config, "config", "", "configuration in JSON, `@FILE`, or - for the standard input")
}

// readConfig reads the configuration that the flag --config gives.
func (f *authMethodFlags) readConfig(c *command.Call) (*fleet.ACLAuthMethodConfig, error) {
	name, src := "--config", []byte(f.config)
	if path, isFile := strings.CutPrefix(f.config, "@"); isFile || f.config == "-" {
		var err error
		if src, err = spec.Read(c.InOrStdin(), path); err != nil {
			return nil, err
		}
		name = path
	}
	config := new(fleet.ACLAuthMethodConfig)
	return config, spec.DecodeJSON(name, src, config)
}

// changeMethod sets what the flags name.
func (f *authMethodFlags) changeMethod(c *command.Call, m *fleet.ACLAuthMethod) error {
	if c.Changed("type") {
		m.Type = strings.ToUpper(f.kind)
	}
	if c.Changed("token-locality") {
		m.TokenLocality = f.locality
	}
	if c.Changed("token-name-format") {
		m.TokenNameFormat = f.nameFormat
	}
	if c.Changed("max-token-ttl") {
		m.MaxTokenTTL = fleet.TextDuration(f.ttl)
	}
	if c.Changed("default") {
		m.Default = f.isDefault
	}
	if !c.Changed("config") {
		return nil
	}
	var err error
	m.Config, err = f.readConfig(c)
	return err
}

func createAuthMethodCommand(s *command.Session) *cobra.Command {
	var f authMethodFlags
	var name string
	c := &cobra.Command{
		Use: "create", Short: "Create an auth method", Args: cobra.NoArgs,
		Example: `  skerry acl auth-method create --name sso --type OIDC --max-token-ttl 8h --token-locality global --default --config @sso.json
  skerry acl auth-method create --name ci --type JWT --max-token-ttl 1h --token-locality local --config -`,
		Long: `Create an auth method. Its configuration has Nomad's fields; docs/acl.md explains them. Binding rules say what somebody gets
who logs in: without one, nobody gets in.`,
		RunE: command.Show(s, func(c *command.Call) (fleet.ACLAuthMethod, error) {
			m := fleet.ACLAuthMethod{Name: name}
			if err := f.changeMethod(c, &m); err != nil {
				return m, err
			}
			if _, err := c.Hub.AuthMethod(c.Context(), name); fleet.CodeOf(err) != fleet.CodeNotFound && name != "" {
				if err == nil {
					err = fleet.Errorf(fleet.CodeConflict, "create the auth method %q: there is one with this name", name).WithHint("change it: skerry acl auth-method update %s", name)
				}
				return m, err
			}
			return c.Hub.StoreAuthMethod(c.Context(), m)
		}, writeAuthMethod),
	}
	c.Flags().StringVar(&name, "name", "", "name of the auth method")
	f.addAuthMethodFlags(c)
	return c
}

func updateAuthMethodCommand(s *command.Session) *cobra.Command {
	var f authMethodFlags
	c := &cobra.Command{
		Use: "update NAME", Short: "Change an auth method", Args: cobra.ExactArgs(1),
		Example: `  skerry acl auth-method update --max-token-ttl 4h sso`,
		Long: `Change an auth method. What no flag names stays; --config replaces the whole configuration. An OIDCClientSecret of "redacted" in
it stands for the secret that the hubs have.`,
		RunE: command.Show(s, func(c *command.Call) (fleet.ACLAuthMethod, error) {
			m, err := c.Hub.AuthMethod(c.Context(), c.Args[0])
			if err == nil {
				err = f.changeMethod(c, &m)
			}
			if err != nil {
				return m, err
			}
			return c.Hub.StoreAuthMethod(c.Context(), m)
		}, writeAuthMethod),
	}
	f.addAuthMethodFlags(c)
	return c
}

func listAuthMethodsCommand(s *command.Session) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List auth methods; it needs no token", Args: cobra.NoArgs,
		Example: `  skerry acl auth-method list`,
		RunE: command.Show(s, command.Listed((*client.Client).AuthMethods, &client.List{}), console.List[api.ACLAuthMethodStub]{
			None: "No ACL auth methods found", Heads: []string{"NAME", "TYPE", "DEFAULT"},
			Row: func(m api.ACLAuthMethodStub) []any { return []any{m.Name, m.Type, m.Default} },
		}.Write),
	}
}

func authMethodInfoCommand(s *command.Session) *cobra.Command {
	return &cobra.Command{
		Use: "info NAME", Short: "Show an auth method, without its client secret", Args: cobra.ExactArgs(1),
		Example: `  skerry acl auth-method info sso`,
		RunE:    command.Show(s, command.Named((*client.Client).AuthMethod), writeAuthMethod),
	}
}

func deleteAuthMethodCommand(s *command.Session) *cobra.Command {
	return &cobra.Command{
		Use: "delete NAME", Short: "Delete an auth method; tokens of its logins stay until they end", Args: cobra.ExactArgs(1),
		Example: `  skerry acl auth-method delete sso`,
		RunE: command.Do(s, func(c *command.Call) (string, error) {
			return "Successfully deleted ACL auth method \"" + c.Args[0] + "\"", c.Hub.DeleteAuthMethod(c.Context(), c.Args[0])
		}),
	}
}
