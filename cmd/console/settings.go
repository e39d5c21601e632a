package console

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclparse"
	"github.com/spf13/pflag"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"

	"skerry/fleet"
)

// EnvPrefix begins the name of every variable.
const EnvPrefix = "SKERRY_"

// ConfigFlag is the flag that names the file.
const ConfigFlag = "config"

// maxSettings bounds a configuration file, in bytes.
const maxSettings = 1 << 20

// AddConfigFlag adds --config.
func AddConfigFlag(flags *pflag.FlagSet) {
	flags.String(ConfigFlag, "", "HCL file that sets flags: NAME = VALUE, with _ for each - of a name")
	flags.Lookup(ConfigFlag).Annotations = map[string][]string{settingsFile: nil}
}

// settingsFile marks the flag of AddConfigFlag. Some commands have another --config, as Nomad's have.
const settingsFile = "settings file"

func isSettingsFile(f *pflag.Flag) bool {
	_, marked := f.Annotations[settingsFile]
	return marked
}

// HideFlag leaves a flag out of the help.
func HideFlag(flags *pflag.FlagSet, name string) {
	if err := flags.MarkHidden(name); err != nil {
		panic(err) // the caller has just added it
	}
}

// CompleteFlags sets the flags that the command line does not: from the environment (SKERRY_DATA_DIR for
// --data-dir), then from the file of --config (data_dir = "…"). An empty variable is none. The error has
// every problem.
func CompleteFlags(flags *pflag.FlagSet, environ []string) error {
	var problems []string
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Changed || f.Name == "help" || f.Name == ConfigFlag && !isSettingsFile(f) {
			return
		}
		name := EnvName(f.Name)
		value := lookUpEnv(environ, name)
		if other := otherNames[f.Name]; other != "" && value == "" {
			name, value = other, lookUpEnv(environ, other)
		}
		if value != "" {
			if err := flags.Set(f.Name, value); err != nil {
				problems = append(problems, fmt.Sprintf("variable %s: %v", name, err))
			}
		}
	})
	if f := flags.Lookup(ConfigFlag); f != nil && isSettingsFile(f) && f.Value.String() != "" {
		problems = append(problems, readSettings(flags, f.Value.String())...)
	}
	if len(problems) > 0 {
		return &fleet.Error{Code: fleet.CodeInvalid, Message: strings.Join(problems, "\n")}
	}
	return nil
}

// otherNames are further variables of flags: they are spelled as those of Nomad.
var otherNames = map[string]string{"ca-cert": EnvPrefix + "CACERT"}

// EnvName is the variable of a flag.
func EnvName(flag string) string {
	return EnvPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

func lookUpEnv(environ []string, name string) string {
	for _, kv := range environ {
		if value, ok := strings.CutPrefix(kv, name+"="); ok {
			return value
		}
	}
	return ""
}

// readSettings sets the flags that a file has and that are not set yet, and returns the problems.
func readSettings(flags *pflag.FlagSet, name string) []string {
	info, err := os.Stat(name)
	if err != nil {
		return []string{fmt.Sprintf("read the configuration: %v", err)}
	}
	if info.Size() > maxSettings {
		return []string{fmt.Sprintf("read the configuration: %s has %d bytes: at most %d are allowed", name, info.Size(), maxSettings)}
	}
	file, diags := hclparse.NewParser().ParseHCLFile(name)
	if diags.HasErrors() {
		return diagnosticLines(diags)
	}
	attrs, diags := file.Body.JustAttributes()
	problems := diagnosticLines(diags)
	sorted := make([]*hcl.Attribute, 0, len(attrs))
	for _, attr := range attrs {
		sorted = append(sorted, attr)
	}
	slices.SortFunc(sorted, func(a, b *hcl.Attribute) int { return a.Range.Start.Byte - b.Range.Start.Byte })
	for _, attr := range sorted {
		if err := setFromFile(flags, attr); err != nil {
			r := attr.Range
			problems = append(problems, fmt.Sprintf("%s:%d:%d: %v", r.Filename, r.Start.Line, r.Start.Column, err))
		}
	}
	return problems
}

func diagnosticLines(diags hcl.Diagnostics) []string {
	var out []string
	for _, d := range diags {
		if d.Severity == hcl.DiagError && d.Subject != nil {
			out = append(out, fmt.Sprintf("%s:%d:%d: %s: %s", d.Subject.Filename, d.Subject.Start.Line, d.Subject.Start.Column, d.Summary, d.Detail))
		}
	}
	return out
}

func setFromFile(flags *pflag.FlagSet, attr *hcl.Attribute) error {
	name := strings.ReplaceAll(attr.Name, "_", "-")
	f := flags.Lookup(name)
	if f == nil || name == ConfigFlag || name == "help" {
		return fmt.Errorf("unknown setting %q", attr.Name)
	}
	value, diags := attr.Expr.Value(nil)
	if diags.HasErrors() {
		return fmt.Errorf("%s: %s", diags[0].Summary, diags[0].Detail)
	}
	if f.Changed {
		return nil // the command line or the environment has it
	}
	texts, err := flagValues(value)
	if err != nil {
		return fmt.Errorf("%s: %w", attr.Name, err)
	}
	for _, text := range texts {
		if err := flags.Set(name, text); err != nil {
			return fmt.Errorf("%s: %w", attr.Name, err)
		}
	}
	return nil
}

// flagValues writes a value as it would be given to a flag, one text each time that
// the flag is given.
func flagValues(v cty.Value) ([]string, error) {
	switch ty := v.Type(); {
	case v.IsNull():
		return nil, nil
	case ty.IsPrimitiveType():
		text, err := convert.Convert(v, cty.String)
		if err != nil {
			return nil, err
		}
		return []string{text.AsString()}, nil
	case ty.IsTupleType() || ty.IsObjectType():
		var out []string
		for it := v.ElementIterator(); it.Next(); {
			key, element := it.Element()
			if element.IsNull() || !element.Type().IsPrimitiveType() {
				return nil, fmt.Errorf("its elements must be strings, numbers or bools")
			}
			text, err := convert.Convert(element, cty.String)
			if err != nil {
				return nil, err
			}
			if ty.IsObjectType() {
				out = append(out, key.AsString()+"="+text.AsString())
			} else {
				out = append(out, text.AsString())
			}
		}
		return out, nil
	}
	return nil, fmt.Errorf("a flag cannot have a value of type %s", v.Type().FriendlyName())
}
