package report

import (
	"fmt"
	"io"
)

// maxPlaceRows bounds the instances that a rehearsal's page lists.
const maxPlaceRows = 500

// rehearsalPage is what the template of a rehearsal is filled with.
type rehearsalPage struct {
	Name, Verdict, Headline, Lasted, Edges, Repeat, Left string
	Summary, Faults, Notes, Unplaced, Lows               []string
	Places                                               []placeRow
	Timeline                                             *timeline
	PageLinks
}

type placeRow struct {
	Name, Edge, Class, Story, Down, Twice string
	Fate                                  Fate
}

// WriteHTML writes the rehearsal's page.
func (r *Rehearsal) WriteHTML(w io.Writer, beside PageLinks) error {
	p := rehearsalPage{
		Name: r.Name, Verdict: string(r.Outcome), Headline: headline(r.Outcome), Lasted: stamp(r.Lasted),
		Edges: plural(len(r.Edges), "edge"), Repeat: r.Repeat, Summary: r.Summary(), Faults: r.faultLines(),
		Notes: r.Notes, Unplaced: r.Unplaced, Timeline: r.timeline, PageLinks: beside,
	}
	for _, l := range r.Lows() {
		p.Lows = append(p.Lows, l.String())
	}
	places := r.sortedPlaces()
	if n := len(places) - maxPlaceRows; n > 0 {
		places, p.Left = places[:maxPlaceRows], fmt.Sprintf("%d more are not listed.", n)
	}
	for _, place := range places {
		fate := place.Fate(r.Lasted)
		p.Places = append(p.Places, placeRow{
			Name: place.Name, Edge: place.firstEdge(), Class: fate.cssClass(), Fate: fate, Story: place.Story(),
			Down: stampOrDash(place.Down(r.Lasted)), Twice: stampOrDash(place.Twice()),
		})
	}
	if err := pages.ExecuteTemplate(w, "rehearsal.html", p); err != nil {
		return fmt.Errorf("write the rehearsal of %s: %w", r.Name, err)
	}
	return nil
}

// cssClass is how a fate is coloured.
func (f Fate) cssClass() string {
	switch f {
	case KeptRunning, Completed:
		return "pass"
	case Lost, Failed, DownAtEnd, NeverStarted:
		return "violation"
	case Stopped:
		return "broken"
	}
	return "void"
}
