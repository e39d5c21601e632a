package report

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// pageWidth is how wide a terminal is taken to be, in characters.
const pageWidth = 100

// table has cells in columns. On a terminal it is at most pageWidth wide: cells take several
// lines where they must.
type table struct {
	Heads    []string // nil: it has none
	right    []int    // columns that are aligned at their right
	most     int      // rows on a page; 0: all
	mostText int      // rows on a terminal; 0: all
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
	widths := columnWidths(lines)
	for _, line := range lines {
		t.writeRow(b, widths, line)
	}
	writeLeftOut(b, len(t.rows), t.mostText)
}

// writeLeftOut says how many rows there are beyond most.
func writeLeftOut(b *strings.Builder, rows, most int) {
	if left := leftOut(rows, most); left > 0 {
		fmt.Fprintf(b, "%*sand %d more\n", indent, "", left)
	}
}

// Spaces before a table, and between its columns.
const (
	indent = 2
	space  = 2
)

// columnWidths makes the widest column narrower until the columns fit.
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
