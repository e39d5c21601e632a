package jobspec

import (
	"bytes"
	"fmt"
	"regexp"
	"unicode/utf8"
)

// emptyHint is the least that a job file says.
const emptyHint = `a job file has the form job "NAME" { group "NAME" { task "NAME" { … } } }`

var (
	utf8Mark      = []byte("\xef\xbb\xbf")
	utf16Marks    = [][]byte{[]byte("\xff\xfe"), []byte("\xfe\xff")}
	yamlStart     = regexp.MustCompile(`^(---|- |[A-Za-z_][\w.-]*:(\s|$))`)
	kubernetes    = regexp.MustCompile(`(?m)^(apiVersion|kind):`)
	commentStarts = [][]byte{[]byte("#"), []byte("//")}
)

// readableText returns the text of a file, without the mark that some editors put before it.
// One that is no text is one mistake, and not one at each of its bytes.
func (p *parser) readableText(src []byte) ([]byte, bool) {
	for _, mark := range utf16Marks {
		if bytes.HasPrefix(src, mark) {
			p.addDiagnostic(Diagnostic{File: p.filename, Line: 1, Column: 1, Message: "the file is in UTF-16", Hint: "save it as UTF-8"})
			return nil, false
		}
	}
	src = bytes.TrimPrefix(src, utf8Mark)
	if len(bytes.TrimSpace(src)) == 0 {
		p.addDiagnostic(Diagnostic{File: p.filename, Line: 1, Column: 1, Message: "the file is empty", Hint: emptyHint})
		return nil, false
	}
	at := bytes.IndexByte(src, 0)
	if at < 0 && utf8.Valid(src) {
		return src, true
	}
	d := Diagnostic{File: p.filename, Message: "the file is not text", Hint: "a job file is text in HCL or JSON"}
	if at < 0 {
		for at = 0; at < len(src); {
			r, n := utf8.DecodeRune(src[at:])
			if r == utf8.RuneError && n == 1 {
				break
			}
			at += n
		}
		d.Message = fmt.Sprintf("the byte %#x is not UTF-8", src[at])
		d.Hint = "save the file as UTF-8"
	}
	before := src[:at]
	d.Line = bytes.Count(before, []byte("\n")) + 1
	d.Column = utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:]) + 1
	p.addDiagnostic(d)
	return nil, false
}

// otherLanguage reports whether a text that is no HCL is YAML, which is then said, and
// not what is missing for HCL in each of its lines.
func (p *parser) otherLanguage(src []byte) bool {
	line := 0
	for text := range bytes.Lines(src) {
		line++
		text = bytes.TrimSpace(text)
		if len(text) == 0 || bytes.HasPrefix(text, commentStarts[0]) || bytes.HasPrefix(text, commentStarts[1]) {
			continue
		}
		if !yamlStart.Match(text) {
			return false
		}
		d := Diagnostic{File: p.filename, Line: line, Column: 1, Message: "this is YAML, and a job file is HCL or JSON", Hint: emptyHint}
		if kubernetes.Match(src) {
			d.Message = "this is YAML as Kubernetes has it, and a job file is HCL or JSON"
		}
		p.addDiagnostic(d)
		return true
	}
	return false
}
