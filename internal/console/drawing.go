package console

import (
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

type drawing struct {
	once sync.Once
	svg  string // empty if it could not be drawn
}

// How much is drawn, at most. Of more nobody sees anything.
const (
	maxNodes = 60
	maxEdges = 120
)

// of is the drawing of a workflow, in which each step looks as it stands; nil if there is none. What
// does not stand anywhere yet looks the same.
func (d *drawings) of(source []byte, steps []api.Step) any {
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
	it.once.Do(func() { it.draw(source) })
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
	return template.HTML(svg) //nolint:gosec // by package diagram, of text that it escapes
}

// nodeForm is a step in a drawing.
var nodeForm = regexp.MustCompile(`class="node">\s*<title>([^<]*)</title>`)

func (d *drawing) draw(source []byte) {
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
	var b strings.Builder
	_ = diagram.SVG(&b, flow) // a builder takes all
	d.svg = strings.Replace(b.String(), "<svg ", `<svg role="img" aria-label="The steps, and which come after which" `, 1)
}
