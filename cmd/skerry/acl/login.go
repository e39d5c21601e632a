package acl

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"skerry/api"
	"skerry/client"
	"skerry/cmd/console"
	"skerry/cmd/skerry/command"
	"skerry/cmd/skerry/contextfile"
	"skerry/fleet"
)

// loginTime is how long a person has to log in: hubs forget a login after it.
const loginTime = 10 * time.Minute

// loginFlags are those of skerry login.
type loginFlags struct {
	method, token, callback string
	save, noBrowser         bool
}

// LoginCommand is skerry login.
func LoginCommand(s *command.Session) *cobra.Command {
	var f loginFlags
	c := &cobra.Command{
		Use: "login", Short: "Log in by an auth method, and get an access token", Args: cobra.NoArgs,
		Example: `  skerry login
  skerry login --method ci --login-token - --save`,
		Long: `Log in by an auth method, and get an access token. The auth method says for how long it lasts.

By a method of the type OIDC you log in at its provider, in your browser. The command waits for the provider's answer at
--oidc-callback-addr. The method's AllowedRedirectURIs must have that address: http://localhost:4649/oidc/callback.

By a method of the type JWT you show a token that somebody else has signed, as a CI job has one. --login-token - reads it from
the standard input, so that nobody sees it in a list of processes; SKERRY_LOGIN_TOKEN may have it, too.

The token is printed, or with --save kept in the context in use, so that the next commands have it.`,
		RunE: s.Run(f.logIn),
	}
	flags := c.Flags()
	flags.StringVar(&f.method, "method", "", "auth method (default: the default one, of the type JWT with --login-token, else OIDC)")
	flags.StringVar(&f.token, "login-token", "", "JWT that is exchanged for an access token; - is the standard input")
	flags.StringVar(&f.callback, "oidc-callback-addr", "localhost:4649", "address on this machine where the provider's answer is awaited")
	flags.BoolVar(&f.save, "save", false, "keep the token in the context in use")
	flags.BoolVar(&f.noBrowser, "no-browser", false, "show the provider's URL, and open no browser")
	return c
}

func (f *loginFlags) logIn(c *command.Call) error {
	if f.save { // before there is a token that could not be kept
		if _, _, err := contextInUse(c); err != nil {
			return err
		}
	}
	method, err := f.chooseMethod(c)
	if err != nil {
		return err
	}
	var token fleet.ACLToken
	if method.Type == fleet.ACLAuthMethodOIDC {
		token, err = f.logInAtProvider(c, method.Name)
	} else {
		token, err = f.logInByJWT(c, method.Name)
	}
	if err != nil {
		return err
	}
	kept := ""
	if f.save {
		if kept, err = keepToken(c, token.SecretID); err != nil {
			return err
		}
		token.SecretID = ""
	}
	c.Out.Show(token, func() {
		c.Out.Line("Successfully logged in via %s and %s\n", method.Type, method.Name)
		writeToken(c.Out, token)
		if kept != "" {
			c.Out.Hint("the token is kept in the context %q, which commands use", kept)
		}
	})
	return nil
}

// chooseMethod returns the auth method of --method, or the default one.
func (f *loginFlags) chooseMethod(c *command.Call) (api.ACLAuthMethodStub, error) {
	all, err := c.Hub.AuthMethods(c.Context(), client.List{})
	if err != nil {
		return api.ACLAuthMethodStub{}, err
	}
	kind := fleet.ACLAuthMethodOIDC
	if f.token != "" {
		kind = fleet.ACLAuthMethodJWT
	}
	i := slices.IndexFunc(all, func(m api.ACLAuthMethodStub) bool {
		return m.Name == f.method || f.method == "" && m.Default && m.Type == kind
	})
	switch {
	case i >= 0:
		return all[i], nil
	case f.method != "":
		return api.ACLAuthMethodStub{}, fleet.Errorf(fleet.CodeNotFound, "log in: there is no auth method %q", f.method).WithHint("skerry acl auth-method list shows them")
	}
	return api.ACLAuthMethodStub{}, fleet.Errorf(fleet.CodeInvalid, "log in: there is no default auth method of the type %s", kind).
		WithHint("name one with --method; skerry acl auth-method list shows them")
}

func (f *loginFlags) logInByJWT(c *command.Call, method string) (fleet.ACLToken, error) {
	raw := f.token
	if raw == "-" {
		var err error
		if raw, err = console.ReadSecret(c.InOrStdin(), c.ErrOrStderr(), "Login token: "); err != nil {
			return fleet.ACLToken{}, fleet.Errorf(fleet.CodeTokenBad, "read the login token: %w", err)
		}
	}
	if raw == "" {
		return fleet.ACLToken{}, fleet.Errorf(fleet.CodeInvalid, "log in by the auth method %q: it needs a login token", method).
			WithHint("give it with --login-token -, on the standard input, or in %sLOGIN_TOKEN", console.EnvPrefix)
	}
	return c.Hub.LogIn(c.Context(), api.ACLLoginRequest{AuthMethodName: method, LoginToken: raw})
}

