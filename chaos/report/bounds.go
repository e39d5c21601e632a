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

// defaultBounds are the bounds of a page whose size does not matter much.
var defaultBounds = bounds{elements: 2000, bands: 400, faults: 300, refused: 150, notes: 300}

const (
	// minElements is how many elements a drawing may have before windows of faults are
	// left out as well: without those it says little.
	minElements = 350
	// minTableRows is how many rows a table has at least, if there are so many.
	minTableRows = 10
)

// tighterBounds are the next tighter bounds. The table of faults goes early: what it says is
// in the drawing, too.
func (b bounds) tighterBounds() bounds {
	b.elements, b.faults, b.notes = b.elements*3/4, max(minTableRows, b.faults/2), b.notes/2
	b.refused = max(minTableRows, b.refused*3/4)
	if b.elements < minElements {
		b.bands = b.bands * 3 / 4
	}
	return b
}

// isTightest reports whether nothing is left to leave out.
func (b bounds) isTightest() bool { return b.elements == 0 && b.bands == 0 }
