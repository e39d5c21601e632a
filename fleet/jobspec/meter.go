package jobspec

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"

	"skerry/fleet"
	"skerry/fleet/syntax"
)

// Bounds of the values that a file's expressions make: a few lines can ask for more memory than
// any machine has, and a hub evaluates the files of its clients.
const (
	// maxWork is what evaluating a file may cost: a unit a byte of text, and elementCost
	// for each value.
	maxWork     = 16 << 20
	elementCost = 64
	// maxNumberBits bounds numbers: as text they have a third as many digits.
	maxNumberBits = 8 << 10
	// maxDynamicBlocks bounds how many blocks all dynamic blocks of a file make.
	maxDynamicBlocks = 10_000
	// maxNames bounds the locals of a file, and its variables.
	maxNames = 1_000
	// maxPadding bounds the width in a format.
	maxPadding = 10_000
)

// meter counts the cost of evaluating a file. Values that share memory each count in full, since
// joining or encoding them copies it.
type meter struct {
	left          int64
	dynamicBlocks int // blocks
	exceeded      error
}

var errTooMuch = fmt.Errorf("evaluating the file takes too much: its values have more than %d MiB", maxWork>>20)

func newMeter() *meter { return &meter{left: maxWork} }

// chargeUnits counts; an error says that it is too much, and stays.
func (m *meter) chargeUnits(cost int64) error {
	if m.exceeded == nil && cost > m.left {
		m.exceeded = errTooMuch
	}
	if m.exceeded != nil {
		return m.exceeded
	}
	m.left -= cost
	return nil
}

// chargeValues counts values.
func (m *meter) chargeValues(values ...cty.Value) error {
	for _, v := range values {
		cost, err := costOf(v, m.left)
		if err == nil {
			err = m.chargeUnits(cost)
		}
		if err != nil {
			m.exceeded = err
			return err
		}
	}
	return nil
}

// costOf returns the cost of a value, or any number above limit.
func costOf(v cty.Value, limit int64) (int64, error) {
	v, _ = v.Unmark()
	cost := int64(elementCost)
	if v.IsNull() || !v.IsKnown() {
		return cost, nil
	}
	switch ty := v.Type(); {
	case ty == cty.String:
		return cost + int64(len(v.AsString())), nil
	case ty == cty.Number:
		f := v.AsBigFloat()
		if f.IsInf() {
			return 0, errors.New("a number is out of range: it is infinite, as what is divided by 0")
		}
		bits := max(int64(f.MinPrec()), int64(math.Abs(float64(f.MantExp(nil)))))
		if bits > maxNumberBits {
			return 0, fmt.Errorf("a number is out of range: it has more than %d bits", maxNumberBits)
		}
		return cost + bits/3, nil
	case v.CanIterateElements():
		for it := v.ElementIterator(); it.Next() && cost <= limit; {
			key, element := it.Element()
			of, err := costOf(element, limit-cost)
			if err != nil {
				return 0, err
			}
			if key.Type() == cty.String {
				of += int64(len(key.AsString()))
			}
			cost += of
		}
	}
	return cost, nil
}

// meteredFunctions are the functions that files may call. Each counts the cost of its arguments and
// of its largest possible result before it begins.
func (m *meter) meteredFunctions(files Files) map[string]function.Function {
	all := functions(files)
	all["yamldecode"] = m.yamlDecode()
	for name, f := range all {
		if name == "can" || name == "try" {
			continue // they are given expressions, not values
		}
		all[name] = m.meteredFunction(f, functionCosts[name])
	}
	return all
}

func (m *meter) meteredFunction(f function.Function, grows func(args []cty.Value) (int64, error)) function.Function {
	return function.New(&function.Spec{
		Description: f.Description(), Params: f.Params(), VarParam: f.VarParam(),
		Type: func(args []cty.Value) (cty.Type, error) {
			if err := m.chargeValues(args...); err != nil {
				return cty.DynamicPseudoType, err
			}
			if grows != nil && areArgsKnown(args) {
				cost, err := grows(args)
				if err == nil {
					err = m.chargeUnits(cost)
				}
				if err != nil {
					return cty.DynamicPseudoType, err
				}
			}
			return f.ReturnTypeForValues(args)
		},
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			v, err := f.Call(args)
			if err == nil {
				err = m.chargeValues(v)
			}
			return v, err
		},
	})
}

func areArgsKnown(args []cty.Value) bool {
	for _, a := range args {
		if a.IsNull() || !a.IsWhollyKnown() {
			return false // the function refuses it, or makes nothing of it
		}
	}
	return true
}

