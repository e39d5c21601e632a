package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"

	"skerry/chaos/history"
)

//go:embed page.html
var pageText string

//go:embed style.css
var style string

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"style": func() template.CSS { return template.CSS(style) },
}).Parse(pageText))

// PageLinks names the files beside a page, as links from it; "" is none.
type PageLinks struct {
	History string // the run's history
	Index   string // the campaign's page
}

// page is what people read of a run, a campaign or a rehearsal: first what it came to,
// then sections. It is written as HTML or as text for a terminal.
type page struct {
	Name     string
	Outcome  history.Outcome
	About    string
	Reasons  []string // for the outcome
	Repeat   string   // the command that repeats it
	Facts    *table
	Sections []section
	Links    []cell
}

// section is a part of a page: lists, texts, a timeline, a table, of which most are absent.
type section struct {
	Title, Note string
	Lines       []string
	Text        string
	Timeline    *timeline
	Table       *table
	Folded      bool // closed until a reader opens it
	pageOnly    bool // not shown on a terminal
}

// maxTextLines bounds the Lines of a section on a terminal.
const maxTextLines = 40

// Headline says what the outcome means.
func (p page) Headline() string {
	switch p.Outcome {
	case history.Pass:
		return "Pass"
	case history.Violated:
		return "Violation"
	case history.Void:
		return "Void: it proves nothing"
	}
	return "Broken: it did not end"
}

// addSection adds a section, unless it is empty.
func (p *page) addSection(s section) {
	if len(s.Lines) > 0 || s.Text != "" || s.Timeline != nil || s.Table != nil && len(s.Table.rows) > 0 {
		p.Sections = append(p.Sections, s)
	}
}

func (p page) writeHTML(w io.Writer) error {
	if err := pageTemplate.Execute(w, p); err != nil {
		return fmt.Errorf("write the page of %s: %w", p.Name, err)
	}
	return nil
}

// printText writes a title, the facts and sections, and lines at the end, at most pageWidth wide.
func (p page) printText(w io.Writer, title string, end ...string) error {
	var b strings.Builder
	paragraph(&b, title)
	if p.Facts != nil {
		p.Facts.writeTable(&b)
	}
	for _, s := range p.Sections {
		if s.pageOnly {
			continue
		}
		b.WriteString("\n")
		for _, line := range s.Lines[:min(len(s.Lines), maxTextLines)] {
			fmt.Fprintf(&b, "%*s%s\n", indent, "", truncateText(printable(line), pageWidth-indent))
		}
		writeLeftOut(&b, len(s.Lines), maxTextLines)
		if s.Timeline != nil {
			s.Timeline.writeTimeline(&b)
		}
		if s.Table != nil {
			s.Table.writeTable(&b)
		}
	}
	b.WriteString("\n")
	for _, line := range end {
		paragraph(&b, line)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
