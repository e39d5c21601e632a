package jobspec

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"skerry/fleet"
	"skerry/fleet/syntax"
	"skerry/fleet/validate"
)

// nativeTree reads HCL's native syntax; nil where there is no job to go on with.
func (p *parser) nativeTree(src []byte) map[string]any {
	if !p.isWithinBounds(p.filename, src) {
		return nil
	}
	file, diags := hclsyntax.ParseConfig(src, p.filename, hcl.InitialPos)
	if diags.HasErrors() && p.otherLanguage(src) || p.addHCLDiagnostics(diags) {
		return nil
	}
	body := file.Body.(*hclsyntax.Body)
	p.refuseRepeatedItems(body)
	p.meter.meterBody(body, "")
	for _, attr := range sortedAttributes(body) {
		p.addDiagnosticAt(attr.NameRange, fmt.Sprintf("unknown attribute %q", attr.Name), "everything belongs into job \"NAME\" { … }")
	}
	var jobs, variables, locals []*hclsyntax.Block
	for _, b := range body.Blocks {
		switch b.Type {
		case "job":
			jobs = append(jobs, b)
		case "variable", "variables":
			variables = append(variables, b)
		case "locals":
			locals = append(locals, b)
		default:
			p.addDiagnosticAt(b.DefRange(), fmt.Sprintf("unknown block %q", b.Type),
				validate.Suggest(b.Type, []string{"job", "variable", "variables", "locals"}, ""))
		}
	}
	scope, ok := p.evaluationScope(variables, locals)
	if len(jobs) == 0 {
		p.addDiagnosticAt(body.EndRange, "there is no job block", emptyHint)
		return nil
	}
	for _, extra := range jobs[1:] {
		p.addDiagnosticAt(extra.DefRange(), fmt.Sprintf("only one job block is allowed: the first is at line %d", jobs[0].Range().Start.Line), "")
	}
	if !ok {
		return nil // everything below would only complain of variables again
	}
	root := map[string]any{}
	p.readChildBlock(root, p.nativeItem(jobs[0], scope), &block{
		key: "Job", label: "ID", attrs: jobBlock.attrs, blocks: jobBlock.blocks, finish: jobBlock.finish,
	}, "")
	tree, _ := root["Job"].(map[string]any)
	p.rerootPositions("Job")
	if p.meter.exceeded != nil {
		return nil // the rest would complain of what was not evaluated
	}
	return tree
}

// refuseRepeatedItems refuses a name that a map of the file has twice, such as env = { A = "1", A = "2" }.
func (p *parser) refuseRepeatedItems(body *hclsyntax.Body) {
	_ = hclsyntax.VisitAll(body, func(n hclsyntax.Node) hcl.Diagnostics {
		object, ok := n.(*hclsyntax.ObjectConsExpr)
		if !ok {
			return nil
		}
		seen := map[string]hcl.Range{}
		for _, item := range object.Items {
			if name, ok := literalKey(item.KeyExpr); ok {
				p.refuseRepeatedName(seen, name, item.KeyExpr.Range())
			}
		}
		return nil
	})
}

// literalKey returns the key of a map's item, if it is written as a word or as text without expressions.
func literalKey(expr hclsyntax.Expression) (string, bool) {
	if word := hcl.ExprAsKeyword(expr); word != "" {
		return word, true
	}
	key, ok := expr.(*hclsyntax.ObjectConsKeyExpr)
	if !ok {
		return "", false
	}
	template, ok := key.Wrapped.(*hclsyntax.TemplateExpr)
	if !ok || !template.IsStringLiteral() {
		return "", false
	}
	v, _ := template.Value(nil)
	return v.AsString(), true
}

// rerootPositions moves the positions of the job to the root of the tree.
func (p *parser) rerootPositions(prefix string) {
	moved := make(map[string]hcl.Range, len(p.positions))
	for path, r := range p.positions {
		if path == prefix {
			moved[""] = r
		} else if len(path) > len(prefix) && path[:len(prefix)+1] == prefix+"." {
			moved[path[len(prefix)+1:]] = r
		}
	}
	p.positions = moved
	for i, path := range p.failed {
		p.failed[i] = strings.TrimPrefix(path, prefix+".")
	}
}

// nativeItem wraps a block of the native syntax.
func (p *parser) nativeItem(b *hclsyntax.Block, scope *hcl.EvalContext) blockItem {
	return blockItem{
		name: b.Type, labels: b.Labels, at: b.DefRange(), scope: scope,
		body: func(*block) section { return p.nativeSection(b.Body, scope) },
	}
}

// nativeSection lists what a body holds, its dynamic blocks expanded.
func (p *parser) nativeSection(body *hclsyntax.Body, scope *hcl.EvalContext) section {
	var s section
	for _, attr := range sortedAttributes(body) {
		s.attrs = append(s.attrs, entry{name: attr.Name, at: attr.NameRange, expr: attr.Expr})
	}
	for _, b := range body.Blocks {
		if b.Type == "dynamic" {
			s.items = append(s.items, p.expandDynamic(b, scope)...)
			continue
		}
		s.items = append(s.items, p.nativeItem(b, scope))
	}
	return s
}