// logInAtProvider has a person log in at the method's provider, and waits for its answer.
func (f *loginFlags) logInAtProvider(c *command.Call, method string) (fleet.ACLToken, error) {
	host, _, err := net.SplitHostPort(f.callback)
	if err != nil {
		return fleet.ACLToken{}, fleet.Errorf(fleet.CodeInvalid, "await the provider's answer at %q: %w", f.callback, err)
	}
	listener, err := net.Listen("tcp", f.callback)
	if err != nil {
		return fleet.ACLToken{}, fleet.Errorf(fleet.CodeInvalid, "await the provider's answer: %w", err).WithHint("choose another address with --oidc-callback-addr")
	}
	_, port, _ := net.SplitHostPort(listener.Addr().String()) // it is one
	req := api.ACLOIDCAuthURLRequest{
		AuthMethodName: method, RedirectURI: "http://" + net.JoinHostPort(cmp.Or(host, "localhost"), port) + "/oidc/callback", ClientNonce: rand.Text(),
	}
	at, err := c.Hub.BeginOIDCLogin(c.Context(), req)
	if err != nil {
		return fleet.ACLToken{}, errors.Join(err, listener.Close())
	}
	fmt.Fprintf(c.ErrOrStderr(), "Log in at the provider:\n\n    %s\n\n", at)
	if !f.noBrowser {
		openBrowser(c.Context(), c.ErrOrStderr(), at)
	}
	answer, err := awaitAnswer(c.Context(), listener, at)
	if err != nil {
		return fleet.ACLToken{}, err
	}
	return c.Hub.CompleteOIDCLogin(c.Context(), api.ACLOIDCCompleteAuthRequest{
		AuthMethodName: method, RedirectURI: req.RedirectURI, ClientNonce: req.ClientNonce, State: answer.Get("state"), Code: answer.Get("code"), Iss: answer.Get("iss"),
	})
}

// openBrowser opens a page in the person's browser. Where there is none, the person has the URL.
func openBrowser(ctx context.Context, out io.Writer, page string) {
	name, args := "xdg-open", []string{page}
	switch runtime.GOOS {
	case "darwin":
		name = "open"
	case "windows":
		name, args = "rundll32", []string{"url.dll,FileProtocolHandler", page}
	}
	if err := exec.CommandContext(ctx, name, args...).Run(); err != nil {
		fmt.Fprintln(out, "No browser could be opened: open the URL yourself.")
	}
}

// awaitAnswer returns what the provider adds to the redirect URI of the login that began with this URL. Answers to other
// logins are refused, and it waits on.
func awaitAnswer(ctx context.Context, listener net.Listener, authURL string) (url.Values, error) {
	begun, err := url.Parse(authURL)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read the provider's URL: %w", err), listener.Close())
	}
	state := begun.Query().Get("state")
	answers := make(chan url.Values, 1)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /oidc/callback", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if q.Get("state") != state {
			http.Error(w, "This is the answer to another login.", http.StatusBadRequest)
			return
		}
		select {
		case answers <- q:
		default: // the first one counts
		}
		fmt.Fprintln(w, "You may close this window, and go back to your terminal.")
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	ctx, cancel := context.WithTimeout(ctx, loginTime)
	defer cancel()
	var answer url.Values
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("await the provider's answer: %w", err)
		}
		return nil
	})
	g.Go(func() error {
		var err error
		select {
		case answer = <-answers:
		case <-ctx.Done():
			err = fleet.Errorf(fleet.CodeTimeout, "await the provider's answer: %w", ctx.Err())
		}
		stopCtx, stop := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer stop()
		_ = server.Shutdown(stopCtx) // a browser may keep its connection
		return errors.Join(err, server.Close())
	})
	if err := g.Wait(); err != nil {
		return nil, err
	}
	if why := answer.Get("error"); why != "" {
		return nil, fleet.Errorf(fleet.CodeForbidden, "the provider refuses the login: %s %s", why, answer.Get("error_description"))
	}
	return answer, nil
}

// contextInUse returns the file of contexts and the name of the one that the command has reached the hub with.
func contextInUse(c *command.Call) (contextfile.File, string, error) {
	file, err := contextfile.Load(c.ContextFile())
	if err != nil {
		return file, "", err
	}
	name, err := c.UsedContext()
	if err != nil {
		return file, "", err
	}
	if name == "" {
		return file, "", fleet.Errorf(fleet.CodeInvalid, "keep the token of the login: no context is in use").
			WithHint("skerry context add makes one; an address in --addr or %sADDR replaces the context", console.EnvPrefix)
	}
	if path := file.Contexts[name].TokenFile; path != "" {
		return file, "", fleet.Errorf(fleet.CodeInvalid, "keep the token of the login: the context %q reads its token from %s", name, path).
			WithHint("log in without --save, and write the secret into that file")
	}
	return file, name, nil
}

// keepToken stores the secret of a token in the context in use, and returns the context's name.
func keepToken(c *command.Call, secret string) (string, error) {
	file, name, err := contextInUse(c)
	if err != nil {
		return "", err
	}
	kept := file.Contexts[name]
	kept.Token = secret
	file.Contexts[name] = kept
	if os.Getenv(console.EnvPrefix+"TOKEN") != "" {
		c.Warn([]string{console.EnvPrefix + "TOKEN is set: commands use it, and not the token that is kept"})
	}
	return name, file.Save(c.ContextFile())
}
