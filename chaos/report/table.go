package report

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// pageWidth is how wide a terminal is taken to be, in characters.
const pageWidth = 100

// table is text in columns, at most pageWidth wide: the one column that is Wrap
// takes several lines where it must.
type table struct {
	heads []string // "" : the table has none
	rows  [][]string
	right []int // columns that are aligned at their right
	wrap  int   // that may take several lines
}

// writeTable adds the table to b, indented by two.
func (t *table) writeTable(b *strings.Builder) {
	widths := t.columnWidths()
	if len(t.heads) > 0 {
		t.writeRow(b, widths, t.heads)
	}
	for _, row := range t.rows {
		cells := wrapText(row[t.wrap], widths[t.wrap])
		for i, cell := range cells {
			now := make([]string, len(row))
			if i == 0 {
				copy(now, row)
			}
			now[t.wrap] = cell
			t.writeRow(b, widths, now)
		}
	}
}

// Spaces before a table, and between its columns.
const (
	indent = 2
	space  = 2
)

func (t *table) columnWidths() []int {
	columns := len(t.heads)
	if columns == 0 && len(t.rows) > 0 {
		columns = len(t.rows[0])
	}
	widths := make([]int, columns)
	all := t.rows
	if len(t.heads) > 0 {
		all = append([][]string{t.heads}, all...)
	}
	for _, row := range all {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	t.narrowColumns(widths)
	return widths
}

// narrowColumns makes columns narrower until they fit: the one that may take several lines
// first, then always the widest of the others, whose cells are cut.
func (t *table) narrowColumns(widths []int) {
	over := indent + space*(len(widths)-1) - pageWidth
	for _, w := range widths {
		over += w
	}
	for ; over > 0; over-- {
		widest := t.wrap
		if widths[t.wrap] <= wrapLeast {
			for i, w := range widths {
				if w > widths[widest] {
					widest = i
				}
			}
		}
		widths[widest]--
	}
}

// wrapLeast is how narrow the column gets that may take several lines, as long as
// others can be cut.
const wrapLeast = 30

func (t *table) writeRow(b *strings.Builder, widths []int, cells []string) {
	var l strings.Builder
	l.WriteString(strings.Repeat(" ", indent))
	for i, cell := range cells {
		if i > 0 {
			l.WriteString(strings.Repeat(" ", space))
		}
		cell = truncateText(cell, widths[i])
		pad := strings.Repeat(" ", max(0, widths[i]-utf8.RuneCountInString(cell)))
		if t.isRightAligned(i) {
			l.WriteString(pad + cell)
		} else {
			l.WriteString(cell + pad)
		}
	}
	fmt.Fprintln(b, strings.TrimRight(l.String(), " "))
}

func (t *table) isRightAligned(column int) bool {
	for _, c := range t.right {
		if c == column {
			return true
		}
	}
	return false
}

// wrapText breaks a text at spaces into lines of at most width characters; a word
// that is longer is cut. It returns at least one line.
func wrapText(text string, width int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		for utf8.RuneCountInString(word) > width {
			r := []rune(word)
			if line != "" {
				lines, line = append(lines, line), ""
			}
			lines, word = append(lines, string(r[:width])), string(r[width:])
		}
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) <= width:
			line += " " + word
		default:
			lines, line = append(lines, line), word
		}
	}
	return append(lines, line)
}

// paragraph adds a text that takes as many lines as it needs.
func paragraph(b *strings.Builder, text string) {
	for i, line := range wrapText(printable(text), pageWidth-indent) {
		fmt.Fprintf(b, "%*s%s\n", min(i, 1)*indent, "", line)
	}
}

// truncateText shortens a text to so many characters.
func truncateText(s string, width int) string {
	if r := []rune(s); len(r) > width {
		return string(r[:max(0, width-1)]) + "…"
	}
	return s
}

// printable keeps what would steer a terminal out of text from elsewhere.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 || r == utf8.RuneError {
			return '?'
		}
		return r
	}, s)
}
