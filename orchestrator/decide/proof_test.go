package decide

import (
	"fmt"
	"strings"
	"testing"

	"github.com/waybill-dev/waybill/events"
)

// ADR 0026: a reply that is too large is one of the agent's all the same.
func TestALargeReplyKeepsItsToken(t *testing.T) {
	topics, err := events.NewTopics(events.DefaultNamespace)
	must(t, err)
	value := fmt.Sprintf(`{"order":"o-1","step":"s","attempt":1,"token":"k1.of-it","status":"completed","output":%q}`, strings.Repeat("x", events.MaxValue))
	in := Read(&Record{Topic: topics.Replies, Raw: events.Raw{Key: []byte("o-1"), Value: []byte(value)}}, &topics, Place{Of: func([]byte) int32 { return 0 }})
	if in.Reply == nil || in.Reply.Error == nil || in.Reply.Error.Code != events.ReplyTooLarge || in.Reply.Token != "k1.of-it" {
		t.Errorf("%s: %+v", in.Unreadable, in.Reply)
	}
}
