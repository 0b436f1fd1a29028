package events_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/waybill-dev/waybill/events"
)

func TestCorrelationIDs(t *testing.T) {
	long := strings.Repeat("ä", 100)
	for _, c := range []struct{ signal, key, id string }{
		{"payment", "ref-7", "@ref-7/signal.payment"},
		{"a.b", "x/signal.y", "@x/signal.y/signal.a.b"},
		{"payment", strings.Repeat("k", 184), "@" + strings.Repeat("k", 184) + "/signal.payment"},
	} {
		if id := events.CorrelationID(c.signal, c.key); id != c.id {
			t.Errorf("the home of %s under %q is %s", c.signal, c.key, id)
		}
	}
	id := events.CorrelationID("payment", long)
	if !strings.HasPrefix(id, "@"+strings.Repeat("ä", 30)+"~") || !strings.HasSuffix(id, "/signal+payment") || len(id) != 1+60+1+24+len("/signal+payment") {
		t.Errorf("the home under a long key is %s", id)
	}
}

// No two keys share a home, and none is the id of another record.
func TestCorrelationsClashWithNothing(t *testing.T) {
	text := rapid.StringMatching(`[a-c/.~+@]{1,6}`)
	keys := rapid.OneOf(text, rapid.Map(rapid.SliceOfN(text, 1, 33), func(parts []string) string { return strings.Join(parts, "")[:min(200, len(strings.Join(parts, "")))] }), rapid.StringMatching(`[a-c]{150,200}`))
	names := rapid.OneOf(rapid.StringMatching(`[a-zA-Z0-9._-]{1,3}`), rapid.StringMatching(`[a-z]{90,100}`))
	homes := make(map[string][2]string)
	rapid.Check(t, func(t *rapid.T) {
		signal, key := names.Draw(t, "signal"), keys.Draw(t, "key")
		id := events.CorrelationID(signal, key)
		if was, taken := homes[id]; taken && was != [2]string{signal, key} {
			t.Fatalf("%s is the home of %q and of %q", id, was, [2]string{signal, key})
		}
		homes[id] = [2]string{signal, key}
		turn := events.TurnID(signal, key)
		if was, taken := homes[turn]; taken && was != [2]string{"open " + signal, key} {
			t.Fatalf("%s is the home of %q and of %q", turn, was, [2]string{signal, key})
		}
		homes[turn] = [2]string{"open " + signal, key}
		if err := events.CheckOrderID(turn); err != nil || !events.IsTurn(turn) || events.IsCorrelation(turn) || events.ScheduleOf(turn) != "" || events.LimitOf(turn) != "" || events.TurnOf(turn) != signal || events.TurnOf(id) != "" {
			t.Fatalf("%s: %v", turn, err)
		}
		if err := events.CheckOrderID(id); err != nil || !events.IsCorrelation(id) || events.IsTurn(id) || events.ScheduleOf(id) != "" {
			t.Fatalf("%s: %v", id, err)
		}
		order := rapid.OneOf(text, rapid.Just(id), rapid.Just(id[1:]), rapid.StringMatching(`x{150,190}/signal[.+~][a-z]{1,60}`)).Draw(t, "order")
		step := rapid.OneOf(rapid.StringMatching(`[a-z0-9]([a-z0-9-]{0,4}[a-z0-9])?`), rapid.Just("signal"), rapid.StringMatching(`(signal|open)[a-z-]{30,60}x`), rapid.Just("open")).Draw(t, "step")
		for _, child := range []string{
			events.ChildID(events.IdempotencyKey(order, step, rapid.IntRange(0, 3).Draw(t, "resubmissions"))),
			events.ChildID(events.IdempotencyKey(order, events.ItemStep(step, 7), 0)),
			events.ScheduleID(step),
		} {
			if events.IsCorrelation(child) || events.IsTurn(child) {
				t.Fatalf("%s is the id of a home", child)
			}
		}
	})
}

func TestKeysOfSignals(t *testing.T) {
	for key, ok := range map[string]bool{"": false, "a": true, strings.Repeat("k", 200): true, strings.Repeat("k", 201): false, "\xff": false, "a\x00b": true} {
		if err := events.CheckSignalKey(key); (err == nil) != ok {
			t.Errorf("%q: %v", key, err)
		}
	}
}
