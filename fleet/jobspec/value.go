package jobspec

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"skerry/fleet/validate"
)

func nameValue(name string) cty.Value { return cty.StringVal(name) }

// evaluateValue evaluates an expression. A property of a node evaluates to its own text, so that it
// stays in the job as it was written.
func (p *parser) evaluateValue(expr hcl.Expression, scope *hcl.EvalContext) (cty.Value, bool) {
	runtime := runtimeNames{}
	ok := true
	for _, traversal := range expr.Variables() {
		if root := traversal.RootName(); isResolvable(scope, root) {
			continue
		} else if !isRuntimeReference(traversal) {
			p.addDiagnosticAt(traversal.SourceRange(), fmt.Sprintf("unknown reference %q", traversalText(traversal)),
				validate.Suggest(root, []string{"var", "local", "attr", "node", "meta", "env", "secret"}, "to keep it as text, write $${…}"))
			ok = false
			continue
		}
		if err := runtime.addReference(traversal); err != nil {
			p.addDiagnosticAt(traversal.SourceRange(), err.Error(), "")
			ok = false
		}
	}
	if !ok {
		return cty.NilVal, false
	}
	if len(runtime) > 0 {
		scope = scope.NewChild()
		scope.Variables = map[string]cty.Value{}
		for name, node := range runtime {
			scope.Variables[name] = node.placeholderValue()
		}
	}
	if p.meter.exceeded != nil {
		return cty.NilVal, false // it has been said
	}
	v, diags := p.meter.evaluateMetered(expr, scope)
	if p.meter.exceeded != nil {
		p.addDiagnosticAt(expr.Range(), p.meter.exceeded.Error(), "")
		return cty.NilVal, false
	}
	if diags.HasErrors() {
		// What try and can caught is no mistake, so this is asked only now.
		for _, traversal := range expr.Variables() {
			ok = p.isReferenceDeclared(scope, traversal) && ok
		}
		if ok {
			p.addHCLDiagnostics(diags)
		}
		return cty.NilVal, false
	}
	return v, true
}

// isReferenceDeclared reports whether a variable or a local that an expression names is there.
func (p *parser) isReferenceDeclared(scope *hcl.EvalContext, t hcl.Traversal) bool {
	what, blocks := "variable", `variable %q { … }`
	if t.RootName() == "local" {
		what, blocks = "local", `locals { %s = … }`
	} else if t.RootName() != "var" {
		return true
	}
	for len(t) > 1 && scope.Parent() != nil && scope.Variables[t.RootName()] == cty.NilVal {
		scope = scope.Parent()
	}
	values := scope.Variables[t.RootName()]
	step, named := hcl.TraverseAttr{}, false
	if len(t) > 1 {
		step, named = t[1].(hcl.TraverseAttr)
	}
	if !named || values == cty.NilVal || !values.Type().IsObjectType() || values.Type().HasAttribute(step.Name) {
		return true // or it is for the evaluation to say what is wrong
	}
	known := slices.Sorted(maps.Keys(values.Type().AttributeTypes()))
	p.addDiagnosticAt(t.SourceRange(), fmt.Sprintf("%s %q is not declared", what, step.Name), validate.Suggest(step.Name, known, "declare it: "+fmt.Sprintf(blocks, step.Name)))
	return false
}

// isResolvable reports whether a name is a variable of the file.
func isResolvable(scope *hcl.EvalContext, name string) bool {
	for s := scope; s != nil; s = s.Parent() {
		if _, ok := s.Variables[name]; ok {
			return true
		}
	}
	return false
}

// isRuntimeReference reports whether a reference is one that a task's interpolation may know:
// of the node, of the environment, of a secret, or a bare name, which is a variable of the
// environment or something of the driver's.
func isRuntimeReference(t hcl.Traversal) bool {
	switch t.RootName() {
	case "attr", "node", "meta", "env", "device":
		return len(t) > 1
	case "secret":
		return len(t) > 2
	}
	return len(t) == 1
}

// traversalText returns a reference as it is written.
func traversalText(t hcl.Traversal) string {
	var s strings.Builder
	for i, step := range t {
		switch step := step.(type) {
		case hcl.TraverseRoot:
			s.WriteString(step.Name)
		case hcl.TraverseAttr:
			s.WriteString("." + step.Name)
		case hcl.TraverseIndex:
			if step.Key.Type() == cty.String {
				fmt.Fprintf(&s, "[%q]", step.Key.AsString())
			} else {
				fmt.Fprintf(&s, "[%s]", step.Key.AsBigFloat().Text('f', -1))
			}
		default:
			fmt.Fprintf(&s, "[*%d]", i)
		}
	}
	return s.String()
}

// runtimeNames are the references of one expression as a tree, by their steps.
type runtimeNames map[string]*runtimeNode

type runtimeNode struct {
	leaf string
	sub  runtimeNames
}

// addReference adds a reference. One that another one goes through cannot be text and an
// object at once.
func (names runtimeNames) addReference(t hcl.Traversal) error {
	at := names
	for i, step := range t {
		var name string
		switch step := step.(type) {
		case hcl.TraverseRoot:
			name = step.Name
		case hcl.TraverseAttr:
			name = step.Name
		case hcl.TraverseIndex:
			if step.Key.Type() != cty.String {
				return fmt.Errorf("%s is not known before the job runs", traversalText(t))
			}
			name = step.Key.AsString()
		default:
			return fmt.Errorf("%s is not known before the job runs", traversalText(t))
		}
		node := at[name]
		if node == nil {
			node = &runtimeNode{sub: runtimeNames{}}
			at[name] = node
		}
		last := i == len(t)-1
		if last && len(node.sub) > 0 || !last && node.leaf != "" {
			return fmt.Errorf("%s cannot be used in one expression with a longer or shorter reference: use two expressions", traversalText(t))
		}
		if last {
			node.leaf = "${" + traversalText(t) + "}"
		}
		at = node.sub
	}
	return nil
}

func (n *runtimeNode) placeholderValue() cty.Value {
	if n.leaf != "" {
		return cty.StringVal(n.leaf)
	}
	attrs := make(map[string]cty.Value, len(n.sub))
	for name, sub := range n.sub {
		attrs[name] = sub.placeholderValue()
	}
	return cty.ObjectVal(attrs)
}
