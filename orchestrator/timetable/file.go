package timetable

import (
	"github.com/go-json-experiment/json"
	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/yamlfile"
)

// maxFile is the size of the largest file, in bytes.
const maxFile = 1 << 20

// Parse reads a file with a schedule. The error has all that is wrong with its form, by line and column:
// what the values say is for whoever applies it.
func Parse(file string, source []byte) (name string, s *events.Schedule, err error) {
	r := &yamlfile.Reader{File: file}
	body := r.Document(source, maxFile, "schedule: my-schedule")
	if body == nil {
		return "", nil, r.Err()
	}
	s = new(events.Schedule)
	text := func(key string, value *string) yamlfile.Field {
		return yamlfile.Field{Key: key, Read: func(n ast.Node) { *value, _, _ = r.Text(n, key) }}
	}
	var start, end, priority string
	given := r.Mapping(body, "a schedule", []yamlfile.Field{
		text("schedule", &name), text("cron", &s.Cron), text("every", &s.Every), text("zone", &s.Zone),
		text("start", &start), text("end", &end), text("jitter", &s.Jitter), text("overlap", &s.Overlap), text("catchUp", &s.CatchUp), text("window", &s.Window),
		text("workflow", &s.Workflow),
		{Key: "version", Read: func(n ast.Node) { r.Whole(n, "version", 1<<31-1, &s.Version) }},
		{Key: "input", Read: func(n ast.Node) { s.Input = value(r, n) }},
		text("priority", &priority),
		{Key: "labels", Read: func(n ast.Node) {
			s.Labels = make(map[string]string)
			r.Entries(n, "labels", "write name: value", func(key string, _ *token, value ast.Node) {
				s.Labels[key], _, _ = r.Text(value, "the label "+key)
			})
		}},
		text("replyTo", &s.ReplyTo),
	})
	r.Require(body, given, "the schedule", "schedule", "workflow")
	s.Priority = events.Priority(priority)
	_ = json.Marshal
	_ = yaml.Unmarshal
	return name, s, r.Err()
}
