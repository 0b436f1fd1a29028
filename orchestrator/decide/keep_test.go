package decide

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/inspect"
)

// However many orders did the steps of one, and whatever their ids have in them, the journal takes that
// it is forgotten.
func TestWhatIsForgottenFitsTheJournal(t *testing.T) {
	topics, err := events.NewTopics("shop")
	must(t, err)
	for what, id := range map[string]string{"plain": "o-1", "long": strings.Repeat("o", 179), "of control characters": strings.Repeat("\x01", 179) + "z", "of others": strings.Repeat("\u2028", 59)} {
		o := &projections.Order{ID: id, Workflow: "w", State: projections.Terminated, Seq: 9}
		for i := range 1_000 {
			o.Steps = append(o.Steps, projections.Step{Name: fmt.Sprint("s", i), Child: &projections.Child{ID: "@x"}, Work: projections.Work{Resubmissions: 9}})
		}
		d := forget(&Env{Now: inspect.Curtain, Topics: &topics, Format: events.JournalFormat}, o)
		size, wishes := len(d.Messages[0].Value), len(d.Messages)-1
		if size > events.MaxValue+EnvelopeSize || wishes < 900 {
			t.Errorf("%s: the event has %d bytes, and %d orders go with it", what, size, wishes)
		}
	}
}

// What a text takes in a list is never less than what it takes there.
func TestEscapedIsEnough(t *testing.T) {
	for _, text := range []string{"", "o-1", `"`, `\`, "\x1f", "\x7f", "é", "\u2028", `a"b\c`} {
		list, err := json.Marshal([]string{text})
		must(t, err)
		if got, takes := escaped(text), len(list)-len(`[]`)+len(`,`); got < takes {
			t.Errorf("%q takes %d, and counts as %d", text, takes, got)
		}
	}
	if n := escaped("o-1"); n != len(`"o-1",`) {
		t.Errorf("what needs no escape counts as %d", n)
	}
}