// functionCosts says of functions that make more than they are given how much that may be.
// Their arguments are of the functions' types.
var functionCosts = map[string]func(args []cty.Value) (int64, error){
	"setproduct": func(args []cty.Value) (int64, error) {
		n := 1.0
		for _, a := range args {
			if a.CanIterateElements() {
				n *= float64(a.LengthInt())
			}
		}
		return boundedProduct(n, float64(len(args)), elementCost), nil
	},
	"distinct": func(args []cty.Value) (int64, error) { // it compares each with each
		n := float64(args[0].LengthInt())
		return boundedProduct(n, n), nil
	},
	"indent": func(args []cty.Value) (int64, error) {
		spaces, _ := args[0].AsBigFloat().Float64()
		return boundedProduct(max(spaces, 0), float64(strings.Count(args[1].AsString(), "\n")+1)), nil
	},
	"join": func(args []cty.Value) (int64, error) {
		n := 0
		for _, list := range args[1:] {
			n += list.LengthInt()
		}
		return boundedProduct(float64(n), textLen(args[0])), nil
	},
	"replace": func(args []cty.Value) (int64, error) {
		cost := boundedProduct(textLen(args[0])+1, textLen(args[2])+1)
		if pattern := args[1].AsString(); len(pattern) > 1 && pattern[0] == '/' && strings.HasSuffix(pattern, "/") {
			cost += patternCost(args[1])
		}
		return cost, nil
	},
	"regex": func(args []cty.Value) (int64, error) { return patternCost(args[0]), nil },
	"regex_replace": func(args []cty.Value) (int64, error) {
		return patternCost(args[1]) + boundedProduct(textLen(args[0])+1, textLen(args[2])+1), nil
	},
	"regexall": func(args []cty.Value) (int64, error) {
		groups := strings.Count(args[0].AsString(), "(") + 1
		return patternCost(args[0]) + boundedProduct(textLen(args[1])+1, float64(groups), elementCost), nil
	},
	"setintersection": setCost, "setunion": setCost, "setsubtract": setCost, "setsymmetricdifference": setCost,
	"toset": setCost, "convert": setCost,
	"format":     func(args []cty.Value) (int64, error) { return formatCost(args, 1) },
	"formatlist": func(args []cty.Value) (int64, error) { return formatCost(args, longestText(args[1:])) },
	"jsondecode": func(args []cty.Value) (int64, error) {
		if syntax.JSONDepth([]byte(args[0].AsString())) > fleet.MaxJobDepth {
			return 0, fmt.Errorf("nested more than %d deep", fleet.MaxJobDepth)
		}
		return boundedProduct(textLen(args[0]), elementCost/2), nil // [1,1,1]: an element is two bytes
	},
	"yamldecode": func(args []cty.Value) (int64, error) {
		return boundedProduct(yamlNodes(args[0].AsString()), nodeCost), nil
	},
	"yamlencode": func(args []cty.Value) (int64, error) { return yamlWritten(args[0], 0) },
	"rsadecrypt": func([]cty.Value) (int64, error) { return maxWork / 16, nil }, // it takes long
	"csvdecode":  func(args []cty.Value) (int64, error) { return boundedProduct(textLen(args[0]), elementCost), nil },
	"split":      func(args []cty.Value) (int64, error) { return boundedProduct(textLen(args[1]), elementCost), nil },
	"chunklist": func(args []cty.Value) (int64, error) {
		return boundedProduct(float64(args[0].LengthInt()), elementCost), nil
	},
}

