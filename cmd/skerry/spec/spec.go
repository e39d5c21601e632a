// Package spec reads the files of namespaces and of node pools, in HCL or JSON. An error says where in the
// file the first mistake is. It starts no goroutine, and writes nothing.
package spec

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
	"github.com/zclconf/go-cty/cty/gocty"

	"skerry/fleet"
	"skerry/fleet/syntax"
)

// maxSpec is the size of the file of a namespace or of a node pool: more than the bounds
// of what can be said in it add up to.
const maxSpec = 256 << 10

// Read reads such a file, or the standard input for "-". CodeNotFound: there is no such file.
func Read(stdin io.Reader, name string) ([]byte, error) {
	in, shown := stdin, "the standard input"
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, &fleet.Error{Code: fleet.CodeNotFound, Message: err.Error()}
		}
		defer file.Close()
		in, shown = file, name
	}
	src, err := io.ReadAll(io.LimitReader(in, maxSpec+1))
	switch {
	case err != nil:
		return nil, fleet.Errorf(fleet.CodeInvalid, "read %s: %w", shown, err)
	case len(src) > maxSpec:
		return nil, fleet.Errorf(fleet.CodeInvalid, "read %s: it has more than %d bytes", shown, maxSpec)
	}
	return src, nil
}

// IsJSON tells a file in JSON from one in HCL, which cannot begin with a brace.
func IsJSON(src []byte) bool { return bytes.HasPrefix(bytes.TrimSpace(src), []byte("{")) }

// DecodeJSON reads one object in JSON. What the object does not have is an error, at
// its place in the file.
func DecodeJSON(name string, src []byte, into any) error {
	if syntax.JSONDepth(src) > fleet.MaxJobDepth {
		return fleet.Errorf(fleet.CodeInvalid, "%s: nested more than %d deep", name, fleet.MaxJobDepth)
	}
	dec := json.NewDecoder(bytes.NewReader(src))
	dec.DisallowUnknownFields()
	err := dec.Decode(into)
	if err == nil {
		rest := bytes.TrimSpace(src[dec.InputOffset():])
		if len(rest) == 0 {
			return nil
		}
		return jsonError(name, src, int64(len(src)-len(rest)), "there is more than one object")
	}
	var wrong *json.SyntaxError
	var mistyped *json.UnmarshalTypeError
	unknown, isUnknown := strings.CutPrefix(err.Error(), "json: unknown field ")
	switch {
	case errors.As(err, &wrong):
		return jsonError(name, src, wrong.Offset-1, wrong.Error())
	case errors.As(err, &mistyped):
		return jsonError(name, src, mistyped.Offset-1, fmt.Sprintf("%s is not %s, but %s", mistyped.Field, mistyped.Type, mistyped.Value))
	case isUnknown:
		return jsonError(name, src, keyAt(src, unknown), unknown+" is not known, or not supported")
	}
	return jsonError(name, src, int64(len(src)), err.Error())
}

// keyAt is where the first key of a quoted name is.
func keyAt(src []byte, quoted string) int64 {
	at := regexp.MustCompile(regexp.QuoteMeta(quoted) + `\s*:`).FindIndex(src)
	if at == nil {
		return 0 // it is written with escapes
	}
	return int64(at[0])
}

func jsonError(name string, src []byte, offset int64, message string) error {
	before := src[:min(max(offset, 0), int64(len(src)))]
	line, column := 1+bytes.Count(before, []byte("\n")), len(before)-bytes.LastIndexByte(before, '\n')
	return fleet.Errorf(fleet.CodeInvalid, "%s:%d:%d: %s", name, line, column, message)
}

// ParseBody reads a file in HCL, within bounds.
func ParseBody(name string, src []byte) (*hclsyntax.Body, error) {
	if excess := syntax.HCLExcess(name, src); excess != nil {
		return nil, excess.Refusal()
	}
	file, diags := hclsyntax.ParseConfig(src, name, hcl.InitialPos)
	if diags.HasErrors() {
		return nil, diagnosed(diags)
	}
	return file.Body.(*hclsyntax.Body), nil // as ParseConfig makes it
}

func inOrder(body *hclsyntax.Body) []*hclsyntax.Attribute {
	return slices.SortedFunc(maps.Values(body.Attributes), func(a, b *hclsyntax.Attribute) int {
		return a.SrcRange.Start.Byte - b.SrcRange.Start.Byte
	})
}

