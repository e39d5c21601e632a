package main

import (
	"fmt"
	"maps"
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"

	"skerry/fleet"
)

// parseNamespace reads a namespace's file. It says of the first thing that is wrong
// where it is.
func parseNamespace(name string, src []byte) (fleet.Namespace, error) {
	var n fleet.Namespace
	file, diags := hclsyntax.ParseConfig(src, name, hcl.InitialPos)
	if diags.HasErrors() {
		return n, diagnosed(diags)
	}
	body := file.Body.(*hclsyntax.Body) // as ParseConfig makes it
	err := attributes(body, map[string]any{"name": &n.Name, "description": &n.Description, "meta": &n.Meta})
	if err != nil {
		return n, err
	}
	for _, b := range body.Blocks {
		switch {
		case len(b.Labels) > 0:
			err = misplaced(b.LabelRanges[0], "a block %s has no labels", b.Type)
		case b.Type == "capabilities" && n.Capabilities == nil:
			c := &fleet.NamespaceCapabilities{}
			n.Capabilities = c
			err = attributes(b.Body, map[string]any{
				"enabled_task_drivers": &c.EnabledTaskDrivers, "disabled_task_drivers": &c.DisabledTaskDrivers,
				"enabled_network_modes": &c.EnabledNetworkModes, "disabled_network_modes": &c.DisabledNetworkModes,
			})
		case b.Type == "meta" && n.Meta == nil:
			n.Meta = map[string]string{}
			for _, attr := range inOrder(b.Body) {
				value := ""
				if err = evaluate(attr, &value); err != nil {
					break
				}
				n.Meta[attr.Name] = value
			}
		case b.Type == "capabilities" || b.Type == "meta":
			err = misplaced(b.TypeRange, "%s is there twice", b.Type)
		default:
			err = misplaced(b.TypeRange, "block %q is not known, or not supported", b.Type)
		}
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

func inOrder(body *hclsyntax.Body) []*hclsyntax.Attribute {
	return slices.SortedFunc(maps.Values(body.Attributes), func(a, b *hclsyntax.Attribute) int {
		return a.SrcRange.Start.Byte - b.SrcRange.Start.Byte
	})
}

// attributes reads those of a body into what is known of it.
func attributes(body *hclsyntax.Body, known map[string]any) error {
	for _, attr := range inOrder(body) {
		into, ok := known[attr.Name]
		if !ok {
			return misplaced(attr.NameRange, "%q is not known, or not supported", attr.Name)
		}
		if err := evaluate(attr, into); err != nil {
			return err
		}
	}
	return nil
}

// evaluate reads an attribute into a text, a list of texts or a map of them.
func evaluate(attr *hclsyntax.Attribute, into any) error {
	value, diags := attr.Expr.Value(nil)
	if diags.HasErrors() {
		return diagnosed(diags)
	}
	want := cty.String
	switch into.(type) {
	case *[]string:
		want = cty.List(cty.String)
	case *map[string]string:
		want = cty.Map(cty.String)
	}
	value, err := convert.Convert(value, want)
	if err != nil || value.IsNull() || !value.IsWhollyKnown() {
		return misplaced(attr.SrcRange, "%s is not %s", attr.Name, want.FriendlyName())
	}
	switch into := into.(type) {
	case *string:
		*into = value.AsString()
	case *[]string:
		for _, v := range value.AsValueSlice() {
			if v.IsNull() {
				return misplaced(attr.SrcRange, "%s has a null in it", attr.Name)
			}
			*into = append(*into, v.AsString())
		}
	case *map[string]string:
		*into = map[string]string{}
		for k, v := range value.AsValueMap() {
			if v.IsNull() {
				return misplaced(attr.SrcRange, "%s has a null in it", attr.Name)
			}
			(*into)[k] = v.AsString()
		}
	}
	return nil
}

func misplaced(at hcl.Range, format string, args ...any) error {
	return fleet.Errorf(fleet.CodeInvalid, "%s:%d:%d: %s", at.Filename, at.Start.Line, at.Start.Column, fmt.Sprintf(format, args...))
}

func diagnosed(diags hcl.Diagnostics) error {
	for _, d := range diags {
		if d.Severity == hcl.DiagError && d.Subject != nil {
			return misplaced(*d.Subject, "%s: %s", d.Summary, d.Detail)
		}
	}
	return fleet.Errorf(fleet.CodeInvalid, "%v", diags)
}
