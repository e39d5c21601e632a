package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"skerry/cmd/console"
)

// leaves calls do with every command that does something.
func leaves(cmd *cobra.Command, do func(*cobra.Command)) {
	for _, child := range cmd.Commands() {
		leaves(child, do)
	}
	if !cmd.HasSubCommands() && cmd.HasParent() {
		do(cmd)
	}
}

// Every flag of every command can come from the environment and from a file, and
// whatever an operator asks can be answered as JSON.
func TestFlagsOfEveryCommand(t *testing.T) {
	seen := 0
	leaves(rootCommand(), func(cmd *cobra.Command) {
		seen++
		t.Run(cmd.CommandPath(), func(t *testing.T) {
			cmd.InitDefaultHelpFlag()
			if err := cmd.ParseFlags(nil); err != nil { // takes up the flags of its parents
				t.Fatal(err)
			}
			daemon := cmd.GroupID == "daemon"
			if !daemon && cmd.Flags().Lookup("json") == nil {
				t.Error("it has no --json")
			}
			if cmd.Name() == "version" {
				return // it has nothing to configure
			}
			if cmd.Flags().Lookup(console.ConfigFlag) == nil {
				t.Error("it has no --config")
			}
			before := cmd.PreRunE
			for p := cmd; before == nil && p != nil; p = p.Parent() {
				before = p.PersistentPreRunE
			}
			if before == nil {
				t.Fatal("nothing reads the environment before it runs")
			}
			cmd.Flags().VisitAll(func(f *pflag.Flag) {
				if f.Value.Type() != "int" {
					return
				}
				t.Setenv(console.EnvName(f.Name), "7")
				if err := before(cmd, nil); err != nil || f.Value.String() != "7" {
					t.Errorf("--%s is %s after %s=7: %v", f.Name, f.Value, console.EnvName(f.Name), err)
				}
			})
			t.Setenv("SKERRY_ADDR", "http://192.0.2.1:1")
			if err := before(cmd, nil); err != nil {
				t.Fatal(err)
			}
			if f := cmd.Flags().Lookup("addr"); f != nil && f.Value.String() != "http://192.0.2.1:1" {
				t.Errorf("--addr is %s", f.Value)
			}
		})
	})
	if seen < 20 {
		t.Errorf("%d commands were seen", seen)
	}
}

// TestSecretsNeedNoFlag: each user of a machine can read command lines. A daemon takes secrets from files alone; the help of another command's flag
// says how else the secret can be given.
func TestSecretsNeedNoFlag(t *testing.T) {
	secret, found := regexp.MustCompile(`(^|-)(token|secret|password|code|key|authorization)$`), 0
	leaves(rootCommand(), func(cmd *cobra.Command) {
		if err := cmd.ParseFlags(nil); err != nil { // takes up the flags of its parents
			t.Fatal(err)
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if !secret.MatchString(f.Name) || f.Value.Type() != "string" || f.Name == "idempotency-token" {
				return
			}
			found++
			other := strings.Contains(f.Usage, "others see command lines") || strings.Contains(f.Usage, "standard input")
			if !strings.Contains(f.Usage, "file") && (!other || cmd.GroupID == "daemon") {
				t.Errorf("%s --%s takes a secret on the command line: %s", cmd.CommandPath(), f.Name, f.Usage)
			}
		})
	})
	if found < 20 {
		t.Errorf("%d flags were found", found)
	}
}