func sortedAttributes(body *hclsyntax.Body) []*hclsyntax.Attribute {
	attrs := make([]*hclsyntax.Attribute, 0, len(body.Attributes))
	for _, a := range body.Attributes {
		attrs = append(attrs, a)
	}
	slices.SortFunc(attrs, func(a, b *hclsyntax.Attribute) int { return a.NameRange.Start.Byte - b.NameRange.Start.Byte })
	return attrs
}

// maxDynamic bounds how many blocks one dynamic block makes.
const maxDynamic = fleet.MaxTaskGroups

// expandDynamic expands dynamic "TYPE" { for_each, iterator, labels, content { … } }.
func (p *parser) expandDynamic(b *hclsyntax.Block, scope *hcl.EvalContext) []blockItem {
	if len(b.Labels) != 1 {
		p.addDiagnosticAt(b.DefRange(), `a dynamic block needs the type of block that it makes: dynamic "task" { … }`, "")
		return nil
	}
	var content *hclsyntax.Block
	for _, inner := range b.Body.Blocks {
		if inner.Type != "content" || content != nil || len(inner.Labels) > 0 {
			p.addDiagnosticAt(inner.DefRange(), "a dynamic block contains one content block and no other block", "")
			return nil
		}
		content = inner
	}
	each, ok := b.Body.Attributes["for_each"]
	if content == nil || !ok {
		p.addDiagnosticAt(b.DefRange(), "a dynamic block needs for_each and a content block", "")
		return nil
	}
	iterator, labels, ok := p.dynamicHeader(b)
	if !ok {
		return nil
	}
	list, ok := p.evaluateValue(each.Expr, scope)
	if !ok {
		return nil
	}
	if list.IsNull() || !list.CanIterateElements() || list.LengthInt() > maxDynamic {
		p.addDiagnosticAt(each.Expr.Range(), fmt.Sprintf("for_each must be a list, a set or a map of at most %d elements", maxDynamic), "")
		return nil
	}
	if p.meter.dynamicBlocks += list.LengthInt(); p.meter.dynamicBlocks > maxDynamicBlocks {
		if p.meter.dynamicBlocks -= list.LengthInt(); p.meter.exceeded == nil {
			p.meter.exceeded = fmt.Errorf("the dynamic blocks of a file make at most %d blocks", maxDynamicBlocks)
			p.addDiagnosticAt(each.Expr.Range(), p.meter.exceeded.Error(), "")
		}
		return nil
	}
	var items []blockItem
	for it := list.ElementIterator(); it.Next(); {
		key, value := it.Element()
		if list.Type().IsSetType() {
			key = value
		}
		inner := scope.NewChild()
		inner.Variables = map[string]cty.Value{
			iterator: cty.ObjectVal(map[string]cty.Value{"key": key, "value": value}),
		}
		made := blockItem{name: b.Labels[0], at: b.DefRange(), scope: inner,
			body: func(*block) section { return p.nativeSection(content.Body, inner) }}
		if labels != nil {
			if made.labels, ok = p.dynamicLabels(labels, inner); !ok {
				return nil
			}
		}
		items = append(items, made)
	}
	return items
}

// dynamicHeader reads the iterator's name and finds the labels of a dynamic block.
func (p *parser) dynamicHeader(b *hclsyntax.Block) (iterator string, labels hcl.Expression, ok bool) {
	iterator, ok = b.Labels[0], true
	for _, attr := range sortedAttributes(b.Body) {
		switch attr.Name {
		case "for_each":
		case "labels":
			labels = attr.Expr
		case "iterator":
			if iterator = hcl.ExprAsKeyword(attr.Expr); iterator == "" {
				p.addDiagnosticAt(attr.Expr.Range(), "iterator must be a name", "")
				ok = false
			}
		default:
			p.addDiagnosticAt(attr.NameRange, fmt.Sprintf("unknown attribute %q", attr.Name), "for_each, iterator or labels")
			ok = false
		}
	}
	return iterator, labels, ok
}

func (p *parser) dynamicLabels(expr hcl.Expression, scope *hcl.EvalContext) ([]string, bool) {
	v, ok := p.evaluateValue(expr, scope)
	if !ok {
		return nil, false
	}
	tree, ok := p.convertValue(v, texts, expr.Range())
	if !ok {
		return nil, false
	}
	var labels []string
	list, _ := tree.([]any)
	for _, e := range list {
		label, isText := e.(string)
		if !isText {
			p.addDiagnosticAt(expr.Range(), "a label may not be null", "")
			return nil, false
		}
		labels = append(labels, label)
	}
	return labels, true
}

// isWithinBounds refuses a file that is nested too deep or too long for the parser.
func (p *parser) isWithinBounds(filename string, src []byte) bool {
	return p.reportExcess(syntax.HCLExcess(filename, src))
}

// reportExcess adds the diagnostic of an excess, and reports whether there is none.
func (p *parser) reportExcess(excess *syntax.Excess) bool {
	if excess == nil {
		return true
	}
	hint := ""
	if excess.TooLarge {
		hint = splitHint
	}
	p.addDiagnosticAt(excess.At, excess.Message, hint)
	return false
}
