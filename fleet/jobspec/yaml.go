package jobspec

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
	"go.yaml.in/yaml/v3"

	"skerry/fleet"
)

// nodeCost is what a value takes while it is YAML: a node of the document, with its
// position, its style and its comments.
const nodeCost = 4 * elementCost

// yamlDecode makes the function that reads YAML. Each use of an alias counts in full,
// while it is read: a few lines can name more than any machine has.
func (m *meter) yamlDecode() function.Function {
	decode := func(args []cty.Value) (cty.Value, error) {
		var doc yaml.Node
		in := yaml.NewDecoder(strings.NewReader(args[0].AsString()))
		switch err := in.Decode(&doc); {
		case errors.Is(err, io.EOF):
			return cty.NilVal, errors.New("decode YAML: there is no value in it")
		case err != nil:
			return cty.NilVal, notYAML(err)
		}
		switch err := in.Decode(new(yaml.Node)); {
		case err == nil:
			return cty.NilVal, errors.New("decode YAML: more than one document: only one is a value")
		case !errors.Is(err, io.EOF):
			return cty.NilVal, notYAML(err)
		}
		r := yamlReader{left: m.left}
		return r.readYAMLNode(&doc)
	}
	return function.New(&function.Spec{
		Params: []function.Parameter{{Name: "text", Type: cty.String}},
		Type: func(args []cty.Value) (cty.Type, error) {
			if !args[0].IsKnown() {
				return cty.DynamicPseudoType, nil
			}
			v, err := decode(args)
			if err != nil {
				return cty.NilType, err
			}
			return v.Type(), nil
		},
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) { return decode(args) },
	})
}

func notYAML(err error) error {
	return fmt.Errorf("decode YAML: %s", strings.TrimPrefix(err.Error(), "yaml: "))
}

// yamlNodes is more than the nodes of a document in YAML: each but the first has at least
// one of these signs of its own.
func yamlNodes(text string) float64 {
	n := 1
	for i := range len(text) {
		switch text[i] {
		case ',', '[', '{', ':', '-', '?', '\n', '\r', 0x85, 0xa8, 0xa9: // the last three end the other line ends
			n++
		}
	}
	return float64(n)
}

// yamlReader makes values of nodes, of which so much is left as the meter has.
type yamlReader struct {
	left  int64
	depth int
}

func (r *yamlReader) readYAMLNode(n *yaml.Node) (cty.Value, error) {
	if r.depth++; r.depth > fleet.MaxJobDepth {
		return cty.NilVal, fmt.Errorf("decode YAML: line %d: nested more than %d deep", n.Line, fleet.MaxJobDepth)
	}
	defer func() { r.depth-- }()
	if r.left -= elementCost + int64(len(n.Value)); r.left < 0 {
		return cty.NilVal, errTooMuch
	}
	switch n.Kind {
	case yaml.DocumentNode:
		return r.readYAMLNode(n.Content[0])
	case yaml.AliasNode:
		return r.readYAMLNode(n.Alias) // one within itself ends at the depth
	case yaml.SequenceNode:
		elements := make([]cty.Value, len(n.Content))
		for i, e := range n.Content {
			var err error
			if elements[i], err = r.readYAMLNode(e); err != nil {
				return cty.NilVal, err
			}
		}
		return cty.TupleVal(elements), nil
	case yaml.MappingNode:
		attrs := map[string]cty.Value{}
		if err := r.readMapping(attrs, n); err != nil {
			return cty.NilVal, err
		}
		return cty.ObjectVal(attrs), nil
	}
	return yamlScalar(n)
}

// readMapping reads the pairs of a mapping; its own keys override merged ones.
func (r *yamlReader) readMapping(into map[string]cty.Value, n *yaml.Node) error {
	own := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		v, err := r.readYAMLNode(value)
		if err != nil {
			return err
		}
		if key.ShortTag() == "!!merge" {
			if err := merge(into, own, v); err != nil {
				return fmt.Errorf("decode YAML: line %d: %w", key.Line, err)
			}
			continue
		}
		name, err := yamlKey(key)
		if err != nil {
			return err
		}
		if own[name] {
			return fmt.Errorf("decode YAML: line %d: the key %q is defined twice", key.Line, name)
		}
		r.left -= int64(len(name))
		own[name], into[name] = true, v
	}
	return nil
}

// merge adds the mappings under <<; the first of a list overrides the others.
func merge(into map[string]cty.Value, own map[string]bool, v cty.Value) error {
	maps := []cty.Value{v}
	if v.Type().IsTupleType() {
		maps = slices.Collect(func(yield func(cty.Value) bool) {
			for it := v.ElementIterator(); it.Next(); {
				if _, e := it.Element(); !yield(e) {
					return
				}
			}
		})
	}
	merged := map[string]bool{}
	for _, m := range maps {
		if m.IsNull() || !m.Type().IsObjectType() {
			return errors.New("<< needs a mapping, or a list of them")
		}
		for it := m.ElementIterator(); it.Next(); {
			k, e := it.Element()
			name := k.AsString()
			if _, there := into[name]; own[name] || merged[name] && there {
				continue
			}
			into[name], merged[name] = e, true
		}
	}
	return nil
}

// yamlKey is a key as text, which it is as it is written.
func yamlKey(n *yaml.Node) (string, error) {
	for hops := 0; n.Kind == yaml.AliasNode && hops < fleet.MaxJobDepth; hops++ {
		n = n.Alias
	}
	if n.Kind != yaml.ScalarNode || n.ShortTag() == "!!null" {
		return "", fmt.Errorf("decode YAML: line %d: a key must be text", n.Line)
	}
	return n.Value, nil
}

