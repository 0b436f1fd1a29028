package words

import (
	"testing"

	"github.com/waybill-dev/waybill/internal/api"
)

func TestClockOff(t *testing.T) {
	for want, c := range map[string]*api.Clock{"-": nil, "right": {Right: true}, "2m0s ahead": {AheadMs: 120_400}, "2m0s behind": {AheadMs: -120_400}} {
		if got := ClockOff(c); got != want {
			t.Errorf("%+v is %q, and not %q", c, got, want)
		}
	}
}
