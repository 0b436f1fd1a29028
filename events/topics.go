package events

import (
	"fmt"
	"iter"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
)

// DefaultNamespace is the prefix of the topics where none is set.
const DefaultNamespace = "waybill"

// Input is a kind of input: a topic that the lane of a partition reads.
type Input int

// The inputs.
const (
	InputOrders Input = iota
	InputReplies
	InputCommands
	InputSignals
	InputInternal
)

// inputs are their names: of the topics, after the namespace, and of the
// [Positions] in seals and heads. So they stay as they are; another goes to the
// end, and raises [JournalFormat].
var inputs = [...]string{"orders", "replies", "commands", "signals", "internal"}

// InputNames lists the inputs that this release reads.
func InputNames() []string { return slices.Clone(inputs[:]) }

// Topics names the topics of one namespace. Make it with [NewTopics].
type Topics struct {
	Namespace string

	Orders, Replies, Commands, Signals string // inputs
	// Internal is the input on which lanes tell each other what becomes of orders that do a step of
	// another.
	Internal       string
	inputs         [len(inputs)]string
	Journal        string
	Status, Alerts string
	Workflows      string
	DeadLetters    string
	requests       *requestTopics
	source         string
}

// requestTopics are the names of the queues of agents, each made once: a lane needs them
// several times for each step of each order. Safe for concurrent use.
type requestTopics struct {
	prefix string
	made   atomic.Pointer[map[string]string] // by agent; a map is not changed once it is here
}

// maxRequestTopics is how many are kept; the names of others are made each time.
const maxRequestTopics = 1_000

func (t *requestTopics) of(agent string) string {
	made := t.made.Load()
	if topic, there := (*made)[agent]; there {
		return topic
	}
	topic := t.prefix + agent
	if len(*made) < maxRequestTopics {
		more := maps.Clone(*made)
		more[strings.Clone(agent)] = topic // agent may be a part of something large
		t.made.CompareAndSwap(made, &more) // else it is kept the next time
	}
	return topic
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
	t := Topics{
		Namespace: namespace,
		Journal:   in("journal"),
		Status:    in("status"), Alerts: in("alerts"),
		Workflows:   in("workflows"),
		DeadLetters: in("dead-letters"),
		requests:    &requestTopics{prefix: in("requests.")},
		source:      "/waybill/" + namespace,
	}
	t.requests.made.Store(&map[string]string{})
	for i, name := range inputs {
		t.inputs[i] = in(name)
	}
	t.Orders, t.Replies, t.Commands = t.inputs[InputOrders], t.inputs[InputReplies], t.inputs[InputCommands]
	t.Signals, t.Internal = t.inputs[InputSignals], t.inputs[InputInternal]
	return t, nil
}

// Source is the ce_source of what orchestrators write.
func (t *Topics) Source() string { return t.source }

// Inputs are the topics that the lane of a partition reads.
func (t *Topics) Inputs() iter.Seq2[Input, string] {
	return func(yield func(Input, string) bool) {
		for i, topic := range t.inputs {
			if !yield(Input(i), topic) {
				return
			}
		}
	}
}

// Since is the format since which partitions read the input: a release of before does not know it,
// and refuses a transaction that read it.
func (in Input) Since() int {
	switch in {
	case InputSignals:
		return SignalsFormat
	case InputInternal:
		return ChildrenFormat
	}
	return 0
}

// InputsOf are the topics that the lane of a partition reads that is in a format.
func (t *Topics) InputsOf(format int) iter.Seq2[Input, string] {
	return func(yield func(Input, string) bool) {
		for in, topic := range t.Inputs() {
			if in.Since() <= format && !yield(in, topic) {
				return
			}
		}
	}
}

// Input says which input a topic is, if it is one.
func (t *Topics) Input(topic string) (Input, bool) {
	i := slices.Index(t.inputs[:], topic)
	return Input(i), i >= 0
}

// Requests is the queue of one agent.
func (t *Topics) Requests(agent string) string { return t.requests.of(agent) }

// Agent is whose queue a topic is, "" if it is none.
func (t *Topics) Agent(topic string) string {
	agent, ok := strings.CutPrefix(topic, t.Requests(""))
	if !ok {
		return ""
	}
	return agent
}

// Partitioned lists the topics that must have one and the same number of
// partitions, because an order lives in the same partition of each.
func (t *Topics) Partitioned() []string {
	return append(t.inputs[:len(inputs):len(inputs)], t.Journal)
}

// Owns says whether topic is one that orchestrators read, or write for
// themselves or agents. A caller may not name such a topic for its status
// messages: it could forge replies or commands.
func (t *Topics) Owns(topic string) bool {
	switch topic {
	case t.Journal, t.Alerts, t.Workflows, t.DeadLetters:
		return true
	}
	return slices.Contains(t.inputs[:], topic) || strings.HasPrefix(topic, t.requests.prefix)
}

// OwnSomewhere says whether a topic is one that, by its name, orchestrators of some namespace
// read, or write for themselves or agents.
func OwnSomewhere(topic string) bool {
	for i := range len(topic) {
		if topic[i] != '.' {
			continue
		}
		if t, err := NewTopics(topic[:i]); err == nil && t.Owns(topic) {
			return true
		}
	}
	return false
}

// ValidTopic says whether Kafka would take name as the name of a topic that
// is not its own.
func ValidTopic(name string) bool {
	if len(name) == 0 || len(name) > 249 || name == "." || name == ".." || strings.HasPrefix(name, "__") {
		return false
	}
	for i := range len(name) {
		switch c := name[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}
