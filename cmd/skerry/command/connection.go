package command

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"skerry/client"
	"skerry/cmd/console"
	"skerry/cmd/skerry/contextfile"
	"skerry/fleet"
)

// maxSecretFile bounds a file with a certificate, a key or a token, in bytes.
const maxSecretFile = 1 << 20

// connection has the flags that say how a command reaches a hub. "" is not set: then the context counts.
type connection struct {
	addr, caCert, clientCert, clientKey, serverName, token string
	context, file                                          string // which context, of which file
}

// addConnectionFlags adds the flags.
func (c *connection) addConnectionFlags(flags *pflag.FlagSet) {
	flags.StringVar(&c.addr, "addr", "", "address of a hub's HTTP API (default: that of the context, or "+client.DefaultAddr+")")
	flags.StringVar(&c.caCert, "ca-cert", "", "file with the CA of the hub's HTTPS certificate (PEM); also "+console.EnvPrefix+"CACERT")
	flags.StringVar(&c.clientCert, "client-cert", "", "file with the certificate that is shown to a hub that asks for one (PEM)")
	flags.StringVar(&c.clientKey, "client-key", "", "file with the key of --client-cert (PEM)")
	flags.StringVar(&c.serverName, "tls-server-name", "", "name that the hub's certificate must have (default: the host of --addr)")
	flags.StringVar(&c.token, "token", "", "secret of the access token; better in "+console.EnvPrefix+"TOKEN or in a context, as others see command lines")
	flags.StringVar(&c.context, "context", "", "context with the address, CA and token (default: the one of skerry context use, unless --addr is given)")
	flags.StringVar(&c.file, "context-file", "", "file of the contexts (default: skerry/contexts.json in the user's configuration directory)")
}

// chosenContext returns the context that a command uses: the one of --context, or the current one if no address is
// given. The secrets of a context are for its own hub; another address gets them only where --context is given, too.
func (c *connection) chosenContext() (name string, chosen contextfile.Context, err error) {
	if c.context == "" && c.addr != "" {
		return "", chosen, nil
	}
	file, err := contextfile.Load(contextfile.Path(c.file))
	if err != nil {
		return "", chosen, err
	}
	if name = cmp.Or(c.context, file.Current); name == "" {
		return "", chosen, nil
	}
	chosen, err = file.Find(name)
	return name, chosen, err
}

// clientConfig returns the client's configuration: flags, and where they are not set, the context.
func (c *connection) clientConfig() (client.Config, error) {
	if c.token == "-" {
		return client.Config{}, fleet.Errorf(fleet.CodeTokenBad, "read the token: only skerry context add reads it from the standard input").
			WithHint("set %sTOKEN, or keep it in a context", console.EnvPrefix)
	}
	flags, err := c.newContext(nil, nil)
	if err != nil {
		return client.Config{}, err
	}
	name, chosen, err := c.chosenContext()
	if err != nil {
		return client.Config{}, err
	}
	chosen.Addr = cmp.Or(flags.Addr, chosen.Addr, client.DefaultAddr)
	chosen.CACert = cmp.Or(flags.CACert, chosen.CACert)
	chosen.ServerName = cmp.Or(flags.ServerName, chosen.ServerName)
	chosen.Token = cmp.Or(flags.Token, chosen.Token)
	if flags.ClientCert != "" || flags.ClientKey != "" {
		chosen.ClientCert, chosen.ClientKey = flags.ClientCert, flags.ClientKey
	}
	return ConfigOf(name, chosen)
}

// ConfigOf returns a client's configuration for a context. It reads the files that the context names.
func ConfigOf(name string, from contextfile.Context) (client.Config, error) {
	cfg := client.Config{Addr: from.Addr, ServerName: from.ServerName, Token: from.Token}
	if from.CACert != "" {
		cfg.CACert = []byte(from.CACert)
	}
	var err error
	if cfg.ClientCert, err = readOptional("client certificate", from.ClientCert); err != nil {
		return client.Config{}, err
	}
	if cfg.ClientKey, err = readOptional("key of the client certificate", from.ClientKey); err != nil {
		return client.Config{}, err
	}
	if cfg.Token != "" || from.TokenFile == "" {
		return cfg, nil
	}
	text, err := readBounded(from.TokenFile)
	if err != nil {
		return client.Config{}, fleet.Errorf(fleet.CodeTokenBad, "read the token of context %q: %w", name, err).
			WithHint("write the token into that file, or set %sTOKEN", console.EnvPrefix)
	}
	cfg.Token = strings.TrimSpace(string(text))
	return cfg, nil
}

// ContextFile returns the path of the file of contexts; "": this user has none.
func (c *Call) ContextFile() string { return contextfile.Path(c.session.connection.file) }

// ContextName returns the name of the context of --context; "": none.
func (c *Call) ContextName() string { return c.session.connection.context }

// UsedContext returns the name of the context that the command reaches the hub with; "": none.
func (c *Call) UsedContext() (string, error) {
	name, _, err := c.session.connection.chosenContext()
	return name, err
}

// NewContext returns a context of the flags and variables that say how to reach a hub. A token of "-" is read from the
// standard input.
func (c *Call) NewContext() (contextfile.Context, error) {
	return c.session.connection.newContext(c.InOrStdin(), c.ErrOrStderr())
}

func (c *connection) newContext(in io.Reader, prompt io.Writer) (contextfile.Context, error) {
	made := contextfile.Context{Addr: c.addr, ServerName: c.serverName, Token: c.token}
	text, err := readOptional("CA certificate", c.caCert)
	if err != nil {
		return made, err
	}
	made.CACert = string(text)
	for _, f := range []struct{ from, to *string }{{&c.clientCert, &made.ClientCert}, {&c.clientKey, &made.ClientKey}} {
		if *f.from == "" {
			continue
		}
		if *f.to, err = filepath.Abs(*f.from); err != nil {
			return made, fmt.Errorf("find %s: %w", *f.from, err)
		}
	}
	if c.token == "-" {
		if made.Token, err = console.ReadSecret(in, prompt, "Token: "); err != nil {
			return made, fleet.Errorf(fleet.CodeTokenBad, "read the token: %w", err)
		}
	}
	return made, nil
}

// readOptional reads a file; nil: its path is "".
func readOptional(what, path string) ([]byte, error) {
	if path == "" {
		return nil, nil
	}
	text, err := readBounded(path)
	if err != nil {
		return nil, fleet.Errorf(fleet.CodeInvalid, "read the %s: %w", what, err)
	}
	return text, nil
}

// readBounded reads a file of at most maxSecretFile bytes.
func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, maxSecretFile+1))
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	if len(text) > maxSecretFile {
		return nil, fmt.Errorf("%s has more than %d bytes", path, maxSecretFile)
	}
	return text, nil
}
