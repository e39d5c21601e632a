package console

import (
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"
)

// Table is rows under headings, aligned when it is written. Limit bounds how many rows are
// written; the last line says how many more there are. 0 is no bound.
type Table struct {
	Heads []string
	Rows  [][]string
	Limit int
}

// NewTable is a table with headings; without any it is pairs of names and values.
func NewTable(heads ...string) *Table { return &Table{Heads: heads} }

// Add adds a row; what is not text is written as fmt does.
func (t *Table) Add(cells ...any) {
	row := make([]string, len(cells))
	for i, c := range cells {
		row[i] = strings.NewReplacer("\n", " ", "\t", " ").Replace(Plain(fmt.Sprint(c)))
	}
	t.Rows = append(t.Rows, row)
}

// AddSet adds a row unless its value is the zero value.
func (t *Table) AddSet(name string, value any) {
	if v := reflect.ValueOf(value); v.IsValid() && !v.IsZero() {
		t.Add(name, value)
	}
}

// AddMap adds a row for each key of a map, in the order of the keys.
func (t *Table) AddMap(prefix string, values map[string]string) {
	for _, k := range slices.Sorted(maps.Keys(values)) {
		t.Add(prefix+k, values[k])
	}
}

// staleMark stands behind the first word of each table that may be old.
const staleMark = " (may be old)"

// Write writes the table, nothing where it has no rows. States have colours where w has them,
// and the first line says where what is written to w may be old.
func (t *Table) Write(w io.Writer) error {
	if len(t.Rows) == 0 {
		return nil
	}
	rows, hidden := t.Rows, 0
	if t.Limit > 0 && len(rows) > t.Limit {
		rows, hidden = rows[:t.Limit], len(rows)-t.Limit
	}
	all := rows
	if len(t.Heads) > 0 {
		all = append([][]string{t.Heads}, rows...)
	}
	if isStale(w) && len(all[0]) > 1 {
		all = append([][]string{slices.Clone(all[0])}, all[1:]...)
		first := slices.IndexFunc(all[0], func(cell string) bool { return strings.TrimSpace(cell) != "" })
		all[0][max(first, 0)] += staleMark
	}
	widths := columnWidths(all)
	colours := hasColours(w)
	for _, row := range all {
		var line strings.Builder
		for i, cell := range row {
			shown := cell
			if colours && t.isState(row, i) {
				shown = stateColour(cell)
			}
			line.WriteString(shown)
			if i < len(row)-1 {
				line.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2))
			}
		}
		if _, err := fmt.Fprintln(w, strings.TrimRight(line.String(), " ")); err != nil {
			return err
		}
	}
	if hidden == 0 {
		return nil
	}
	_, err := fmt.Fprintf(w, "… and %d more\n", hidden)
	return err
}

// columnWidths is how many characters the longest cell of each column has. The last cell of a
// row needs no width of its own.
func columnWidths(rows [][]string) []int {
	var widths []int
	for _, row := range rows {
		for i, cell := range row[:max(len(row)-1, 0)] {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	return widths
}

// isState reports whether a cell says in which state something is: it is in a column STATUS, or
// in a table without heads behind the word Status.
func (t *Table) isState(row []string, column int) bool {
	if len(t.Heads) > 0 {
		return column < len(t.Heads) && t.Heads[column] == "STATUS"
	}
	return column == 1 && row[0] == "Status"
}

// List says how a list is shown to people.
type List[T any] struct {
	// None is the line for an empty list; "": the list writes nothing then.
	None  string
	Heads []string
	Row   func(T) []any
	// Namespace is the first column where a command lists all namespaces; nil: there is none.
	Namespace func(T) string
}

// Write writes a list as a table.
func (l List[T]) Write(out *Output, list []T) {
	if len(list) == 0 && l.None != "" {
		out.Line("%s", l.None)
		return
	}
	namespaces := l.Namespace != nil && out.AllNamespaces
	t := NewTable(l.Heads...)
	if namespaces {
		t.Heads = append([]string{"NAMESPACE"}, l.Heads...)
	}
	for _, item := range list {
		cells := l.Row(item)
		if namespaces {
			cells = append([]any{l.Namespace(item)}, cells...)
		}
		t.Add(cells...)
	}
	out.Table(t)
}
