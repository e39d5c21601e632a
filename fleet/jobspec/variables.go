package jobspec

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/ext/typeexpr"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	hcljson "github.com/hashicorp/hcl/v2/json"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"

	"skerry/fleet"
	"skerry/fleet/syntax"
	"skerry/fleet/validate"
)

// variable is one declared variable.
type variable struct {
	name              string
	at                hcl.Range
	valueType         cty.Type
	parseAsExpression bool // a value that is text is an expression
	defaults          *typeexpr.Defaults
	value             cty.Value // NilVal: none yet
	source            string    // where the value came from, for messages
	checks            []*hclsyntax.Block
}

// evaluationScope evaluates variables and locals and returns the scope of the job; false if one
// of them failed.
func (p *parser) evaluationScope(variables, locals []*hclsyntax.Block) (*hcl.EvalContext, bool) {
	before := len(p.diags)
	scope := &hcl.EvalContext{Functions: p.meter.meteredFunctions(p.opts.Files), Variables: map[string]cty.Value{}}
	declared := map[string]*variable{}
	for _, b := range variables {
		p.declareVariables(declared, b, scope)
	}
	p.assignEnviron(declared)
	for _, f := range p.opts.VarFiles {
		p.assignFile(declared, f, scope)
	}
	for _, assignment := range p.opts.Vars {
		name, text, ok := strings.Cut(assignment, "=")
		v := declared[name]
		switch {
		case !ok:
			p.addDiagnostic(Diagnostic{File: "-var", Message: fmt.Sprintf("%q is not NAME=VALUE", assignment)})
		case v == nil:
			p.addDiagnostic(Diagnostic{File: "-var", Message: fmt.Sprintf("variable %q is not declared in %s", name, p.filename),
				Hint: validate.Suggest(name, slices.Sorted(maps.Keys(declared)), "")})
		default:
			p.assignText(v, text, "-var "+name)
		}
	}
	if len(declared) > maxNames {
		p.addDiagnostic(Diagnostic{File: p.filename, Message: fmt.Sprintf("%d variables: at most %d are allowed", len(declared), maxNames)})
		return scope, false
	}
	values := map[string]cty.Value{}
	for _, name := range slices.Sorted(maps.Keys(declared)) {
		v := declared[name]
		if v.value == cty.NilVal {
			p.addDiagnosticAt(v.at, fmt.Sprintf("variable %q has no value and no default", name), "set it with -var or -var-file")
			continue
		}
		values[name] = v.value
	}
	if len(p.diags) > before {
		return scope, false
	}
	scope.Variables["var"] = cty.ObjectVal(values)
	for _, name := range slices.Sorted(maps.Keys(declared)) {
		p.checkValidations(declared[name], scope)
	}
	p.evaluateLocals(locals, scope)
	return scope, len(p.diags) == before
}

// declareVariables reads variable "NAME" { … } or variables { NAME = DEFAULT … }.
func (p *parser) declareVariables(declared map[string]*variable, b *hclsyntax.Block, scope *hcl.EvalContext) {
	put := func(v *variable) {
		if first, dup := declared[v.name]; dup {
			p.addDiagnosticAt(v.at, fmt.Sprintf("variable %q is declared twice: first at line %d", v.name, first.at.Start.Line), "")
			return
		}
		declared[v.name] = v
	}
	if b.Type == "variables" {
		p.refuseNameAndBlocks(b)
		for _, attr := range sortedAttributes(b.Body) {
			if v, ok := p.evaluateValue(attr.Expr, scope); ok {
				made := &variable{name: attr.Name, at: attr.NameRange, valueType: cty.DynamicPseudoType, value: v}
				made.inferTypeFromDefault()
				put(made)
			}
		}
		return
	}
	if len(b.Labels) != 1 {
		p.addDiagnosticAt(b.DefRange(), `a variable needs one name: variable "name" { … }`, "")
		return
	}
	v := &variable{name: b.Labels[0], at: b.DefRange(), valueType: cty.DynamicPseudoType}
	var fallback *hclsyntax.Attribute
	typed := false
	for _, attr := range sortedAttributes(b.Body) {
		switch attr.Name {
		case "type":
			var diags hcl.Diagnostics
			v.valueType, v.defaults, diags = typeexpr.TypeConstraintWithDefaults(attr.Expr)
			if p.addHCLDiagnostics(diags) {
				return
			}
			v.parseAsExpression, typed = !v.valueType.IsPrimitiveType(), true
		case "default":
			fallback = attr
		case "description", "sensitive":
		default:
			p.addDiagnosticAt(attr.NameRange, fmt.Sprintf("unknown attribute %q", attr.Name), "type, default or description")
		}
	}
	for _, inner := range b.Body.Blocks {
		if inner.Type != "validation" {
			p.addDiagnosticAt(inner.DefRange(), fmt.Sprintf("unknown block %q", inner.Type), "a variable may have validation blocks")
			continue
		}
		v.checks = append(v.checks, inner)
	}
	if fallback != nil {
		if value, ok := p.evaluateValue(fallback.Expr, scope); ok {
			p.assignVariable(v, value, fallback.Expr.Range(), "the default")
		} else {
			v.value = cty.DynamicVal // already complained of
		}
		if !typed {
			v.inferTypeFromDefault()
		}
	}
	put(v)
}

