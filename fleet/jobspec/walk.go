package jobspec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"skerry/fleet"
	"skerry/fleet/validate"
)

// section is the content of a block, whichever syntax it came from.
type section struct {
	attrs []entry
	items []blockItem
}

// entry is NAME = EXPRESSION.
type entry struct {
	name string
	at   hcl.Range
	expr hcl.Expression
}

// blockItem is a block within a section. scope is what its content may refer to; pairs are
// its content where it is of HCL's JSON syntax.
type blockItem struct {
	name   string
	labels []string
	at     hcl.Range
	body   func(b *block) section
	scope  *hcl.EvalContext
	pairs  []hcl.KeyValuePair
}

// targetObject is an object of the tree on its way.
type targetObject struct {
	m     map[string]any
	b     *block // its rules
	path  string
	scope *hcl.EvalContext
}

// readSection reads a section by the rules of b into an object of the tree.
func (p *parser) readSection(s section, b *block, path string, scope *hcl.EvalContext) map[string]any {
	m := map[string]any{}
	for _, e := range s.attrs {
		p.readAttribute(targetObject{m, b, path, scope}, e)
	}
	seen := map[string]hcl.Range{}
	for _, it := range s.items {
		child, ok := b.blocks[it.name]
		if !ok {
			p.unexpectedBlock(it, b)
			continue
		}
		if first, dup := seen[it.name]; dup && !child.repeated && !child.keyed {
			p.addDiagnosticAt(it.at, fmt.Sprintf("only one %s block is allowed: the first is at line %d", it.name, first.Start.Line), "")
			continue
		}
		seen[it.name] = it.at
		p.readChildBlock(m, it, child, path)
	}
	return m
}

// refuseRepeatedName adds a name to those that were seen before it at one place, and refuses one that is there already: one
// of both values would be ignored.
func (p *parser) refuseRepeatedName(seen map[string]hcl.Range, name string, at hcl.Range) {
	if first, dup := seen[name]; dup {
		p.addDiagnosticAt(at, fmt.Sprintf("%q is defined twice: first at line %d", name, first.Start.Line), "")
		return
	}
	seen[name] = at
}

// readAttribute reads one attribute into an object.
func (p *parser) readAttribute(into targetObject, e entry) {
	if child, ok := into.b.blocks[e.name]; ok && child.asAttribute() {
		p.recordPosition(joinPath(into.path, child.key), e.at)
		if v, ok := p.evaluateValue(e.expr, into.scope); ok {
			p.mapAttribute(into.m, e, v, child)
		}
		return
	}
	a, ok := into.b.attrs[e.name]
	if !ok {
		p.unexpectedAttribute(e, into.b)
		return
	}
	at := joinPath(into.path, a.key)
	v, ok := p.evaluateValue(e.expr, into.scope)
	if !ok {
		p.recordFailedPath(at)
	}
	if !ok || v.IsNull() {
		return
	}
	p.recordPosition(at, e.expr.Range())
	if tree, ok := p.convertValue(v, a.kind, e.expr.Range()); ok {
		into.m[a.key] = tree
	} else {
		p.recordFailedPath(at)
	}
}

// mapAttribute reads env = {…}, meta = {…} and config = {…}.
func (p *parser) mapAttribute(m map[string]any, e entry, v cty.Value, child *block) {
	if v.IsNull() {
		return
	}
	if ty := v.Type(); !ty.IsObjectType() && !ty.IsMapType() {
		p.addDiagnosticAt(e.expr.Range(), e.name+" must be a map, not "+describe(v), "")
		return
	}
	if _, dup := m[child.key]; dup {
		p.addDiagnosticAt(e.at, e.name+" is defined twice", "")
		return
	}
	if child.texts {
		var err error
		if v, err = convert.Convert(v, cty.Map(cty.String)); err != nil {
			p.addDiagnosticAt(e.expr.Range(), fmt.Sprintf("%s must be a map of text: %s", e.name, err), "")
			return
		}
		v = withoutNulls(v)
	}
	tree, ok := p.valueToTree(v, e.expr.Range())
	if !ok {
		return
	}
	m[child.key] = tree
	if object, isObject := tree.(map[string]any); isObject && child.finish != nil {
		child.finish(p, object, "")
	}
}

// withoutNulls drops the null values of a map, as in a block.
func withoutNulls(texts cty.Value) cty.Value {
	if texts.IsNull() || !texts.IsWhollyKnown() {
		return texts
	}
	said := map[string]cty.Value{}
	for it := texts.ElementIterator(); it.Next(); {
		if k, v := it.Element(); !v.IsNull() {
			said[k.AsString()] = v
		}
	}
	if len(said) == 0 {
		return cty.MapValEmpty(cty.String)
	}
	return cty.MapVal(said)
}