// patternCost returns the cost of compiling a pattern: repetitions and classes turn a few letters
// into a program of thousands of steps.
func patternCost(pattern cty.Value) int64 {
	text := pattern.AsString()
	if strings.ContainsAny(text, `{[\`) {
		return maxWork / 1024
	}
	return maxWork/8192 + elementCost*int64(len(text))
}

// setCost returns the cost of making sets: each element is hashed.
func setCost(args []cty.Value) (int64, error) {
	n := 0
	for _, a := range args {
		if a.CanIterateElements() {
			n += a.LengthInt()
		}
	}
	return boundedProduct(float64(n), 16*elementCost), nil
}

// formatCost returns the cost of so many results of a format: each verb writes one argument and
// its padding.
func formatCost(args []cty.Value, times float64) (int64, error) {
	verbs, longest := 0.0, 0.0
	digits, within := 0, false
	for _, c := range args[0].AsString() {
		switch {
		case c == '%':
			verbs++
			digits, within = 0, true
		case within && c >= '0' && c <= '9':
			if digits = digits*10 + int(c-'0'); digits > maxPadding {
				return 0, fmt.Errorf("a width of more than %d", maxPadding)
			}
			longest = max(longest, float64(digits))
		case within && strings.ContainsRune(".-+# []", c):
			digits = 0
		default:
			within = false
		}
	}
	for _, a := range args[1:] {
		cost, err := costOf(a, maxWork)
		if err != nil {
			return 0, err
		}
		longest = max(longest, float64(cost))
	}
	return boundedProduct(times, verbs, longest), nil
}

func textLen(v cty.Value) float64 { return float64(len(v.AsString())) }

// longestText is the length of the longest list.
func longestText(args []cty.Value) float64 {
	n := 1
	for _, a := range args {
		if ty := a.Type(); ty.IsListType() || ty.IsTupleType() || ty.IsSetType() {
			n = max(n, a.LengthInt())
		}
	}
	return float64(n)
}

// boundedProduct multiplies without overflow.
func boundedProduct(factors ...float64) int64 {
	p := 1.0
	for _, f := range factors {
		p *= f
	}
	return int64(min(p, maxWork+1))
}

// meterBody has the expressions of a body measured, but for types of variables, which
// nothing evaluates.
func (m *meter) meterBody(body *hclsyntax.Body, within string) {
	for name, attr := range body.Attributes {
		if within != "variable" || name != "type" {
			m.meterExpression(attr.Expr)
		}
	}
	for _, b := range body.Blocks {
		m.meterBody(b.Body, b.Type)
	}
}

// meterExpression has every part of an expression counted that is put together with others, made
// again and again, or made another type of, when it is evaluated.
func (m *meter) meterExpression(expr hclsyntax.Expression) {
	var all []hclsyntax.Expression
	types := map[hclsyntax.Expression]bool{} // within convert(…, TYPE)
	visitExpressions(expr, func(e hclsyntax.Expression) {
		all = append(all, e)
		if call, ok := e.(*hclsyntax.FunctionCallExpr); ok && call.Name == "convert" && len(call.Args) > 1 {
			visitExpressions(call.Args[1], func(e hclsyntax.Expression) { types[e] = true })
		}
	})
	for _, n := range all {
		if types[n] {
			continue
		}
		switch n := n.(type) {
		case *hclsyntax.TemplateExpr:
			for i := range n.Parts {
				m.wrapUnlessLiteral(&n.Parts[i])
			}
		case *hclsyntax.FunctionCallExpr:
			for i := range n.Args {
				if !types[n.Args[i]] {
					m.wrapUnlessLiteral(&n.Args[i])
				}
			}
		case *hclsyntax.ForExpr:
			m.wrapInMeter(&n.ValExpr)
			m.wrapInMeter(&n.KeyExpr)
			m.wrapInMeter(&n.CondExpr)
		case *hclsyntax.BinaryOpExpr:
			m.wrapUnlessLiteral(&n.LHS)
			m.wrapUnlessLiteral(&n.RHS)
		case *hclsyntax.ConditionalExpr:
			m.wrapUnlessLiteral(&n.TrueResult)
			m.wrapUnlessLiteral(&n.FalseResult)
		case *hclsyntax.IndexExpr:
			m.wrapUnlessLiteral(&n.Key)
		case *hclsyntax.ParenthesesExpr:
			m.wrapUnlessLiteral(&n.Expression)
		}
	}
}

func visitExpressions(expr hclsyntax.Expression, f func(hclsyntax.Expression)) {
	hclsyntax.VisitAll(expr, func(n hclsyntax.Node) hcl.Diagnostics {
		if e, ok := n.(hclsyntax.Expression); ok {
			f(e)
		}
		return nil
	})
}

// wrapUnlessLiteral counts an expression, which is as long in the file where it is a literal.
func (m *meter) wrapUnlessLiteral(expr *hclsyntax.Expression) {
	if _, literal := (*expr).(*hclsyntax.LiteralValueExpr); !literal {
		m.wrapInMeter(expr)
	}
}

func (m *meter) wrapInMeter(expr *hclsyntax.Expression) {
	if *expr != nil {
		*expr = &meteredExpression{&hclsyntax.FunctionCallExpr{Args: []hclsyntax.Expression{*expr}}, m}
	}
}

// meteredExpression is an expression whose values are counted. It looks like a call of a function
// with that expression, so that HCL finds what it refers to.
type meteredExpression struct {
	*hclsyntax.FunctionCallExpr
	meter *meter
}

// costExceeded is what a counter panics with when it is too much: a loop goes on after errors.
type costExceeded struct{}

func (c *meteredExpression) Value(scope *hcl.EvalContext) (cty.Value, hcl.Diagnostics) {
	v, diags := c.Args[0].Value(scope)
	if !diags.HasErrors() {
		_ = c.meter.chargeValues(v) // it stays over
	}
	if c.meter.exceeded != nil {
		panic(costExceeded{})
	}
	return v, diags
}

func (c *meteredExpression) Range() hcl.Range      { return c.Args[0].Range() }
func (c *meteredExpression) StartRange() hcl.Range { return c.Args[0].StartRange() }

// evaluateMetered evaluates a metered expression. It gives up where meter.exceeded is set then.
func (m *meter) evaluateMetered(expr hcl.Expression, scope *hcl.EvalContext) (v cty.Value, diags hcl.Diagnostics) {
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(costExceeded); !ok {
				panic(r)
			}
		}
	}()
	v, diags = expr.Value(scope)
	if !diags.HasErrors() {
		_ = m.chargeValues(v)
	}
	return v, diags
}
