// Package aclpolicy reads policies of access control in Nomad's HCL or JSON into acl.Policy.
//
// hub/access reads the policies of a request's token, hub/api and the command acl check those that a user stores. It is pure.
package aclpolicy

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	hcljson "github.com/hashicorp/hcl/v2/json"

	"skerry/fleet"
	"skerry/fleet/acl"
	"skerry/fleet/syntax"
)

// Bounds of a policy.
const (
	MaxRulesSize  = 256 << 10 // bytes of a policy's text
	maxNameLength = 255       // bytes of a name, a glob or a path
)

// source is what the errors name as the file.
const source = "policy"

// Parse reads a policy in HCL or JSON. An error is CodeInvalid and begins with the line and the column.
func Parse(rules string) (*acl.Policy, error) {
	if len(rules) > MaxRulesSize {
		return nil, fleet.Errorf(fleet.CodeInvalid, "%s: it has %d bytes: at most %d are allowed", source, len(rules), MaxRulesSize).
			WithHint("divide it into several policies: a token may have many")
	}
	r := &reader{src: []byte(rules)}
	body, err := r.parseBody()
	if err != nil {
		return nil, err
	}
	content, diags := body.Content(rootSchema())
	if diags.HasErrors() {
		return nil, r.diagnosticError(diags, "the blocks of a policy are "+strings.Join(acl.BlockNames(), ", "))
	}
	policy := &acl.Policy{}
	for _, b := range content.Blocks {
		found, err := r.readBlock(b)
		if err != nil {
			return nil, err
		}
		policy.Rules = append(policy.Rules, found...)
	}
	if len(policy.Rules) == 0 {
		return nil, fleet.Errorf(fleet.CodeInvalid, "%s: it has no rule", source).
			WithHint(`write for example: namespace "default" { policy = "read" }`)
	}
	return policy, nil
}

// parseBody reads the text by the syntax that its first letter says.
func (r *reader) parseBody() (hcl.Body, error) {
	if bytes.HasPrefix(bytes.TrimSpace(r.src), []byte("{")) {
		if syntax.JSONDepth(r.src) > fleet.MaxJobDepth {
			return nil, fleet.Errorf(fleet.CodeInvalid, "%s: nested more than %d deep", source, fleet.MaxJobDepth)
		}
		file, diags := hcljson.Parse(r.src, source)
		if diags.HasErrors() {
			return nil, r.diagnosticError(diags, "")
		}
		return file.Body, nil
	}
	tokens, _ := hclsyntax.LexConfig(r.src, source, hcl.InitialPos) // the parser finds what is wrong again
	if excess := syntax.TokensExcess(tokens); excess != nil {
		return nil, excess.Refusal()
	}
	file, diags := hclsyntax.ParseConfig(r.separateLines(tokens), source, hcl.InitialPos)
	if diags.HasErrors() {
		return nil, r.diagnosticError(diags, "")
	}
	return file.Body, nil
}

func rootSchema() *hcl.BodySchema {
	schema := &hcl.BodySchema{}
	for _, name := range acl.BlockNames() {
		head := hcl.BlockHeaderSchema{Type: name}
		if g, _ := acl.GrammarOf(acl.Kind(name)); g.Labelled {
			head.LabelNames = []string{"name"}
		}
		schema.Blocks = append(schema.Blocks, head)
	}
	return schema
}

// readBlock reads an outermost block: its rule, and those of the variables in it.
func (r *reader) readBlock(b *hcl.Block) ([]acl.Rule, error) {
	rule := acl.Rule{Kind: acl.Kind(b.Type), Line: r.lineOf(b.DefRange)}
	g, _ := acl.GrammarOf(rule.Kind)
	if g.Labelled {
		rule.Name = b.Labels[0]
		if err := r.checkName(rule.Kind, rule.Name, b.LabelRanges[0]); err != nil {
			return nil, err
		}
	}
	var schema hcl.BodySchema
	for _, attribute := range attributeNames(g) {
		schema.Attributes = append(schema.Attributes, hcl.AttributeSchema{Name: attribute})
	}
	hint := fmt.Sprintf("a block %s has %s", rule.Kind, strings.Join(attributeNames(g), ", "))
	if rule.Kind == acl.KindNamespace {
		schema.Blocks = []hcl.BlockHeaderSchema{{Type: string(acl.KindVariables)}}
		hint += ", variables"
	}
	content, diags := b.Body.Content(&schema)
	if diags.HasErrors() {
		return nil, r.diagnosticError(diags, hint)
	}
	var err error
	if rule.Capabilities, err = r.readCapabilities(rule.Kind, content.Attributes); err != nil {
		return nil, err
	}
	if !g.Labelled && len(content.Attributes) == 0 {
		return nil, r.errorAt(b.DefRange, hint, "the block %s says nothing", rule.Kind)
	}
	rules := []acl.Rule{rule}
	for _, variables := range content.Blocks {
		paths, err := r.readVariables(rule.Name, variables)
		if err != nil {
			return nil, err
		}
		rules = append(rules, paths...)
	}
	return rules, nil
}

func attributeNames(g acl.Grammar) []string {
	var names []string
	if g.Policies != nil {
		names = append(names, "policy")
	}
	if g.Capabilities != nil {
		names = append(names, "capabilities")
	}
	return names
}