// readChildBlock reads one block into m: into a list, or as the only one.
func (p *parser) readChildBlock(m map[string]any, it blockItem, b *block, path string) {
	key := b.key
	if b.wrap != "" {
		list, _ := m[b.wrap].([]any)
		path = joinPath(path, fmt.Sprintf("%s[%d]", b.wrap, len(list)))
		p.recordPosition(path, it.at)
		group := map[string]any{}
		m[b.wrap] = append(list, group)
		m = group
	}
	list, _ := m[key].([]any)
	at := joinPath(path, key)
	if b.keyed && len(it.labels) > 0 {
		p.recordPosition(at, it.at)
		at = joinPath(at, it.labels[0])
	}
	if b.repeated {
		p.recordPosition(at, it.at)
		at = fmt.Sprintf("%s[%d]", at, len(list))
	}
	p.recordPosition(at, it.at)
	child := p.readBlockContent(it, b, at)
	name, labelled := p.checkedLabel(it, b)
	if labelled && b.label != "" {
		switch own, given := child[b.label]; {
		case !given:
			child[b.label] = name
		case b.key == jobBlock.key: // with an id of its own, the label is the job's name
			if _, named := child["Name"]; !named {
				child["Name"] = name
			}
		case own != name:
			p.addDiagnosticAt(it.at, fmt.Sprintf("the %s has two names: %q and %q", it.name, name, own), "")
		}
		if b.wrap != "" {
			m[b.label] = name
		}
	}
	if b.finish != nil {
		b.finish(p, child, at)
	}
	if b.keyed {
		p.putKeyedBlock(m, it, child, key)
		return
	}
	switch _, dup := m[key]; {
	case b.repeated:
		m[key] = append(list, child)
	case dup:
		p.addDiagnosticAt(it.at, it.name+" is defined twice", "")
	default:
		m[key] = child
	}
}

// putKeyedBlock puts a block into a map by its label.
func (p *parser) putKeyedBlock(m map[string]any, it blockItem, child map[string]any, key string) {
	if len(it.labels) == 0 {
		p.addDiagnosticAt(it.at, fmt.Sprintf("a %s block needs a name", it.name), "")
		return
	}
	byLabel, _ := m[key].(map[string]any)
	if byLabel == nil {
		byLabel = map[string]any{}
		m[key] = byLabel
	}
	if _, dup := byLabel[it.labels[0]]; dup {
		p.addDiagnosticAt(it.at, fmt.Sprintf("%s %q is defined twice", it.name, it.labels[0]), "")
	}
	byLabel[it.labels[0]] = child
}

// readBlockContent reads a block's content by its kind.
func (p *parser) readBlockContent(it blockItem, b *block, path string) map[string]any {
	s := it.body(b)
	switch {
	case b.texts:
		return p.readTextMap(s, path, it.scope)
	case b.free:
		return p.readFreeBlock(s, path, it.scope)
	}
	return p.readSection(s, b, path, it.scope)
}

// readTextMap reads a block whose attributes are a map of text.
func (p *parser) readTextMap(s section, path string, scope *hcl.EvalContext) map[string]any {
	m := map[string]any{}
	for _, e := range s.attrs {
		p.recordPosition(joinPath(path, e.name), e.at)
		v, ok := p.evaluateValue(e.expr, scope)
		if !ok || v.IsNull() {
			continue
		}
		if tree, ok := p.convertValue(v, text, e.expr.Range()); ok {
			m[e.name] = tree
		}
	}
	for _, it := range s.items {
		p.addDiagnosticAt(it.at, fmt.Sprintf("no block %s is expected here: write %s = …", it.name, it.name), "")
	}
	return m
}

// readFreeBlock reads a driver's configuration: attributes as they are, and each kind of block as a
// list of objects.
func (p *parser) readFreeBlock(s section, path string, scope *hcl.EvalContext) map[string]any {
	m := map[string]any{}
	for _, e := range s.attrs {
		p.recordPosition(joinPath(path, e.name), e.at)
		if v, ok := p.evaluateValue(e.expr, scope); ok {
			if tree, ok := p.valueToTree(v, e.expr.Range()); ok {
				m[e.name] = asBlocks(tree)
			}
		}
	}
	for _, it := range s.items {
		child := p.readFreeBlock(it.body(&block{free: true}), joinPath(path, it.name), it.scope)
		for _, label := range slices.Backward(it.labels) {
			child = map[string]any{label: []any{child}}
		}
		list, isList := m[it.name].([]any)
		if _, taken := m[it.name]; taken && !isList {
			p.addDiagnosticAt(it.at, it.name+" is an attribute and a block", "")
			continue
		}
		m[it.name] = append(list, child)
	}
	return m
}

