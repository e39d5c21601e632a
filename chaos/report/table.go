package report

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// pageWidth is how wide a terminal is taken to be, in characters.
const pageWidth = 100

// table has cells in columns. On a terminal it is at most pageWidth wide: the column wrap
// takes several lines where it must.
type table struct {
	Heads    []string // nil: it has none
	right    []int    // columns that are aligned at their right
	wrap     int
	most     int // rows on a page; 0: all
	mostText int // rows on a terminal; 0: all
	rows     [][]cell
}

// cell is a value of a table. Class is a word of style.css, Link where it leads.
type cell struct{ Text, Class, Link string }

// addRow adds a row. A value that is a cell is taken as it is, others as they print.
func (t *table) addRow(values ...any) {
	row := make([]cell, len(values))
	for i, v := range values {
		if c, ok := v.(cell); ok {
			row[i] = c
		} else {
			row[i] = cell{Text: fmt.Sprint(v)}
		}
	}
	t.rows = append(t.rows, row)
}

// PageRows returns the rows that a page shows.
func (t *table) PageRows() [][]cell { return t.rows[:len(t.rows)-t.PageLeft()] }

// PageLeft returns how many rows a page does not show.
func (t *table) PageLeft() int { return leftOut(len(t.rows), t.most) }

func leftOut(rows, most int) int {
	if most == 0 {
		return 0
	}
	return max(0, rows-most)
}

// Class returns the classes of a cell of a column.
func (t *table) Class(column int, class string) string {
	if slices.Contains(t.right, column) {
		return strings.TrimSpace("num " + class)
	}
	return class
}

// writeTable adds the table to b, indented by two.
func (t *table) writeTable(b *strings.Builder) {
	left := leftOut(len(t.rows), t.mostText)
	var lines [][]string
	if t.Heads != nil {
		lines = append(lines, nil)
		for _, head := range t.Heads {
			lines[0] = append(lines[0], strings.ToUpper(head))
		}
	}
	for _, row := range t.rows[:len(t.rows)-left] {
		var line []string
		for _, c := range row {
			line = append(line, printable(c.Text))
		}
		lines = append(lines, line)
	}
	if len(lines) == 0 {
		return
	}
	widths := t.columnWidths(lines)
	for _, line := range lines {
		for i, text := range wrapText(line[t.wrap], widths[t.wrap]) {
			now := make([]string, len(line))
			if i == 0 {
				copy(now, line)
			}
			now[t.wrap] = text
			t.writeRow(b, widths, now)
		}
	}
	if left > 0 {
		fmt.Fprintf(b, "%*sand %d more\n", indent, "", left)
	}
}

// Spaces before a table, and between its columns.
const (
	indent = 2
	space  = 2
)

func (t *table) columnWidths(lines [][]string) []int {
	widths := make([]int, len(lines[0]))
	for _, line := range lines {
		for i, text := range line {
			widths[i] = max(widths[i], utf8.RuneCountInString(text))
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
		if slices.Contains(t.right, i) {
			l.WriteString(pad + cell)
		} else {
			l.WriteString(cell + pad)
		}
	}
	fmt.Fprintln(b, strings.TrimRight(l.String(), " "))
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
