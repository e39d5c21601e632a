// Package syntax checks the bounds of texts in HCL and JSON that somebody has sent, before a recursive parser reads them.
//
// fleet/jobspec, fleet/aclpolicy and the commands call it for files, hub/login for tokens. It is pure.
package syntax

import (
	"fmt"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"skerry/fleet"
)

// Bounds of one text in HCL besides its size, so that neither the parser's recursion
// nor the evaluation's can exhaust the stack.
const (
	maxTokens    = 200_000
	maxOperators = 10_000
	maxExponent  = 3 // digits of a number's exponent
)

// Excess is the first place where a text in HCL exceeds a bound. TooLarge: the text has too much in it, and could be divided.
type Excess struct {
	At       hcl.Range
	Message  string
	TooLarge bool
}

// Refusal returns the error for a text that is refused, with its place.
func (e *Excess) Refusal() *fleet.Error {
	return fleet.Errorf(fleet.CodeInvalid, "%s:%d:%d: %s", e.At.Filename, e.At.Start.Line, e.At.Start.Column, e.Message)
}

// HCLExcess returns where a text in HCL is nested too deep or too long for the parser; nil: nowhere.
func HCLExcess(filename string, src []byte) *Excess {
	tokens, _ := hclsyntax.LexConfig(src, filename, hcl.InitialPos) // what is wrong is said again by the parser
	return TokensExcess(tokens)
}

// TokensExcess is HCLExcess for the tokens of a text.
func TokensExcess(tokens hclsyntax.Tokens) *Excess {
	depth, operators := 0, 0
	for i, t := range tokens {
		switch t.Type {
		case hclsyntax.TokenOBrace, hclsyntax.TokenOBrack, hclsyntax.TokenOParen, hclsyntax.TokenOQuote,
			hclsyntax.TokenOHeredoc, hclsyntax.TokenTemplateInterp, hclsyntax.TokenTemplateControl:
			depth++
		case hclsyntax.TokenCBrace, hclsyntax.TokenCBrack, hclsyntax.TokenCParen, hclsyntax.TokenCQuote,
			hclsyntax.TokenCHeredoc, hclsyntax.TokenTemplateSeqEnd:
			depth--
		case hclsyntax.TokenNumberLit:
			if longExponent(t.Bytes) {
				return &Excess{At: t.Range, Message: "the number is out of range"}
			}
		case hclsyntax.TokenPlus, hclsyntax.TokenMinus, hclsyntax.TokenStar, hclsyntax.TokenSlash, hclsyntax.TokenPercent,
			hclsyntax.TokenBang, hclsyntax.TokenQuestion, hclsyntax.TokenAnd, hclsyntax.TokenOr, hclsyntax.TokenEqualOp,
			hclsyntax.TokenNotEqual, hclsyntax.TokenLessThan, hclsyntax.TokenGreaterThan, hclsyntax.TokenLessThanEq,
			hclsyntax.TokenGreaterThanEq:
			operators++
		}
		if t.Type == hclsyntax.TokenTemplateControl {
			operators++
		}
		message := ""
		switch {
		case depth > fleet.MaxJobDepth:
			message = fmt.Sprintf("nested more than %d deep", fleet.MaxJobDepth)
		case operators > maxOperators:
			message = fmt.Sprintf("more than %d operators in one file", maxOperators)
		case i > maxTokens:
			message = fmt.Sprintf("the file is too long: it has more than %d tokens", maxTokens)
		}
		if message != "" {
			return &Excess{At: t.Range, Message: message, TooLarge: true}
		}
	}
	return nil
}

func longExponent(number []byte) bool {
	for i, c := range number {
		if c == 'e' || c == 'E' {
			return len(number)-i-1 > maxExponent+1
		}
	}
	return len(number) > 64
}
