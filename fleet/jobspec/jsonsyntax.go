package jobspec

import (
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	hcljson "github.com/hashicorp/hcl/v2/json"
	"github.com/zclconf/go-cty/cty"

	"skerry/fleet/syntax"
)

// jsonSyntaxTree reads HCL's JSON syntax, in which a block is an object below its
// type and its labels.
func (p *parser) jsonSyntaxTree(src []byte) map[string]any {
	file, diags := hcljson.Parse(src, p.filename)
	if p.addHCLDiagnostics(diags) {
		return nil
	}
	attrs, diags := file.Body.JustAttributes()
	if p.addHCLDiagnostics(diags) {
		return nil
	}
	outer := &block{blocks: map[string]*block{"job": jobBlock}}
	var pairs []hcl.KeyValuePair
	var variables, locals []*hclsyntax.Block
	for _, attr := range slices.SortedFunc(maps.Values(attrs), byPosition) {
		switch attr.Name {
		case "job":
			pairs = append(pairs, hcl.KeyValuePair{Key: hcl.StaticExpr(nameValue("job"), attr.NameRange), Value: attr.Expr})
		case "variable", "variables":
			variables = append(variables, p.jsonBlocks(attr.Name, attr.NameRange, attr.Expr)...)
		case "locals":
			locals = append(locals, p.jsonBlocks(attr.Name, attr.NameRange, attr.Expr)...)
		default:
			p.addDiagnosticAt(attr.NameRange, attr.Name+" is not expected beside job",
				"a job in JSON is {\"job\": {\"NAME\": {…}}}, or {\"Job\": {\"ID\": …}} as the API has it")
		}
	}
	scope, ok := p.evaluationScope(variables, locals)
	if !ok {
		return nil
	}
	root := p.readSection(p.jsonSection(pairs, outer, scope), outer, "", scope)
	tree, ok := root["Job"].(map[string]any)
	if !ok && len(p.diags) == 0 {
		p.addDiagnostic(Diagnostic{File: p.filename, Message: "the file has no job"})
	}
	p.rerootPositions("Job")
	if p.meter.exceeded != nil {
		return nil
	}
	return tree
}

func byPosition(a, b *hcl.Attribute) int { return a.NameRange.Start.Byte - b.NameRange.Start.Byte }

// jsonBlocks turns declarations of variables and locals into the blocks of the native syntax.
func (p *parser) jsonBlocks(name string, at hcl.Range, expr hcl.Expression) []*hclsyntax.Block {
	it := blockItem{name: name, at: at}
	labels := 0
	if name == "variable" {
		labels = 1
	}
	var blocks []*hclsyntax.Block
	for _, made := range p.jsonItems(it, expr, labels) {
		blocks = append(blocks, p.jsonBlock(made, made.pairs))
	}
	return blocks
}

func (p *parser) jsonBlock(it blockItem, pairs []hcl.KeyValuePair) *hclsyntax.Block {
	body := &hclsyntax.Body{Attributes: hclsyntax.Attributes{}, SrcRange: it.at, EndRange: it.at}
	seen := map[string]hcl.Range{}
	for _, pair := range pairs {
		key, diags := pair.Key.Value(nil)
		if p.addHCLDiagnostics(diags) {
			continue
		}
		name, at := key.AsString(), pair.Key.Range()
		if it.name == "variable" && name == "validation" {
			body.Blocks = append(body.Blocks, p.jsonBlocks(name, at, pair.Value)...)
			continue
		}
		p.refuseRepeatedName(seen, name, at)
		attr := &hclsyntax.Attribute{Name: name, NameRange: at, SrcRange: at}
		if attr.Expr = p.jsonType(it, name, pair.Value); attr.Expr == nil {
			attr.Expr = p.jsonNative(pair.Value)
		}
		body.Attributes[name] = attr
	}
	return &hclsyntax.Block{Type: it.name, Labels: it.labels, Body: body, TypeRange: it.at, OpenBraceRange: it.at, CloseBraceRange: it.at}
}

// jsonType reads the type of a variable, which is a text in JSON; nil where it is none.
func (p *parser) jsonType(it blockItem, name string, expr hcl.Expression) hclsyntax.Expression {
	if it.name != "variable" || name != "type" {
		return nil
	}
	v, _ := expr.Value(nil)
	if v.IsNull() || v.Type() != cty.String {
		return nil
	}
	return p.jsonText(v.AsString(), expr.Range(), hclsyntax.LexExpression, hclsyntax.ParseExpression)
}

