package events_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/waybill-dev/waybill/events"
)

func TestNamespaceRules(t *testing.T) {
	for _, ns := range []string{"waybill", "a", "Shop.eu-1_x", "_x", "-", strings.Repeat("n", 100)} {
		if _, err := events.NewTopics(ns); err != nil {
			t.Error(err)
		}
	}
	for _, ns := range []string{"", ".x", "__x", "a b", "a/b", "ü", "a\n", strings.Repeat("n", 101)} {
		if _, err := events.NewTopics(ns); err == nil {
			t.Errorf("namespace %q is taken", ns)
		}
	}
}

func TestTopicsFitKafka(t *testing.T) {
	topics, err := events.NewTopics(strings.Repeat("n", 100))
	if err != nil {
		t.Fatal(err)
	}
	for _, topic := range append(topics.Partitioned(), topics.Requests(strings.Repeat("a", 100)), topics.DeadLetters) {
		if !events.ValidTopic(topic) {
			t.Errorf("topic %s", topic)
		}
	}
}

// An order's submission, the replies to it, the commands and signals about it, what orders tell it, and its
// events meet in one partition.
func TestPartitionedTopics(t *testing.T) {
	topics, err := events.NewTopics("shop")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"shop.orders", "shop.replies", "shop.commands", "shop.signals", "shop.internal", "shop.journal"}
	if got := topics.Partitioned(); !slices.Equal(got, want) {
		t.Errorf("partitioned alike are %v, want %v", got, want)
	}
}

// A caller may have its status messages on a topic of its own, or on the
// namespace's status topic, and on no other of ours.
func TestOwnedTopics(t *testing.T) {
	topics, err := events.NewTopics(events.DefaultNamespace)
	if err != nil {
		t.Fatal(err)
	}
	for _, topic := range []string{
		"waybill.orders", "waybill.replies", "waybill.commands", "waybill.signals", "waybill.internal", "waybill.journal",
		"waybill.alerts", "waybill.workflows", "waybill.dead-letters", "waybill.requests.payment",
	} {
		if !topics.Owns(topic) {
			t.Errorf("%s is not owned", topic)
		}
	}
	for _, topic := range []string{"waybill.status", "shop.status", "shop.orders", "waybill", "orders"} {
		if topics.Owns(topic) {
			t.Errorf("%s is owned", topic)
		}
	}
}

func TestValidTopic(t *testing.T) {
	for _, topic := range []string{"a", "shop.status", "A_b-c.9", "_x", strings.Repeat("t", 249)} {
		if !events.ValidTopic(topic) {
			t.Errorf("%q is refused", topic)
		}
	}
	for _, topic := range []string{"", ".", "..", "__consumer_offsets", "a b", "a/b", "ü", strings.Repeat("t", 250)} {
		if events.ValidTopic(topic) {
			t.Errorf("%q is taken", topic)
		}
	}
}

// The inputs that a release reads are those of its format: an older release would leave
// another one unread. Whoever adds one raises the format, and adds a line here; the lines
// that are there stay as they are.
func TestInputsAndFormat(t *testing.T) {
	of := map[int][]string{
		1:  {"orders", "replies", "commands"},
		2:  {"orders", "replies", "commands"},
		3:  {"orders", "replies", "commands"},
		4:  {"orders", "replies", "commands"},
		5:  {"orders", "replies", "commands"},
		6:  {"orders", "replies", "commands", "signals"},
		7:  {"orders", "replies", "commands", "signals", "internal"},
		8:  {"orders", "replies", "commands", "signals", "internal"},
		9:  {"orders", "replies", "commands", "signals", "internal"},
		10: {"orders", "replies", "commands", "signals", "internal"},
		11: {"orders", "replies", "commands", "signals", "internal"},
	}
	if want := of[events.JournalFormat]; !slices.Equal(events.InputNames(), want) {
		t.Errorf("format %d has the inputs %q, and this release reads %q", events.JournalFormat, want, events.InputNames())
	}
}

var queue string // so that its name is no temporary

// The name of an agent's queue is made once, however many ask for it at the same time. Of
// more agents than anybody has it is made each time, so that no flood of names is kept.
func TestRequestTopics(t *testing.T) {
	topics, err := events.NewTopics("shop")
	if err != nil {
		t.Fatal(err)
	}
	agent := func(n int) string { return fmt.Sprint("agent-", n) }
	var asking sync.WaitGroup
	for range 4 {
		asking.Go(func() {
			for n := range 2_000 {
				if got, want := topics.Requests(agent(n)), "shop.requests."+agent(n); got != want {
					t.Errorf("the queue is %s, want %s", got, want)
				}
			}
		})
	}
	asking.Wait()
	kept, copied := 0, topics
	for n := range 2_000 {
		name := agent(n)
		if testing.AllocsPerRun(10, func() { queue = copied.Requests(name) }) == 0 {
			kept++
		}
	}
	if kept != 1_000 {
		t.Errorf("of 2,000 names %d are kept", kept)
	}
}

// Whatever the namespace: one with dots in its name, too.
func TestTopicsOwnedSomewhere(t *testing.T) {
	for topic, owned := range map[string]bool{
		"other.replies": true, "a.b-c.journal": true, "x.requests.payment": true, "x.requests.": true, "shop.orders": true,
		"orders": false, ".orders": false, "shop.status": false, "shop.orders.eu": false, "requests.payment": false, "my-replies": false, "": false,
	} {
		if events.OwnSomewhere(topic) != owned {
			t.Errorf("%q is owned: %t", topic, !owned)
		}
	}
}