// readVariables reads a block variables: one rule a path.
func (r *reader) readVariables(namespace string, b *hcl.Block) ([]acl.Rule, error) {
	content, diags := b.Body.Content(&hcl.BodySchema{Blocks: []hcl.BlockHeaderSchema{{Type: "path", LabelNames: []string{"path"}}}})
	if diags.HasErrors() {
		return nil, r.diagnosticError(diags, `a block variables has blocks such as path "nomad/jobs/*" { capabilities = ["read"] }`)
	}
	var rules []acl.Rule
	for _, p := range content.Blocks {
		rule := acl.Rule{Kind: acl.KindVariables, Name: namespace, Path: p.Labels[0], Line: r.lineOf(p.DefRange)}
		if err := r.checkName(acl.KindVariables, rule.Path, p.LabelRanges[0]); err != nil {
			return nil, err
		}
		content, diags := p.Body.Content(&hcl.BodySchema{Attributes: []hcl.AttributeSchema{{Name: "capabilities", Required: true}}})
		if diags.HasErrors() {
			return nil, r.diagnosticError(diags, "a block path has capabilities")
		}
		var err error
		if rule.Capabilities, err = r.readCapabilities(acl.KindVariables, content.Attributes); err != nil {
			return nil, err
		}
		rules = append(rules, rule)
	}
	return rules, nil
}

// readCapabilities reads policy and capabilities of a block.
func (r *reader) readCapabilities(kind acl.Kind, attributes hcl.Attributes) ([]acl.Capability, error) {
	g, _ := acl.GrammarOf(kind)
	var all []acl.Capability
	if a := attributes["policy"]; a != nil {
		policy, err := r.literalText(a.Name, a.Expr)
		if err != nil {
			return nil, err
		}
		expanded, known := g.Policies[policy]
		if !known {
			return nil, r.errorAt(a.Expr.Range(), "it may be "+strings.Join(slices.Sorted(maps.Keys(g.Policies)), ", "),
				"policy %q of a block %s is not known", policy, kind)
		}
		all = append(all, expanded...)
	}
	if a := attributes["capabilities"]; a != nil {
		list, diags := hcl.ExprList(a.Expr)
		if diags.HasErrors() {
			return nil, r.errorAt(a.Expr.Range(), "", "capabilities is not a list of texts")
		}
		for _, expr := range list {
			text, err := r.literalText("a capability", expr)
			if err != nil {
				return nil, err
			}
			if !slices.Contains(g.Capabilities, acl.Capability(text)) {
				return nil, r.errorAt(expr.Range(), "they are "+acl.JoinCapabilities(g.Capabilities),
					"capability %q of a block %s is not known", text, kind)
			}
			all = append(all, acl.Capability(text))
		}
	}
	for _, c := range all {
		all = append(all, g.Implied[c]...)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// literalText returns the text of an expression that computes nothing.
func (r *reader) literalText(what string, expr hcl.Expression) (string, error) {
	if native, ok := expr.(hclsyntax.Expression); ok {
		template, ok := native.(*hclsyntax.TemplateExpr)
		if !ok || slices.ContainsFunc(template.Parts, func(part hclsyntax.Expression) bool {
			_, literal := part.(*hclsyntax.LiteralValueExpr)
			return !literal
		}) {
			return "", r.errorAt(expr.Range(), "", "%s is not a plain text in quotes", what)
		}
	}
	value, diags := expr.Value(nil)
	if diags.HasErrors() || value.IsNull() || value.Type().FriendlyName() != "string" {
		return "", r.errorAt(expr.Range(), "", "%s is not a plain text in quotes", what)
	}
	return value.AsString(), nil
}

// checkName checks the name of an object, or the glob.
func (r *reader) checkName(kind acl.Kind, name string, at hcl.Range) error {
	switch {
	case name == "":
		return r.errorAt(at, `"*" stands for every name`, "the block %s has an empty name", kind)
	case len(name) > maxNameLength:
		return r.errorAt(at, "", "the name of the block %s has %d bytes: at most %d are allowed", kind, len(name), maxNameLength)
	case strings.ContainsFunc(name, unicode.IsControl):
		return r.errorAt(at, "", "the name of the block %s has a control character", kind)
	case kind == acl.KindNamespace && !fleet.IsName(name, 128, "*-"):
		return r.errorAt(at, "a namespace has letters, digits and dashes, and a rule also *", "%q is no namespace", name)
	}
	return nil
}

func (r *reader) errorAt(at hcl.Range, hint, format string, args ...any) error {
	line, column := r.originalPosition(at)
	return &fleet.Error{Code: fleet.CodeInvalid, Hint: hint,
		Message: fmt.Sprintf("%s:%d:%d: %s", source, line, column, fmt.Sprintf(format, args...))}
}

func (r *reader) lineOf(at hcl.Range) int {
	line, _ := r.originalPosition(at)
	return line
}

// diagnosticError returns the first error that HCL found.
func (r *reader) diagnosticError(diags hcl.Diagnostics, hint string) error {
	for _, d := range diags {
		if d.Severity == hcl.DiagError && d.Subject != nil {
			return r.errorAt(*d.Subject, hint, "%s: %s", d.Summary, strings.TrimSuffix(d.Detail, "."))
		}
	}
	return fleet.Errorf(fleet.CodeInvalid, "%s: %v", source, diags)
}
