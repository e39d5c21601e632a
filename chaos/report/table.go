package report

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// pageWidth is the assumed width of a terminal, in characters.
const pageWidth = 100

// table is a table of cells. On a terminal it is at most pageWidth wide: long cells are broken into several
// lines.
type table struct {
	Heads    []string // titles of the columns; nil: none
	right    []int    // indexes of the columns that are aligned right
	most     int      // bound of the rows on a page; 0: none
	mostText int      // bound of the rows on a terminal; 0: none
	rows     [][]cell
}

// cell is a text of a table. Class is a class of style.css, Link the target of a link; "": none.
type cell struct{ Text, Class, Link string }

// addRow appends a row. Values that are no cell are shown as fmt.Sprint does.
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

// PageLeft returns the number of rows that a page leaves out.
func (t *table) PageLeft() int { return rowsLeftOut(len(t.rows), t.most) }

// rowsLeftOut returns the number of rows beyond most (0: without a bound).
func rowsLeftOut(rows, most int) int {
	if most == 0 {
		return 0
	}
	return max(0, rows-most)
}

// Class returns the CSS classes of a cell in a column: class, and "num" where the column is aligned right.
func (t *table) Class(column int, class string) string {
	if slices.Contains(t.right, column) {
		return strings.TrimSpace("num " + class)
	}
	return class
}

// writeTable appends the table as text to b, indented by two.
func (t *table) writeTable(b *strings.Builder) {
	left := rowsLeftOut(len(t.rows), t.mostText)
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
	widths := columnWidths(lines)
	for _, line := range lines {
		t.writeRow(b, widths, line)
	}
	writeLeftOut(b, len(t.rows), t.mostText)
}

// writeLeftOut appends a line with the number of rows beyond most, where there are any.
func writeLeftOut(b *strings.Builder, rows, most int) {
	if left := rowsLeftOut(rows, most); left > 0 {
		fmt.Fprintf(b, "%*sand %d more\n", indent, "", left)
	}
}

// Numbers of spaces before a table, and between its columns.
const (
	indent = 2
	space  = 2
)

// columnWidths returns the widths of the columns. It takes from the widest ones until the table fits into
// pageWidth.
func columnWidths(lines [][]string) []int {
	widths := make([]int, len(lines[0]))
	over := indent - space - pageWidth
	for i := range widths {
		for _, line := range lines {
			widths[i] = max(widths[i], utf8.RuneCountInString(line[i]))
		}
		over += widths[i] + space
	}
	for ; over > 0; over-- {
		widths[slices.Index(widths, slices.Max(widths))]--
	}
	return widths
}

// writeRow appends a row to b, on as many lines as its longest cell needs.
func (t *table) writeRow(b *strings.Builder, widths []int, cells []string) {
	height := 1
	wrapped := make([][]string, len(cells))
	for i, text := range cells {
		wrapped[i] = wrapText(text, widths[i])
		height = max(height, len(wrapped[i]))
	}
	for n := range height {
		line, gap := "", indent
		for i, lines := range wrapped {
			width := widths[i]
			if !slices.Contains(t.right, i) {
				width = -width
			}
			line += fmt.Sprintf("%*s%*s", gap, "", width, append(lines, make([]string, height)...)[n])
			gap = space
		}
		fmt.Fprintln(b, strings.TrimRight(line, " "))
	}
}

// wrapText breaks a text at spaces into lines of at most width characters, and cuts words that are longer. It
// returns at least one line.
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

// writeParagraph appends a text to b, wrapped to pageWidth; further lines are indented.
func writeParagraph(b *strings.Builder, text string) {
	for i, line := range wrapText(printable(text), pageWidth-indent) {
		fmt.Fprintf(b, "%*s%s\n", min(i, 1)*indent, "", line)
	}
}

// truncateText returns a text shortened to width characters, with "…" at its end where it was longer.
func truncateText(s string, width int) string {
	if r := []rune(s); len(r) > width {
		return string(r[:max(0, width-1)]) + "…"
	}
	return s
}

// printable replaces control characters and invalid bytes by "?", so that a text from elsewhere cannot control
// the terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 || r == utf8.RuneError {
			return '?'
		}
		return r
	}, s)
}
