package console

import (
	"bytes"
	"context"
	"html"
	"html/template"
	"regexp"
	"strings"
	"sync"

	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/internal/diagram"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
)

// drawings are those of workflows that were shown of late. To draw one takes a moment.
type drawings struct {
	mu  sync.Mutex
	all map[string]*drawing // by the workflow's canonical form
}

// maxDrawings is how many are kept.
const maxDrawings = 200

// one is held by who draws: it takes a processor, and much memory for a moment.
var one sync.Mutex

type drawing struct {
	once sync.Once
	svg  string // empty if it could not be drawn
}

// How much is drawn, at most. Of more nobody sees anything, and Graphviz takes ever longer, with nobody who
// could stop it.
const (
	maxNodes = 60
	maxEdges = 120
)

// of is the drawing of a workflow, in which each step looks as it stands; nil if there is none. What
// does not stand anywhere yet looks the same.
func (d *drawings) of(ctx context.Context, source []byte, steps []api.Step) any {
	d.mu.Lock()
	if d.all == nil || len(d.all) >= maxDrawings {
		d.all = make(map[string]*drawing)
	}
	it := d.all[string(source)]
	if it == nil {
		it = new(drawing)
		d.all[string(source)] = it
	}
	d.mu.Unlock()
	it.once.Do(func() { it.draw(context.WithoutCancel(ctx), source) })
	if it.svg == "" {
		return nil
	}
	states := make(map[string]string)
	for i := range steps {
		states[steps[i].Name] = kind(steps[i].State)
	}
	svg := nodeForm.ReplaceAllStringFunc(it.svg, func(node string) string {
		name := html.UnescapeString(nodeForm.FindStringSubmatch(node)[1])
		state, known := states[name]
		if !known {
			return node
		}
		return strings.Replace(node, `class="node"`, `class="node is-`+state+`"`, 1)
	})
	return template.HTML(svg) //nolint:gosec // by Graphviz, of text that it escapes
}

// nodeForm is a step in a drawing of Graphviz.
var nodeForm = regexp.MustCompile(`class="node">\s*<title>([^<]*)</title>`)

func (d *drawing) draw(ctx context.Context, source []byte) {
	flow, err := workflow.Parse("registered", source)
	if err != nil {
		return
	}
	edges := 0
	for i := range flow.Steps {
		edges += len(flow.Steps[i].After)
	}
	if len(flow.Steps) > maxNodes || edges > maxEdges {
		return
	}
	one.Lock()
	defer one.Unlock()
	var b bytes.Buffer
	if err := diagram.SVG(ctx, &b, flow); err != nil {
		return
	}
	_, svg, found := strings.Cut(b.String(), "<svg ") // what stands before it is of a file
	if !found {
		return
	}
	d.svg = `<svg role="img" aria-label="The steps, and which come after which" ` + svg
}
