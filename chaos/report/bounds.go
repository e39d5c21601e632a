package report

// bounds are how much a page shows of a run, in elements of the drawing and rows of
// its tables.
type bounds struct {
	elements int // bars and signs
	bands    int // windows of faults
	faults   int // rows, as all below
	refused  int
	notes    int
}

// usual are the bounds of a page whose size does not matter much.
var usual = bounds{elements: 2000, bands: 400, faults: 300, refused: 150, notes: 300}

const (
	// fewest is how many elements a drawing may have before windows of faults are
	// left out as well: without those it says little.
	fewest = 350
	// shortest is how many rows a table has at least, if there are so many.
	shortest = 10
)

// less are the next tighter bounds. The table of faults goes early: what it says is
// in the drawing, too.
func (b bounds) less() bounds {
	b.elements, b.faults, b.notes = b.elements*3/4, max(shortest, b.faults/2), b.notes/2
	b.refused = max(shortest, b.refused*3/4)
	if b.elements < fewest {
		b.bands = b.bands * 3 / 4
	}
	return b
}

// least reports whether nothing is left to leave out.
func (b bounds) least() bool { return b.elements == 0 && b.bands == 0 }