// inferTypeFromDefault makes values of a variable that says no type be like its default: of that
// type where it is a primitive one, else whatever their text says.
func (v *variable) inferTypeFromDefault() {
	switch ty := v.value.Type(); {
	case v.value.IsNull() || ty == cty.DynamicPseudoType:
	case ty.IsPrimitiveType():
		v.valueType = ty
	default:
		v.parseAsExpression = true
	}
}

// assignVariable gives a variable a value of its type.
func (p *parser) assignVariable(v *variable, value cty.Value, at hcl.Range, source string) {
	if v.defaults != nil && !value.IsNull() {
		value = v.defaults.Apply(value)
	}
	converted, err := convert.Convert(value, v.valueType)
	if err != nil {
		p.addDiagnosticAt(at, fmt.Sprintf("%s is no value for variable %q: %s", source, v.name, err), "")
		converted = cty.DynamicVal
	}
	v.value, v.source = converted, source
}

// assignText reads a value from a flag or the environment: as an HCL expression where the
// variable may be a list or an object, else as it is. A variable that may be anything is
// text where that is no expression.
func (p *parser) assignText(v *variable, s, source string) {
	at := hcl.Range{Filename: source}
	if !v.parseAsExpression {
		p.assignVariable(v, cty.StringVal(s), at, "the value")
		return
	}
	if !p.isWithinBounds(source, []byte(s)) {
		return
	}
	expr, diags := hclsyntax.ParseExpression([]byte(s), source, hcl.InitialPos)
	if v.valueType == cty.DynamicPseudoType && (diags.HasErrors() || len(expr.Variables()) > 0) {
		p.assignVariable(v, cty.StringVal(s), at, "the value")
		return
	}
	if p.addHCLDiagnostics(diags) {
		v.value = cty.DynamicVal
		return
	}
	p.meter.meterExpression(expr)
	value, ok := p.evaluateValue(expr, &hcl.EvalContext{})
	if !ok {
		v.value = cty.DynamicVal
		return
	}
	p.assignVariable(v, value, expr.Range(), "the value")
}

func (p *parser) assignEnviron(declared map[string]*variable) {
	for _, pair := range p.opts.Environ {
		name, text, _ := strings.Cut(pair, "=")
		for _, prefix := range []string{"NOMAD_VAR_", "SKERRY_VAR_"} {
			if v := declared[strings.TrimPrefix(name, prefix)]; v != nil && strings.HasPrefix(name, prefix) {
				p.assignText(v, text, name)
			}
		}
	}
}

// assignFile reads a file of NAME = value, HCL or JSON.
func (p *parser) assignFile(declared map[string]*variable, f File, scope *hcl.EvalContext) {
	attrs, ok := p.valuesOf(f)
	if !ok {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(attrs)) {
		attr := attrs[name]
		v := declared[name]
		if v == nil {
			p.addDiagnosticAt(attr.NameRange, fmt.Sprintf("variable %q is not declared in %s", name, p.filename),
				validate.Suggest(name, slices.Sorted(maps.Keys(declared)), ""))
			continue
		}
		if value, ok := p.evaluateValue(attr.Expr, scope); ok {
			p.assignVariable(v, value, attr.Expr.Range(), "the value")
		}
	}
}

