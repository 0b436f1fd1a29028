package events_test

import (
	"testing"

	"github.com/waybill-dev/waybill/events"
)

func TestErrorText(t *testing.T) {
	for want, e := range map[string]events.Error{
		"card-declined: no funds": {Code: "card-declined", Message: "no funds", Permanent: true, Step: "charge"},
		"card-declined":           {Code: "card-declined"},
		"no funds":                {Message: "no funds"},
		"":                        {},
	} {
		if got := e.Text(); got != want {
			t.Errorf("%+v reads %q, want %q", e, got, want)
		}
	}
}