// jsonText reads what is written in a text of HCL's JSON syntax; nil where that is wrong.
func (p *parser) jsonText(text string, at hcl.Range,
	lex func([]byte, string, hcl.Pos) (hclsyntax.Tokens, hcl.Diagnostics),
	parse func([]byte, string, hcl.Pos) (hclsyntax.Expression, hcl.Diagnostics),
) hclsyntax.Expression {
	src, from := []byte(text), hcl.Pos{Line: at.Start.Line, Column: at.Start.Column + 1, Byte: at.Start.Byte + 1}
	tokens, _ := lex(src, at.Filename, from)
	if !p.reportExcess(syntax.TokensExcess(tokens)) {
		return nil
	}
	written, diags := parse(src, at.Filename, from)
	if p.addHCLDiagnostics(diags) {
		return nil
	}
	return written
}

// jsonNative makes a value of HCL's JSON syntax the expression that it would be in the
// native one, so that it is evaluated, and measured, like those. Its texts are templates.
func (p *parser) jsonNative(expr hcl.Expression) hclsyntax.Expression {
	at := expr.Range()
	if list, diags := hcl.ExprList(expr); !diags.HasErrors() {
		tuple := &hclsyntax.TupleConsExpr{SrcRange: at, OpenRange: at}
		for _, e := range list {
			tuple.Exprs = append(tuple.Exprs, p.jsonNative(e))
		}
		return tuple
	}
	if pairs, diags := hcl.ExprMap(expr); !diags.HasErrors() {
		object := &hclsyntax.ObjectConsExpr{SrcRange: at, OpenRange: at}
		seen := map[string]hcl.Range{}
		for _, pair := range pairs {
			if key, _ := pair.Key.Value(nil); key.Type() == cty.String && !key.IsNull() {
				p.refuseRepeatedName(seen, key.AsString(), pair.Key.Range())
			}
			object.Items = append(object.Items, hclsyntax.ObjectConsItem{KeyExpr: p.jsonNative(pair.Key), ValueExpr: p.jsonNative(pair.Value)})
		}
		return object
	}
	v, diags := expr.Value(nil) // texts as they are
	p.addHCLDiagnostics(diags)
	literal := &hclsyntax.LiteralValueExpr{Val: v, SrcRange: at}
	if v.IsNull() || v.Type() != cty.String || !strings.Contains(v.AsString(), "{") {
		return literal
	}
	template := p.jsonText(v.AsString(), at, hclsyntax.LexTemplate, hclsyntax.ParseTemplate)
	if template == nil {
		return literal
	}
	p.meter.meterExpression(template)
	return template
}

// jsonSection sorts the keys of an object into attributes and blocks.
func (p *parser) jsonSection(pairs []hcl.KeyValuePair, b *block, scope *hcl.EvalContext) section {
	var s section
	seen := map[string]hcl.Range{}
	for _, pair := range pairs {
		key, diags := pair.Key.Value(nil)
		if p.addHCLDiagnostics(diags) {
			continue
		}
		name, at := key.AsString(), pair.Key.Range()
		child, isBlock := b.blocks[name]
		if name == "dynamic" && !b.free {
			p.addDiagnosticAt(at, "dynamic blocks need HCL's native syntax", "write out what they make")
			continue
		}
		if !isBlock || child.asAttribute() {
			p.refuseRepeatedName(seen, name, at)
			s.attrs = append(s.attrs, entry{name: name, at: at, expr: p.jsonNative(pair.Value)})
			continue
		}
		labels := 0
		if child.label != "" {
			labels = 1
		}
		s.items = append(s.items, p.jsonItems(blockItem{name: name, at: at, scope: scope}, pair.Value, labels)...)
	}
	return s
}

// jsonItems unfolds labels and lists: {"group": {"a": {…}, "b": [{…}, {…}]}}.
func (p *parser) jsonItems(it blockItem, expr hcl.Expression, labels int) []blockItem {
	if list, diags := hcl.ExprList(expr); !diags.HasErrors() {
		var items []blockItem
		for _, e := range list {
			items = append(items, p.jsonItems(it, e, labels)...)
		}
		return items
	}
	pairs, diags := hcl.ExprMap(expr)
	if diags.HasErrors() {
		p.addDiagnosticAt(expr.Range(), it.name+" must be an object", "")
		return nil
	}
	if labels == 0 {
		it.pairs = pairs
		it.body = func(b *block) section { return p.jsonSection(pairs, b, it.scope) }
		return []blockItem{it}
	}
	var items []blockItem
	for _, pair := range pairs {
		key, diags := pair.Key.Value(nil)
		if p.addHCLDiagnostics(diags) {
			continue
		}
		labelled := it
		labelled.labels = append(append([]string(nil), it.labels...), key.AsString())
		labelled.at = pair.Key.Range()
		items = append(items, p.jsonItems(labelled, pair.Value, labels-1)...)
	}
	return items
}
