package decide

import (
	"testing"

	"github.com/waybill-dev/waybill/events"
)

// An order may tell its status on the topic for that, whatever others may be named, and on no other of Waybill's own.
func TestWhereOrdersMayNotTellTheirStatus(t *testing.T) {
	topics, err := events.NewTopics("waybill")
	if err != nil {
		t.Fatal(err)
	}
	for topic, refused := range map[string]bool{"waybill.status": false, "shop.told": false, "shop": true, "waybill.journal": true, "waybill.requests.x": true, "other.orders": true} {
		if why := RefusesStatus(&topics, []string{"shop.*"}, topic); (why != "") != refused {
			t.Errorf("%s: refused for %q", topic, why)
		}
	}
}
