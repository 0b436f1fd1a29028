package timetable

import (
	"time"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/yamlfile"
)

// maxFile is the size of the largest file, in bytes.
const maxFile = 1 << 20

// Parse reads a file with a schedule, and its name. The error, [yamlfile.Errors], has all that is wrong with its
// form, by line and column; what its values mean is looked at when it is applied.
func Parse(file string, source []byte) (name string, s *events.Schedule, err error) {
	r := &yamlfile.Reader{File: file}
	body := r.Document(source, maxFile, "schedule: my-schedule")
	if body == nil {
		return "", nil, r.Sorted()
	}
	s = new(events.Schedule)
	text := func(key string, value *string) yamlfile.Field {
		return yamlfile.Field{Key: key, Read: func(n ast.Node) { *value, _, _ = r.Text(n, key) }}
	}
	moment := func(key string, value *time.Time) yamlfile.Field {
		return yamlfile.Field{Key: key, Read: func(n ast.Node) {
			text, at, ok := r.Text(n, key)
			if !ok {
				return
			}
			parsed, err := time.Parse(time.RFC3339, text)
			if err != nil {
				r.Add(at, "%s is a time, this is %s; write it as 2026-11-25T18:00:00Z or 2026-11-25T18:00:00+01:00", key, yamlfile.Quote(text))
			}
			*value = events.Time(parsed)
		}}
	}
	priority := ""
	given := r.Mapping(body, "a schedule", []yamlfile.Field{
		text("schedule", &name),
		text("cron", &s.Cron), text("every", &s.Every), text("zone", &s.Zone), moment("start", &s.Start), moment("end", &s.End), text("jitter", &s.Jitter),
		text("overlap", &s.Overlap), text("catchUp", &s.CatchUp), text("window", &s.Window),
		text("workflow", &s.Workflow),
		{Key: "version", Read: func(n ast.Node) { r.Whole(n, "version", 1<<31-1, &s.Version) }},
		{Key: "input", Read: func(n ast.Node) { s.Input = r.JSON(n) }},
		text("priority", &priority),
		{Key: "labels", Read: func(n ast.Node) {
			s.Labels = make(map[string]string)
			r.Entries(n, "labels", "write name: value", func(key string, _ *token.Token, value ast.Node) {
				s.Labels[key], _, _ = r.Text(value, "the label "+key)
			})
		}},
		text("replyTo", &s.ReplyTo),
	})
	s.Priority = events.Priority(priority)
	r.Require(body, given, "the schedule", "schedule", "workflow")
	if given["schedule"] != nil {
		if err := events.CheckScheduleName(name); err != nil {
			r.Add(given["schedule"], "%v", err)
		}
	}
	if wrong := r.Sorted(); wrong != nil {
		return "", nil, wrong
	}
	return name, s, nil
}
