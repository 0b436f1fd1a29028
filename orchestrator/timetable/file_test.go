package timetable

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/events"
)

func TestParse(t *testing.T) {
	name, s, err := Parse("a.yaml", []byte(`
schedule: nightly
cron: "30 3 * * *"
zone: Europe/Berlin
start: 2026-11-25T18:00:00+01:00
jitter: 5m
overlap: queue
catchUp: all
window: 2h
workflow: bill
version: 2
input: {plan: gold, n: 7, "on": true, none: null}
priority: high
labels: {team: a, n: 7}
replyTo: shop.status
`))
	want := &events.Schedule{
		Cron: "30 3 * * *", Zone: "Europe/Berlin", Start: time.Date(2026, 11, 25, 17, 0, 0, 0, time.UTC), Jitter: "5m", Overlap: "queue", CatchUp: "all", Window: "2h",
		Workflow: "bill", Version: 2, Input: []byte(`{"plan":"gold","n":7,"on":true,"none":null}`), Priority: "high", Labels: map[string]string{"team": "a", "n": "7"}, ReplyTo: "shop.status",
	}
	if err != nil || name != "nightly" || !reflect.DeepEqual(s, want) {
		t.Errorf("%q: %+v, and not %+v; %v", name, s, want, err)
	}
	for source, says := range map[string]string{
		"":                                   `a.yaml:1:1: the file is empty; start it with "schedule: my-schedule"`,
		"schedule: a":                        `a.yaml:1:1: the schedule has no "workflow"; add it`,
		"schedule: A\nworkflow: b":           `a.yaml:1:1: the name of the schedule is "A"; use lower-case letters`,
		"schedule: a\nworkflow: b\nevry: 1h": `a.yaml:3:1: unknown key "evry" in a schedule; did you mean "every"?`,
		"schedule: a\nworkflow: b\nstart: tomorrow":   `a.yaml:3:8: start is a time, this is "tomorrow"; write it as`,
		"schedule: a\nworkflow: b\nversion: 0":        `a.yaml:3:10: version is a whole number`,
		"schedule: a\nworkflow: b\nlabels: [a]":       `a.yaml:3:9: labels is a mapping`,
		"schedule: a\nworkflow: b\ninput: !!binary x": `a.yaml:3:8: `,
	} {
		if _, _, err := Parse("a.yaml", []byte(source)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, and not %s", source, err, says)
		}
	}
}
