package jobspec

import (
	"github.com/hashicorp/hcl/v2"
	hcljson "github.com/hashicorp/hcl/v2/json"
)

// jsonSyntaxTree reads HCL's JSON syntax, in which a block is an object below its
// type and its labels.
func (p *parser) jsonSyntaxTree(src []byte) map[string]any {
	file, diags := hcljson.Parse(src, p.filename)
	if p.hcl(diags) {
		return nil
	}
	attrs, diags := file.Body.JustAttributes()
	if p.hcl(diags) {
		return nil
	}
	outer := &block{blocks: map[string]*block{"job": jobBlock}}
	var pairs []hcl.KeyValuePair
	for name, attr := range attrs {
		if name != "job" {
			p.at(attr.NameRange, name+" is not expected beside job", "variables and locals need HCL's native syntax")
			continue
		}
		pairs = append(pairs, hcl.KeyValuePair{Key: hcl.StaticExpr(nameValue(name), attr.NameRange), Value: attr.Expr})
	}
	scope := &hcl.EvalContext{Functions: functions(p.opts.ReadFile)}
	root := p.object(p.jsonSection(pairs, outer, scope), outer, "", scope)
	tree, ok := root["Job"].(map[string]any)
	if !ok && len(p.diags) == 0 {
		p.add(Diagnostic{File: p.filename, Message: "there is no job"})
	}
	p.reroot("Job")
	return tree
}

// jsonSection sorts the keys of an object into attributes and blocks.
func (p *parser) jsonSection(pairs []hcl.KeyValuePair, b *block, scope *hcl.EvalContext) section {
	var s section
	for _, pair := range pairs {
		key, diags := pair.Key.Value(nil)
		if p.hcl(diags) {
			continue
		}
		name, at := key.AsString(), pair.Key.Range()
		child, isBlock := b.blocks[name]
		if !isBlock || child.asAttribute() {
			s.attrs = append(s.attrs, entry{name: name, at: at, expr: pair.Value})
			continue
		}
		labels := 0
		if child.label != "" {
			labels = 1
		}
		s.items = append(s.items, p.jsonItems(item{name: name, at: at, scope: scope}, pair.Value, labels)...)
	}
	return s
}

// jsonItems unfolds labels and lists: {"group": {"a": {…}, "b": [{…}, {…}]}}.
func (p *parser) jsonItems(it item, expr hcl.Expression, labels int) []item {
	if list, diags := hcl.ExprList(expr); !diags.HasErrors() {
		var items []item
		for _, e := range list {
			items = append(items, p.jsonItems(it, e, labels)...)
		}
		return items
	}
	pairs, diags := hcl.ExprMap(expr)
	if diags.HasErrors() {
		p.at(expr.Range(), it.name+" must be an object", "")
		return nil
	}
	if labels == 0 {
		it.body = func(b *block) section { return p.jsonSection(pairs, b, it.scope) }
		return []item{it}
	}
	var items []item
	for _, pair := range pairs {
		key, diags := pair.Key.Value(nil)
		if p.hcl(diags) {
			continue
		}
		labelled := it
		labelled.labels = append(append([]string(nil), it.labels...), key.AsString())
		labelled.at = pair.Key.Range()
		items = append(items, p.jsonItems(labelled, pair.Value, labels-1)...)
	}
	return items
}
