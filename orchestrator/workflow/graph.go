package workflow

import (
	"cmp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/token"
)

// edge says that a step starts after another.
type edge struct {
	from int          // the step that comes before
	at   *token.Token // where the file says so; nil where it is the step above
}

// resolve finds what each step comes after, and reports names that are taken
// or unknown, and circles. The graph that it returns is
// nil where there is a circle.
func (r *reader) resolve(drafts []draft) [][]edge {
	var names []string
	index := make(map[string]int, len(drafts))
	for i, d := range drafts {
		if d.Name == "" {
			continue
		}
		if first, taken := index[d.Name]; taken {
			r.add(d.at, "the step %s is defined twice, first at %s; rename one", quote(d.Name), where(drafts[first].at))
			continue
		}
		index[d.Name] = i
		names = append(names, d.Name)
	}

	graph := make([][]edge, len(drafts))
	for i := range drafts {
		graph[i] = r.edges(i, &drafts[i], index, names)
		for _, e := range graph[i] {
			drafts[i].After = append(drafts[i].After, drafts[e.from].Name)
		}
	}
	circles := cycles(graph)
	for _, c := range circles {
		r.cycle(c, graph, drafts)
	}
	if circles != nil {
		return nil
	}
	return graph
}

// edges returns what the i-th step comes after, in the order of the file, so
// that the order in which a file lists them makes no difference.
func (r *reader) edges(i int, d *draft, index map[string]int, names []string) []edge {
	if d.chain {
		if i == 0 {
			return nil
		}
		return []edge{{from: i - 1}}
	}
	var edges []edge
	seen := make(map[string]*token.Token, len(d.after))
	for _, ref := range d.after {
		first := seen[ref.name]
		seen[ref.name] = ref.at
		from, known := index[ref.name]
		switch {
		case first != nil:
			r.add(ref.at, "the step %s is named twice in this list; remove one", quote(ref.name))
		case !known:
			r.add(ref.at, "there is no step %s%s", quote(ref.name), cmp.Or(didYouMean(ref.name, names), "; name a step of this file"))
		case from == i:
			r.add(ref.at, "the step %s cannot come after itself; remove it from this list", quote(ref.name))
		default:
			edges = append(edges, edge{from, ref.at})
		}
	}
	slices.SortFunc(edges, func(a, b edge) int { return a.from - b.from })
	return edges
}

// cycles returns circles that the graph has, each step in at most one of them:
// as many as it takes to say what is wrong, where there may be very many. A
// circle lists steps in the order in which they would run.
func cycles(graph [][]edge) [][]int {
	waits := make([]int, len(graph)) // how many steps each still waits for
	followers := make([][]int, len(graph))
	var ready []int
	for i, edges := range graph {
		waits[i] = len(edges)
		for _, e := range edges {
			followers[e.from] = append(followers[e.from], i)
		}
		if waits[i] == 0 {
			ready = append(ready, i)
		}
	}
	done := make([]bool, len(graph))
	run := func() {
		for len(ready) > 0 {
			i := ready[0]
			ready = ready[1:]
			done[i] = true
			for _, f := range followers[i] {
				if waits[f]--; waits[f] == 0 && !done[f] {
					ready = append(ready, f)
				}
			}
		}
	}

	var found [][]int
	for run(); slices.Contains(done, false); run() {
		// Each step left waits for another one that is left: going back from
		// any of them ends in a circle.
		var path []int
		step := slices.Index(done, false)
		for !slices.Contains(path, step) {
			path = append(path, step)
			step = graph[step][slices.IndexFunc(graph[step], func(e edge) bool { return !done[e.from] })].from
		}
		circle := path[slices.Index(path, step):]
		slices.Reverse(circle)
		found = append(found, circle)
		ready = append(ready, circle...)
		for _, i := range circle {
			done[i] = true
		}
	}
	return found
}

// cycle reports a circle at the first place in the file that closes it.
func (r *reader) cycle(circle []int, graph [][]edge, drafts []draft) {
	// It reads best from the step that comes first in the file.
	first := slices.Index(circle, slices.Min(circle))
	circle = slices.Concat(circle[first:], circle[:first])

	var at *token.Token
	var names []string
	for i, step := range circle {
		before := circle[(i+len(circle)-1)%len(circle)]
		e := graph[step][slices.IndexFunc(graph[step], func(e edge) bool { return e.from == before })]
		// A step that follows the one above it never closes a circle.
		if e.at != nil && (at == nil || earlier(e.at, at)) {
			at = e.at
		}
		names = append(names, strings.Trim(quote(drafts[step].Name), `"`))
	}
	names = append(names, names[0])
	const shown = 20
	if len(names) > shown {
		names = slices.Concat(names[:shown-2], []string{"…"}, names[len(names)-1:])
	}
	r.add(at, "these steps wait for each other: %s; remove one of them from an \"after\"", strings.Join(names, " -> "))
}

func earlier(a, b *token.Token) bool {
	return a.Position.Line < b.Position.Line || a.Position.Line == b.Position.Line && a.Position.Column < b.Position.Column
}