// Words that are true and false in YAML 1.1, which people write.
var (
	yamlTrue  = []string{"y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"}
	yamlFalse = []string{"n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"}

	decimal = regexp.MustCompile(`^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]{1,3})?$`)
)

func yamlScalar(n *yaml.Node) (cty.Value, error) {
	wrong := func(what string) (cty.Value, error) {
		return cty.NilVal, fmt.Errorf("decode YAML: line %d: %.40q is not a %s", n.Line, n.Value, what)
	}
	tag := n.ShortTag()
	plain := n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle|yaml.TaggedStyle) == 0
	switch {
	case tag == "!!bool" || plain && tag == "!!str":
		if slices.Contains(yamlTrue, n.Value) {
			return cty.True, nil
		}
		if slices.Contains(yamlFalse, n.Value) {
			return cty.False, nil
		}
		if tag == "!!bool" {
			return wrong("true or false")
		}
		return cty.StringVal(n.Value), nil
	case tag == "!!null":
		return cty.NullVal(cty.DynamicPseudoType), nil
	case tag == "!!int" || tag == "!!float":
		return yamlNumber(n, wrong)
	case tag == "!!timestamp":
		var t time.Time
		if err := n.Decode(&t); err != nil {
			return wrong("time")
		}
		return cty.StringVal(t.Format(time.RFC3339)), nil
	case tag == "!!str" || tag == "!!binary":
		return cty.StringVal(n.Value), nil
	}
	return cty.NilVal, fmt.Errorf("decode YAML: line %d: unknown tag %.40s", n.Line, tag)
}

// yamlNumber is a number in decimal, or a whole one of another base.
func yamlNumber(n *yaml.Node, wrong func(string) (cty.Value, error)) (cty.Value, error) {
	digits := strings.ReplaceAll(n.Value, "_", "")
	if decimal.MatchString(digits) && len(digits) < maxNumberBits/4 {
		v, err := cty.ParseNumberVal(strings.TrimPrefix(digits, "+"))
		if err != nil {
			return wrong("number")
		}
		return v, nil
	}
	var whole int64
	if n.Decode(&whole) == nil {
		return cty.NumberIntVal(whole), nil
	}
	var large uint64
	if n.Decode(&large) == nil {
		return cty.NumberUIntVal(large), nil
	}
	return wrong("number that a job may have")
}

// yamlEncode makes a value YAML, texts in quotes, so that none of them is read as
// something else.
var yamlEncode = function.New(&function.Spec{
	Params: []function.Parameter{{Name: "value", Type: cty.DynamicPseudoType, AllowNull: true, AllowDynamicType: true}},
	Type:   function.StaticReturnType(cty.String),
	Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
		if !args[0].IsWhollyKnown() {
			return cty.UnknownVal(cty.String), nil
		}
		node, err := yamlNode(args[0])
		if err != nil {
			return cty.NilVal, err
		}
		var out bytes.Buffer
		enc := yaml.NewEncoder(&out)
		enc.SetIndent(2)
		if err := errors.Join(enc.Encode(node), enc.Close()); err != nil {
			return cty.NilVal, fmt.Errorf("encode YAML: %w", err)
		}
		return cty.StringVal(out.String()), nil
	},
})

func yamlNode(v cty.Value) (*yaml.Node, error) {
	text := func(s string) *yaml.Node {
		n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s, Style: yaml.DoubleQuotedStyle}
		if strings.Contains(s, "\n") {
			n.Style = yaml.LiteralStyle
		}
		return n
	}
	plain := func(tag, s string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: s} }
	ty := v.Type()
	switch {
	case v.IsNull():
		return plain("!!null", "null"), nil
	case ty == cty.String:
		return text(v.AsString()), nil
	case ty == cty.Bool:
		return plain("!!bool", fmt.Sprint(v.True())), nil
	case ty == cty.Number:
		return plain("", v.AsBigFloat().Text('f', -1)), nil
	case ty.IsTupleType() || ty.IsListType() || ty.IsSetType():
		list := &yaml.Node{Kind: yaml.SequenceNode}
		for it := v.ElementIterator(); it.Next(); {
			_, e := it.Element()
			n, err := yamlNode(e)
			if err != nil {
				return nil, err
			}
			list.Content = append(list.Content, n)
		}
		return list, nil
	case ty.IsObjectType() || ty.IsMapType():
		object := &yaml.Node{Kind: yaml.MappingNode}
		for it := v.ElementIterator(); it.Next(); {
			k, e := it.Element()
			n, err := yamlNode(e)
			if err != nil {
				return nil, err
			}
			object.Content = append(object.Content, text(k.AsString()), n)
		}
		return object, nil
	}
	return nil, fmt.Errorf("encode YAML: there is no %s in it", ty.FriendlyName())
}

// yamlWritten is what a value is as YAML: nodes, and lines that are indented.
func yamlWritten(v cty.Value, depth int64) (int64, error) {
	if depth > fleet.MaxJobDepth {
		return 0, fmt.Errorf("encode YAML: nested more than %d deep", fleet.MaxJobDepth)
	}
	cost := nodeCost + 2*depth
	if v.IsNull() {
		return cost, nil
	}
	if v.Type() == cty.String {
		s := v.AsString()
		return cost + int64(len(s)) + 2*depth*int64(strings.Count(s, "\n")), nil
	}
	if v.CanIterateElements() {
		for it := v.ElementIterator(); it.Next() && cost <= maxWork; {
			_, e := it.Element()
			of, err := yamlWritten(e, depth+1)
			if err != nil {
				return 0, err
			}
			cost += of + nodeCost
		}
	}
	return cost, nil
}
