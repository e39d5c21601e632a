package variable

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/spf13/cobra"

	"skerry/cmd/console"
	"skerry/cmd/skerry/spec"
	"skerry/fleet"
)

// formats are those of one variable.
var formats = []string{"table", "json", "hcl", "none", "go-template"}

const formatHelp = "table, json, hcl, none or go-template (with --template)"

func addFormat(c *cobra.Command, format *string, known string) {
	c.Flags().StringVar(format, "out", "", "`format` of the output: "+known)
}

// writeVariable writes a variable in a format; "" is JSON if the command writes JSON, and else a table.
func writeVariable(out *console.Output, v fleet.Variable, format string) error {
	switch format {
	case "none":
	case "json", "go-template":
		out.JSON(v)
	case "hcl":
		_, err := out.Write(variableHCL(v))
		return err
	default:
		out.Show(v, func() { writeTable(out, v) })
	}
	return nil
}

func writeTable(out *console.Output, v fleet.Variable) {
	t := console.NewTable()
	t.Add("Namespace", v.Namespace)
	t.Add("Path", v.Path)
	t.Add("Created", console.LocalNano(v.CreateTime))
	t.Add("Modified", console.LocalNano(v.ModifyTime))
	t.Add("Check index", uint64(v.ModifyIndex))
	if v.Lock != nil {
		t.AddSet("Lock ID", v.Lock.ID)
		t.Add("Lock TTL", v.Lock.TTL.String())
		t.Add("Lock delay", v.Lock.LockDelay.String())
	}
	out.Table(t)
	out.Line("\nItems")
	items := console.NewTable()
	for _, k := range slices.Sorted(maps.Keys(v.Items)) {
		items.Add(k, v.Items[k])
	}
	out.Table(items)
}

// variableHCL is a variable as a file that parseVariable reads.
func variableHCL(v fleet.Variable) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "namespace    = %s\npath         = %s\nmodify_index = %d\n\nitems = {\n", quoteHCL(v.Namespace), quoteHCL(v.Path), v.ModifyIndex)
	for _, k := range slices.Sorted(maps.Keys(v.Items)) {
		fmt.Fprintf(&b, "  %s = %s\n", quoteHCL(k), quoteHCL(v.Items[k]))
	}
	b.WriteString("}\n")
	return b.Bytes()
}

// quoteHCL returns a text as a string of HCL in which nothing is computed.
func quoteHCL(text string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i, r := range text {
		switch {
		case r == '"' || r == '\\':
			b.WriteString(`\` + string(r))
		case r == '\n':
			b.WriteString(`\n`)
		case (r == '$' || r == '%') && strings.HasPrefix(text[i+1:], "{"):
			b.WriteString(string(r) + string(r))
		case unicode.IsControl(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// parseVariable reads a variable's file: JSON as the API has it, or HCL. format is "json", "hcl", or "" for either.
func parseVariable(name string, src []byte, format string) (fleet.Variable, error) {
	var v fleet.Variable
	if format == "json" || format == "" && spec.IsJSON(src) {
		err := spec.DecodeJSON(name, src, &v)
		return v, err
	}
	body, err := spec.ParseBody(name, src)
	if err != nil {
		return v, err
	}
	items := map[string]string{}
	create, modify, created, modified := "", "", "", ""
	if err := spec.Attributes(body, map[string]any{
		"namespace": &v.Namespace, "path": &v.Path, "items": &items,
		"create_index": &create, "modify_index": &modify, "create_time": &created, "modify_time": &modified,
	}); err != nil {
		return v, err
	}
	lock := func(b *hclsyntax.Body) error {
		v.Lock = &fleet.VariableLock{}
		return spec.Attributes(b, map[string]any{"id": &v.Lock.ID, "ttl": &v.Lock.TTL, "lock_delay": &v.Lock.LockDelay, "delay": &v.Lock.LockDelay})
	}
	if err := spec.Blocks(body, map[string]func(*hclsyntax.Body) error{"items": spec.KeyValueBlock(&items), "lock": lock}); err != nil {
		return v, err
	}
	v.Items = items
	if modify != "" {
		n, err := strconv.ParseUint(modify, 10, 64)
		if err != nil {
			return v, fleet.Errorf(fleet.CodeInvalid, "read %s: modify_index is not a whole number: %s", name, modify)
		}
		v.ModifyIndex = fleet.Index(n)
	}
	return v, nil
}

// parseItem reads an argument KEY=VALUE. A value that begins with @ names a file with the value; \@ begins one with @.
func parseItem(arg string, read func(name string) ([]byte, error)) (key, value string, err error) {
	key, value, ok := strings.Cut(arg, "=")
	if !ok || key == "" {
		return "", "", fleet.Errorf(fleet.CodeInvalid, "read an item: its argument is not KEY=VALUE").WithHint("the argument is not shown, because it may be a secret")
	}
	switch {
	case strings.HasPrefix(value, `\@`):
		value = value[1:]
	case strings.HasPrefix(value, "@"):
		b, err := read(value[1:])
		if err != nil {
			return "", "", fmt.Errorf("read the item %s: %w", key, err)
		}
		value = string(b)
	}
	return key, value, nil
}