// valuesOf parses a file of values.
func (p *parser) valuesOf(f File) (map[string]*hcl.Attribute, bool) {
	if strings.HasSuffix(f.Name, ".json") {
		if syntax.JSONDepth(f.Src) > fleet.MaxJobDepth {
			p.addDiagnostic(Diagnostic{File: f.Name, Message: fmt.Sprintf("nested more than %d deep", fleet.MaxJobDepth)})
			return nil, false
		}
		file, diags := hcljson.Parse(f.Src, f.Name)
		if p.addHCLDiagnostics(diags) {
			return nil, false
		}
		attrs, diags := file.Body.JustAttributes()
		p.addHCLDiagnostics(diags)
		for _, attr := range attrs {
			attr.Expr = p.jsonNative(attr.Expr)
		}
		return attrs, true
	}
	if !p.isWithinBounds(f.Name, f.Src) {
		return nil, false
	}
	file, diags := hclsyntax.ParseConfig(f.Src, f.Name, hcl.InitialPos)
	if p.addHCLDiagnostics(diags) {
		return nil, false
	}
	p.meter.meterBody(file.Body.(*hclsyntax.Body), "")
	attrs, diags := file.Body.JustAttributes()
	p.addHCLDiagnostics(diags)
	return attrs, true
}

// checkValidations evaluates a variable's validation blocks.
func (p *parser) checkValidations(v *variable, scope *hcl.EvalContext) {
	for _, b := range v.checks {
		condition, message := b.Body.Attributes["condition"], b.Body.Attributes["error_message"]
		if condition == nil || message == nil {
			p.addDiagnosticAt(b.DefRange(), "a validation needs condition and error_message", "")
			continue
		}
		holds, ok := p.evaluateValue(condition.Expr, scope)
		if !ok {
			continue
		}
		holds, err := convert.Convert(holds, cty.Bool)
		if err != nil || holds.IsNull() || !holds.IsKnown() {
			p.addDiagnosticAt(condition.Expr.Range(), "the condition must be true or false", "")
			continue
		}
		if holds.True() {
			continue
		}
		said, ok := p.evaluateValue(message.Expr, scope)
		if !ok {
			continue
		}
		said, err = convert.Convert(said, cty.String)
		if err != nil || said.IsNull() {
			p.addDiagnosticAt(message.Expr.Range(), "the error_message must be text", "")
			continue
		}
		p.addDiagnosticAt(v.at, fmt.Sprintf("%s is refused for variable %q: %s", v.source, v.name, said.AsString()), "")
	}
}

// refuseNameAndBlocks refuses a name of a locals or variables block, and blocks within it.
func (p *parser) refuseNameAndBlocks(b *hclsyntax.Block) {
	if len(b.Labels) > 0 {
		p.addDiagnosticAt(b.DefRange(), fmt.Sprintf("a %s block has no name", b.Type), "")
	}
	for _, inner := range b.Body.Blocks {
		p.addDiagnosticAt(inner.DefRange(), fmt.Sprintf("a %s block contains only NAME = value", b.Type), "")
	}
}

// evaluateLocals evaluates the locals, each after those that it refers to.
func (p *parser) evaluateLocals(blocks []*hclsyntax.Block, scope *hcl.EvalContext) {
	waiting := map[string]*hclsyntax.Attribute{}
	for _, b := range blocks {
		for _, attr := range sortedAttributes(b.Body) {
			if first, dup := waiting[attr.Name]; dup {
				p.addDiagnosticAt(attr.NameRange, fmt.Sprintf("local %q is defined twice: first at line %d", attr.Name, first.NameRange.Start.Line), "")
				continue
			}
			waiting[attr.Name] = attr
		}
		p.refuseNameAndBlocks(b)
	}
	if len(waiting) > maxNames {
		p.addDiagnostic(Diagnostic{File: p.filename, Message: fmt.Sprintf("%d locals: at most %d are allowed", len(waiting), maxNames)})
		return
	}
	values := map[string]cty.Value{}
	scope.Variables["local"] = cty.ObjectVal(values)
	for len(waiting) > 0 {
		progress := false
		for _, name := range slices.Sorted(maps.Keys(waiting)) {
			attr := waiting[name]
			if refersTo(attr.Expr, waiting) {
				continue
			}
			progress = true
			delete(waiting, name)
			if v, ok := p.evaluateValue(attr.Expr, scope); ok {
				values[name] = v
				scope.Variables["local"] = cty.ObjectVal(values)
			}
		}
		if !progress {
			for _, name := range slices.Sorted(maps.Keys(waiting)) {
				p.addDiagnosticAt(waiting[name].NameRange, fmt.Sprintf("local %q refers to itself in a circle", name), "")
			}
			return
		}
	}
}

// refersTo reports whether an expression uses a local that is not evaluated yet.
func refersTo(expr hcl.Expression, waiting map[string]*hclsyntax.Attribute) bool {
	for _, t := range expr.Variables() {
		if t.RootName() != "local" || len(t) < 2 {
			continue
		}
		if step, ok := t[1].(hcl.TraverseAttr); ok && waiting[step.Name] != nil {
			return true
		}
	}
	return false
}