// asBlocks turns an object into a list of one, as a block of the same content would be: NAME = { … }
// and NAME { … } configure a driver alike.
func asBlocks(tree any) any {
	object, ok := tree.(map[string]any)
	if !ok {
		return tree
	}
	for k, v := range object {
		object[k] = asBlocks(v)
	}
	return []any{object}
}

// checkedLabel checks a block's labels and returns its name.
func (p *parser) checkedLabel(it blockItem, b *block) (string, bool) {
	want := 0
	if b.label != "" {
		want = 1
	}
	switch {
	case len(it.labels) < want:
		return "", false // the job's validation says so
	case len(it.labels) > want && want == 0:
		p.addDiagnosticAt(it.at, fmt.Sprintf("a %s block has no name", it.name), "")
	case len(it.labels) > want:
		p.addDiagnosticAt(it.at, fmt.Sprintf("a %s has one name, not %d", it.name, len(it.labels)), "")
	}
	if want == 0 {
		return "", true
	}
	return it.labels[0], true
}

func (p *parser) unexpectedBlock(it blockItem, b *block) {
	if _, ok := b.attrs[it.name]; ok {
		p.addDiagnosticAt(it.at, fmt.Sprintf("%s is an attribute: write %s = …", it.name, it.name), "")
		return
	}
	known := slices.Sorted(maps.Keys(b.blocks))
	p.addDiagnosticAt(it.at, fmt.Sprintf("unknown block %q", it.name), validate.Suggest(it.name, known, ""))
}

func (p *parser) unexpectedAttribute(e entry, b *block) {
	_, isBlock := b.blocks[e.name]
	switch {
	case isBlock:
		p.addDiagnosticAt(e.at, fmt.Sprintf("%s is a block: write %s { … }", e.name, e.name), "")
	default:
		known := slices.Sorted(maps.Keys(b.attrs))
		p.addDiagnosticAt(e.at, fmt.Sprintf("unknown attribute %q", e.name), validate.Suggest(e.name, known, ""))
	}
}

// convertValue converts a value to the type of an attribute, as a tree.
func (p *parser) convertValue(v cty.Value, k kind, at hcl.Range) (any, bool) {
	want, ok := map[kind]cty.Type{
		text: cty.String, number: cty.Number, boolean: cty.Bool, texts: cty.List(cty.String),
		numbers: cty.List(cty.Number),
	}[k]
	if k == duration && v.Type() != cty.Number {
		want, ok = cty.String, true
	}
	if ok {
		converted, err := convert.Convert(v, want)
		if err != nil {
			p.addDiagnosticAt(at, fmt.Sprintf("must be %s, not %s", kindName(k), describe(v)), listHint(k, v))
			return nil, false
		}
		v = converted
	}
	return p.valueToTree(v, at)
}

func kindName(k kind) string {
	return [...]string{"text", "a number", "true or false", "a list of text", "a duration", "a list of numbers", "anything"}[k]
}

// listHint says how one text is written where a list of them is needed.
func listHint(k kind, v cty.Value) string {
	if k != texts || v.Type() != cty.String || len(describe(v)) > 42 {
		return ""
	}
	return "write [" + describe(v) + "]"
}

// describe names a value for people.
func describe(v cty.Value) string {
	switch {
	case v.Type().IsTupleType():
		return "a list"
	case v.Type().IsObjectType():
		return "a map"
	}
	if v.Type() == cty.String && v.IsKnown() && !v.IsNull() && len(v.AsString()) <= 40 {
		return fmt.Sprintf("%q", v.AsString())
	}
	return v.Type().FriendlyName()
}

// valueToTree turns a value into a tree as package fleet reads it.
func (p *parser) valueToTree(v cty.Value, at hcl.Range) (any, bool) {
	if !v.IsWhollyKnown() {
		p.addDiagnosticAt(at, "the value is not known here", "")
		return nil, false
	}
	unmarked, _ := v.UnmarkDeep()
	data, err := ctyjson.Marshal(unmarked, unmarked.Type())
	if err == nil && len(data) > 4*fleet.MaxJobSize {
		err = fmt.Errorf("a value of %d bytes", len(data))
	}
	var tree any
	if err == nil {
		dec := json.NewDecoder(bytes.NewReader(data))
		dec.UseNumber()
		err = dec.Decode(&tree)
	}
	if err != nil {
		p.addDiagnosticAt(at, "cannot be a value of a job: "+err.Error(), "")
		return nil, false
	}
	return tree, true
}

func joinPath(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}
