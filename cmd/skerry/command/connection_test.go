package command

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"skerry/cmd/console"
	"skerry/cmd/skerry/contextfile"
	"skerry/fleet"
)

func mustKeep(tb testing.TB, path, text string) string {
	tb.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	return path
}

// A flag counts more than a variable, that more than the context, and that more than the default. An address of another
// hub gets no secret of a context.
func TestHowAHubIsReached(t *testing.T) {
	dir := t.TempDir()
	caFile, tokenFile := mustKeep(t, filepath.Join(dir, "ca.pem"), "CA of a file"), mustKeep(t, filepath.Join(dir, "token"), "of-a-file\n")
	file := filepath.Join(dir, "contexts.json")
	kept := contextfile.File{Version: 1, Current: "prod", Contexts: map[string]contextfile.Context{
		"prod":  {Addr: "https://prod", CACert: "CA of prod", ServerName: "hub", Token: "of-prod"},
		"test":  {Addr: "https://test", TokenFile: tokenFile},
		"stale": {Addr: "https://stale", TokenFile: filepath.Join(dir, "none")},
	}}
	if err := kept.Save(file); err != nil {
		t.Fatal(err)
	}
	for name, try := range map[string]struct {
		args, env                   []string
		addr, ca, serverName, token string
		says                        string // of an error
	}{
		"nothing":                      {env: []string{"SKERRY_CONTEXT_FILE=" + filepath.Join(dir, "other.json")}, addr: "http://127.0.0.1:4646"},
		"the context in use":           {addr: "https://prod", ca: "CA of prod", serverName: "hub", token: "of-prod"},
		"another context":              {args: []string{"--context", "test"}, addr: "https://test", token: "of-a-file"},
		"a context by a variable":      {env: []string{"SKERRY_CONTEXT=test"}, addr: "https://test", token: "of-a-file"},
		"a flag beside it":             {args: []string{"--token", "x"}, env: []string{"SKERRY_TOKEN=y"}, addr: "https://prod", ca: "CA of prod", serverName: "hub", token: "x"},
		"a variable beside it":         {env: []string{"SKERRY_TOKEN=y"}, addr: "https://prod", ca: "CA of prod", serverName: "hub", token: "y"},
		"another address":              {args: []string{"--addr", "https://evil"}, addr: "https://evil"},
		"another address, by variable": {env: []string{"SKERRY_ADDR=https://evil"}, addr: "https://evil"},
		"another hub of the context":   {args: []string{"--addr", "https://prod2", "--context", "prod"}, addr: "https://prod2", ca: "CA of prod", serverName: "hub", token: "of-prod"},
		"all by variables": {
			env:  []string{"SKERRY_ADDR=https://a", "SKERRY_CACERT=" + caFile, "SKERRY_TLS_SERVER_NAME=n", "SKERRY_TOKEN=t"},
			addr: "https://a", ca: "CA of a file", serverName: "n", token: "t",
		},
		"the variable of the flag": {env: []string{"SKERRY_ADDR=https://a", "SKERRY_CA_CERT=" + caFile, "SKERRY_CACERT=/none"}, addr: "https://a", ca: "CA of a file"},
		"no such context":          {args: []string{"--context", "x"}, says: "skerry context list"},
		"no token in its file":     {args: []string{"--context", "stale"}, says: `read the token of context "stale"`},
		"no CA in its file":        {args: []string{"--ca-cert", "/none"}, says: "read the CA certificate"},
		"no certificate":           {args: []string{"--client-cert", "/none"}, says: "read the client certificate"},
		"a token to be asked for":  {args: []string{"--token", "-"}, says: "SKERRY_TOKEN"},
	} {
		var c connection
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		c.addConnectionFlags(flags)
		if err := flags.Parse(try.args); err != nil {
			t.Fatal(err)
		}
		if err := console.CompleteFlags(flags, append(try.env, "SKERRY_CONTEXT_FILE="+file)); err != nil {
			t.Fatal(err)
		}
		got, err := c.clientConfig()
		if try.says != "" {
			if e := fleet.AsError(err); e == nil || !strings.Contains(e.Error(), try.says) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil || got.Addr != try.addr || string(got.CACert) != try.ca || got.ServerName != try.serverName || got.Token != try.token {
			t.Errorf("%s: %q with CA %q, name %q, token %q, %v", name, got.Addr, got.CACert, got.ServerName, got.Token, err)
		}
		if usage := flags.FlagUsages(); strings.Contains(usage, "of-prod") || try.token != "" && len(try.token) > 3 && strings.Contains(usage, try.token) {
			t.Errorf("%s: the help has the token", name)
		}
	}
}
