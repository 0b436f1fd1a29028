package diagram

import (
	"cmp"
	"fmt"
	"html"
	"io"
	"math"
	"slices"
	"strings"
	"unicode"

	"github.com/waybill-dev/waybill/orchestrator/workflow"
)

// How large what is drawn is, in pixels.
const (
	fontSize   = 11.5
	lineHeight = 15.0
	padding    = 9.0  // of a text within its box
	between    = 18.0 // boxes of a row
	below      = 40.0 // a row, until the next
	margin     = 5.0
	arrow      = 9.0
)

// rounds is how often rows are put in order after their neighbours, and then moved to them.
const rounds = 12

// box is a step in a drawing, or a bend: where a line that leads further down passes a row.
type box struct {
	of            *box           // itself, or where the line comes from
	step          *workflow.Step // nil of a bend
	text          []string
	row           int
	top, bottom   float64 // of its row
	place         float64 // in its row
	x, y          float64 // of its middle
	width, height float64
	above, under  []*box
	drawn         bool // the line to a bend
}

// SVG draws the same for browsers: each step in a row below all that it comes after (the layers of Sugiyama, Tagawa and Toda, 1981).
func SVG(w io.Writer, flow *workflow.Workflow) error {
	rows, width, height := arranged(flow)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg width="%.0f" height="%.0f" viewBox="0 0 %.0f %.0f" xmlns="http://www.w3.org/2000/svg">`, width, height, width, height)
	fmt.Fprintf(&b, "\n<g class=\"graph\" fill=\"none\" stroke=\"#333\"><title>%s</title>\n", html.EscapeString(flow.ID()))
	b.WriteString(`<rect class="ground" width="100%" height="100%" fill="white" stroke="none"/>` + "\n") // whatever it is shown on
	for _, row := range rows {
		for _, it := range row {
			if it.step != nil {
				it.draw(&b)
			}
		}
	}
	_, err := io.WriteString(w, b.String()+"</g>\n</svg>\n")
	return err
}

func arranged(flow *workflow.Workflow) (rows [][]*box, width, height float64) {
	rows = layers(flow)
	order(rows)
	width, height = place(rows)
	return rows, width, height
}

// layers are the steps in rows, each as far up as it may be. Lines from a step to several that are further down share their bends.
func layers(flow *workflow.Workflow) (rows [][]*box) {
	boxes, under := make([]*box, len(flow.Steps)), make([][]*box, len(flow.Steps))
	put := func(b *box) *box {
		for len(rows) <= b.row {
			rows = append(rows, nil)
		}
		rows[b.row] = append(rows[b.row], b)
		return b
	}
	var of func(i int) *box
	of = func(i int) *box {
		if boxes[i] != nil {
			return boxes[i]
		}
		b := &box{step: &flow.Steps[i], text: Caption(&flow.Steps[i])}
		b.of, boxes[i] = b, b
		for _, line := range b.text {
			b.width = max(b.width, 2*padding+long(line))
		}
		b.height = 2*padding + lineHeight*float64(len(b.text))
		for _, before := range b.step.After {
			at := flow.Index(before)
			b.row = max(b.row, of(at).row+1)
			under[at] = append(under[at], b)
		}
		return put(b)
	}
	for i := range flow.Steps {
		of(i)
	}
	join := func(a, b *box) { a.under, b.above = append(a.under, b), append(b.above, a) }
	for i, b := range boxes {
		slices.SortStableFunc(under[i], func(a, b *box) int { return cmp.Compare(a.row, b.row) })
		at := b
		for _, next := range under[i] {
			for at.row < next.row-1 {
				bend := put(&box{of: b, row: at.row + 1})
				join(at, bend)
				at = bend
			}
			join(at, next)
		}
	}
	return rows
}

// order has few lines cross: a box stands among those of its row as what it is joined to does among theirs.
func order(rows [][]*box) {
	number := func(row []*box) {
		for i, b := range row {
			b.place = float64(i)
		}
	}
	for _, row := range rows {
		number(row)
	}
	place := func(b *box) float64 { return b.place }
	for round := range rounds {
		eachRow(rows, round, func(row []*box, joined func(*box) []*box) {
			wanted := make(map[*box]float64, len(row))
			for _, b := range row {
				wanted[b] = mean(joined(b), place, b.place)
			}
			slices.SortStableFunc(row, func(a, b *box) int { return cmp.Compare(wanted[a], wanted[b]) })
			number(row)
		})
	}
}

// place moves the boxes of each row to the middle of what they are joined to, as far as there is room, and says how large all is.
func place(rows [][]*box) (width, height float64) {
	x := func(b *box) float64 { return b.x }
	for _, row := range rows {
		spread(row, func(*box) float64 { return 0 })
	}
	for round := range rounds {
		eachRow(rows, round, func(row []*box, joined func(*box) []*box) {
			middle := mean(row, x, 0)
			spread(row, func(b *box) float64 {
				if len(b.above)+len(b.under) == 0 {
					return middle // nothing else would draw it along
				}
				return mean(joined(b), x, b.x)
			})
		})
	}
	left := math.Inf(1)
	for _, row := range rows {
		left = min(left, row[0].x-row[0].width/2)
	}
	height = margin
	for _, row := range rows {
		high := 0.0
		for _, b := range row {
			high = max(high, b.height)
		}
		for _, b := range row {
			b.top, b.bottom = height, height+high
			if b.step == nil {
				b.height = high
			}
			b.x, b.y = b.x-left+margin, height+high/2
			width = max(width, b.x+b.width/2+margin)
		}
		height += high + below
	}
	return width, height - below + margin
}

// eachRow goes down through the rows, and up in every other round: what is joined to a box is where it came from.
func eachRow(rows [][]*box, round int, does func(row []*box, joined func(*box) []*box)) {
	for i := range rows {
		if round%2 == 0 {
			does(rows[i], func(b *box) []*box { return b.above })
		} else {
			does(rows[len(rows)-1-i], func(b *box) []*box { return b.under })
		}
	}
}

func mean(of []*box, what func(*box) float64, none float64) float64 {
	if len(of) == 0 {
		return none
	}
	sum := 0.0
	for _, b := range of {
		sum += what(b)
	}
	return sum / float64(len(of))
}

// spread puts the boxes of a row as near to where each wants to be as they fit side by side: the least squares, by pooling those that
// are in each other's way.
func spread(row []*box, wants func(*box) float64) {
	type pool struct {
		sum float64
		n   int
	}
	var pools []pool
	offsets, offset := make([]float64, len(row)), 0.0
	for i, b := range row {
		if i > 0 {
			offset += (row[i-1].width+b.width)/2 + between
		}
		offsets[i] = offset
		p := pool{wants(b) - offset, 1}
		for n := len(pools) - 1; n >= 0 && pools[n].sum*float64(p.n) >= p.sum*float64(pools[n].n); n-- {
			p.sum, p.n = p.sum+pools[n].sum, p.n+pools[n].n
			pools = pools[:n]
		}
		pools = append(pools, p)
	}
	i := 0
	for _, p := range pools {
		for range p.n {
			row[i].x = p.sum/float64(p.n) + offsets[i]
			i++
		}
	}
}

// draw draws a step, and the lines that end at it.
func (b *box) draw(w *strings.Builder) {
	for _, from := range b.above {
		path := []*box{b, from}
		for from.step == nil && !from.drawn {
			from.drawn = true
			from = from.above[0]
			path = append(path, from)
		}
		x, tip := from.x, b.y-b.height/2
		fmt.Fprintf(w, "<g class=\"edge\"><title>%s</title><path d=\"M%.1f %.1fV%.1f", html.EscapeString(from.of.step.Name+"->"+b.step.Name), x, from.y+from.height/2, from.bottom)
		for _, to := range slices.Backward(path[:len(path)-1]) { // a line turns between rows only, where no box is
			top, end := to.top, to.bottom
			if to == b {
				top, end = to.top-arrow, tip-arrow
			}
			half := to.top - below/2
			fmt.Fprintf(w, "C%.1f %.1f %.1f %.1f %.1f %.1fV%.1f", x, half, to.x, half, to.x, top, end)
			x = to.x
		}
		fmt.Fprintf(w, "\"/><polygon fill=\"#333\" points=\"%.1f,%.1f %.1f,%.1f %.1f,%.1f\"/></g>\n", b.x, tip, b.x-4, tip-arrow, b.x+4, tip-arrow)
	}
	fmt.Fprintf(w, "<g class=\"node\">\n<title>%s</title>", html.EscapeString(b.step.Name))
	left, top, right, bottom := b.x-b.width/2, b.y-b.height/2, b.x+b.width/2, b.y+b.height/2
	cornered := func(form string) { // form draws a corner, from where the line is, to by how much x and y change
		const cut = padding
		fmt.Fprintf(w, "<path d=\"M%.1f %.1fH%.1f"+form+"V%.1f"+form+"H%.1f"+form+"V%.1f"+form+"Z\"/>", left+cut, top,
			right-cut, cut, cut, bottom-cut, -cut, cut, left+cut, -cut, -cut, top+cut, cut, -cut)
	}
	outline := func(by float64) {
		fmt.Fprintf(w, "<polygon points=\"%.1f,%.1f %.1f,%.1f %.1f,%.1f %.1f,%.1f\"/>", left+by, top+by, right-by, top+by, right-by, bottom-by, left+by, bottom-by)
	}
	switch s := b.step; {
	case s.Raise != nil:
		cornered("l%.1f %.1f")
	case s.Order != nil || s.Each != nil:
		outline(0)
		outline(3)
	case !s.Asks():
		cornered("a9 9 0 0 1 %.1f %.1f")
	default:
		outline(0)
	}
	for i, line := range b.text {
		fmt.Fprintf(w, "<text text-anchor=\"middle\" font-family=\"system-ui, sans-serif\" font-size=\"%v\" stroke=\"none\" fill=\"black\" x=\"%.1f\" y=\"%.1f\">%s</text>",
			fontSize, b.x, top+padding+lineHeight*(float64(i)+0.8), html.EscapeString(line))
	}
	w.WriteString("</g>\n")
}

// long is how wide a text is, about: whose letters they are is the browser's.
func long(text string) (wide float64) {
	for _, r := range text {
		switch {
		case r >= 0x1100: // such as Han, Hangul and symbols
			wide += fontSize
		case unicode.IsUpper(r) || strings.ContainsRune("mw@%&", r):
			wide += 0.8 * fontSize
		case strings.ContainsRune("iljtfr.,:;'|!()[] ", r):
			wide += 0.42 * fontSize
		default:
			wide += 0.63 * fontSize
		}
	}
	return wide
}
