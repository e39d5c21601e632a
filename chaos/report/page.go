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

// PageLinks are the paths of other files, as the page links to them; "": no link.
type PageLinks struct {
	History string // the run's history
	Index   string // the campaign's page
}

// page is the content of the report on a run, a campaign or a rehearsal: the outcome first, then sections. It
// can be written as HTML or as text.
type page struct {
	Name     string
	Outcome  history.Outcome
	About    string   // a sentence below the name
	Reasons  []string // why it has this outcome
	Repeat   string   // the command that runs it again
	Facts    *table   // names and values; nil: none
	Sections []section
	Links    []cell
}

// section is a part of a page. Those of its lines, text, timeline and table that are set are shown, in this
// order.
type section struct {
	Title, Note string
	Lines       []string
	Text        string
	Timeline    *timeline
	Table       *table
	Folded      bool // closed until a reader opens it
	pageOnly    bool // not shown on a terminal
}

// maxTextLines bounds the number of Lines of a section that a terminal shows.
const maxTextLines = 40

// Headline returns the outcome in words.
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

// addSection appends a section, unless it is empty.
func (p *page) addSection(s section) {
	if len(s.Lines) > 0 || s.Text != "" || s.Timeline != nil || s.Table != nil && len(s.Table.rows) > 0 {
		p.Sections = append(p.Sections, s)
	}
}

// writeHTML writes the page as one HTML file to w.
func (p page) writeHTML(w io.Writer) error {
	if err := pageTemplate.Execute(w, p); err != nil {
		return fmt.Errorf("write the page of %s: %w", p.Name, err)
	}
	return nil
}

// printText writes the page as text to w: a title, the facts, the sections that are not pageOnly, and the lines
// of end. Lines have at most pageWidth characters.
func (p page) printText(w io.Writer, title string, end ...string) error {
	var b strings.Builder
	writeParagraph(&b, title)
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
		writeParagraph(&b, line)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
