package events

import (
	"fmt"
	"regexp"
	"strings"
)

// DefaultNamespace is the prefix of the topics where none is set.
const DefaultNamespace = "waybill"

// Topics names the topics of one namespace. Make it with [NewTopics].
type Topics struct {
	Namespace string

	Orders, Replies, Commands string // inputs
	Journal                   string
	Status, Alerts            string
	Workflows                 string
	DeadLetters               string
	requests                  string
}

// A topic name may be 249 bytes; the longest of ours is
// <ns>.requests.<agent> with an agent name of at most 100.
var namespaceForm = regexp.MustCompile(`^[a-zA-Z0-9_-][a-zA-Z0-9._-]{0,99}$`)

// NewTopics returns the topics of namespace. It fails on a namespace that
// cannot begin a Kafka topic name.
func NewTopics(namespace string) (Topics, error) {
	if !namespaceForm.MatchString(namespace) || strings.HasPrefix(namespace, "__") {
		return Topics{}, fmt.Errorf("namespace %q: use 1 to 100 of a-z A-Z 0-9 . _ - and begin with none of . or __", namespace)
	}
	in := func(name string) string { return namespace + "." + name }
	return Topics{
		Namespace: namespace,
		Orders:    in("orders"), Replies: in("replies"), Commands: in("commands"),
		Journal: in("journal"),
		Status:  in("status"), Alerts: in("alerts"),
		Workflows:   in("workflows"),
		DeadLetters: in("dead-letters"),
		requests:    in("requests."),
	}, nil
}

// Requests is the queue of one agent.
func (t *Topics) Requests(agent string) string { return t.requests + agent }

// Partitioned lists the topics that must have one and the same number of
// partitions, because an order lives in the same partition of each.
func (t *Topics) Partitioned() []string {
	return []string{t.Orders, t.Replies, t.Commands, t.Journal}
}

// Owns says whether topic is one that orchestrators read, or write for
// themselves or agents. A caller may not name such a topic for its status
// messages: it could forge replies or commands.
func (t *Topics) Owns(topic string) bool {
	switch topic {
	case t.Orders, t.Replies, t.Commands, t.Journal, t.Alerts, t.Workflows, t.DeadLetters:
		return true
	}
	return strings.HasPrefix(topic, t.requests)
}

var topicForm = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`)

// ValidTopic says whether Kafka would take name as the name of a topic that
// is not its own.
func ValidTopic(name string) bool {
	return topicForm.MatchString(name) && name != "." && name != ".." && !strings.HasPrefix(name, "__")
}
