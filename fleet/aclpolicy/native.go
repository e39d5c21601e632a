package aclpolicy

import (
	"bytes"
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// reader reads one policy. Nomad reads policies by HCL's first version, which lets several attributes and blocks stand
// in one line. HCL 2 reads a copy with a line for each, and positions are counted back to what the user wrote.
type reader struct {
	src      []byte
	inserted []int // the offsets in the copy where a line was inserted, ascending
}

// separateLines returns the copy in which each attribute and each brace of a block has a line of its own.
func (r *reader) separateLines(tokens hclsyntax.Tokens) []byte {
	var out bytes.Buffer
	newline := func() {
		r.inserted = append(r.inserted, out.Len())
		out.WriteByte('\n')
	}
	var open []bool // of each bracket that is open: it is the brace of a block
	end, last := 0, hclsyntax.TokenNewline
	for _, t := range tokens {
		out.Write(r.src[end:t.Range.Start.Byte])
		inBody := len(open) == 0 || open[len(open)-1]
		opensBlock := t.Type == hclsyntax.TokenOBrace && inBody && (last == hclsyntax.TokenIdent || last == hclsyntax.TokenCQuote)
		closesBlock := t.Type == hclsyntax.TokenCBrace && inBody
		follows := t.Type == hclsyntax.TokenIdent && inBody && (last == hclsyntax.TokenCQuote || last == hclsyntax.TokenCBrack)
		if closesBlock || follows {
			newline()
		}
		if t.Type == hclsyntax.TokenComma && inBody {
			out.WriteByte(' ')
		} else {
			out.Write(t.Bytes)
		}
		if opensBlock || closesBlock {
			newline()
		}
		switch t.Type {
		case hclsyntax.TokenOBrace, hclsyntax.TokenOBrack, hclsyntax.TokenOParen, hclsyntax.TokenTemplateInterp, hclsyntax.TokenTemplateControl:
			open = append(open, opensBlock)
		case hclsyntax.TokenCBrace, hclsyntax.TokenCBrack, hclsyntax.TokenCParen, hclsyntax.TokenTemplateSeqEnd:
			open = open[:max(0, len(open)-1)]
		}
		if end = t.Range.End.Byte; t.Type != hclsyntax.TokenComma {
			last = t.Type
		}
	}
	return out.Bytes()
}

// originalPosition returns the line and the column of a range in what the user wrote.
func (r *reader) originalPosition(at hcl.Range) (line, column int) {
	shift, _ := slices.BinarySearch(r.inserted, at.Start.Byte)
	before := r.src[:min(max(0, at.Start.Byte-shift), len(r.src))]
	return bytes.Count(before, []byte("\n")) + 1, len(before) - bytes.LastIndexByte(before, '\n')
}