// Attributes reads those of a body into what is known of it.
func Attributes(body *hclsyntax.Body, known map[string]any) error {
	for _, attr := range inOrder(body) {
		into, ok := known[attr.Name]
		if !ok {
			return ErrorAt(attr.NameRange, "%q is not known, or not supported", attr.Name)
		}
		if err := evaluate(attr, into); err != nil {
			return err
		}
	}
	return nil
}

// Blocks reads those of a body, each with what is known to read it; none of them has
// labels, or is defined twice.
func Blocks(body *hclsyntax.Body, known map[string]func(*hclsyntax.Body) error) error {
	seen := map[string]bool{}
	for _, b := range body.Blocks {
		read, ok := known[b.Type]
		switch {
		case !ok:
			return ErrorAt(b.TypeRange, "block %q is not known, or not supported", b.Type)
		case len(b.Labels) > 0:
			return ErrorAt(b.LabelRanges[0], "a block %s has no labels", b.Type)
		case seen[b.Type] || body.Attributes[b.Type] != nil:
			return ErrorAt(b.TypeRange, "%s is defined twice", b.Type)
		}
		seen[b.Type] = true
		if err := read(b.Body); err != nil {
			return err
		}
	}
	return nil
}

// KeyValueBlock reads a block of which any attribute is a key.
func KeyValueBlock(into *map[string]string) func(*hclsyntax.Body) error {
	return func(body *hclsyntax.Body) error {
		*into = map[string]string{}
		for _, attr := range inOrder(body) {
			value := ""
			if err := evaluate(attr, &value); err != nil {
				return err
			}
			(*into)[attr.Name] = value
		}
		return Blocks(body, nil)
	}
}

// literal tells whether an expression is a value as it stands: nothing in it computes
// more than is written there.
func literal(expr hclsyntax.Expression) bool {
	plain := true
	_ = hclsyntax.VisitAll(expr, func(n hclsyntax.Node) hcl.Diagnostics {
		switch n.(type) {
		case *hclsyntax.LiteralValueExpr, *hclsyntax.TemplateExpr, *hclsyntax.TemplateWrapExpr, *hclsyntax.TupleConsExpr,
			*hclsyntax.ObjectConsExpr, *hclsyntax.ObjectConsKeyExpr, *hclsyntax.ParenthesesExpr, *hclsyntax.UnaryOpExpr:
		default:
			plain = false
		}
		return nil
	})
	return plain
}

// evaluate reads an attribute into a text, a truth, a duration, a list of texts or a
// map of them.
func evaluate(attr *hclsyntax.Attribute, into any) error {
	if !literal(attr.Expr) {
		return ErrorAt(attr.Expr.Range(), "the value of %s is computed: only plain values are taken here", attr.Name)
	}
	value, diags := attr.Expr.Value(nil)
	if diags.HasErrors() {
		return diagnosed(diags)
	}
	duration, isDuration := into.(*time.Duration)
	want, err := gocty.ImpliedType(into)
	if isDuration {
		want = cty.String
	}
	if err == nil {
		value, err = convert.Convert(value, want)
	}
	if err != nil || value.IsNull() || !value.IsWhollyKnown() {
		return ErrorAt(attr.SrcRange, "%s is not %s", attr.Name, want.FriendlyName())
	}
	switch {
	case isDuration:
		if *duration, err = time.ParseDuration(value.AsString()); err != nil {
			return ErrorAt(attr.Expr.Range(), "%s is not a duration such as \"90s\": %q", attr.Name, value.AsString())
		}
	case want.IsListType() && value.LengthInt() == 0: // an empty list is as none
	default:
		if err := gocty.FromCtyValue(value, into); err != nil {
			return ErrorAt(attr.SrcRange, "%s has a null in it", attr.Name)
		}
	}
	return nil
}

// ErrorAt is an error at a place in the file.
func ErrorAt(at hcl.Range, format string, args ...any) error {
	return fleet.Errorf(fleet.CodeInvalid, "%s:%d:%d: %s", at.Filename, at.Start.Line, at.Start.Column, fmt.Sprintf(format, args...))
}

func diagnosed(diags hcl.Diagnostics) error {
	for _, d := range diags {
		if d.Severity == hcl.DiagError && d.Subject != nil {
			return ErrorAt(*d.Subject, "%s: %s", d.Summary, d.Detail)
		}
	}
	return fleet.Errorf(fleet.CodeInvalid, "%v", diags)
}
