//go:build unix

package process

import (
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/waybill-dev/waybill/test/child"
	"github.com/waybill-dev/waybill/test/kafka"
)

func TestServeWaitsForTheBroker(t *testing.T) {
	address := child.FreeAddress(t)
	c := newCluster(t, &kafka.Broker{Brokers: []string{address}})
	s := c.serve("one")
	s.says("no Kafka broker answers")
	s.notReady(s.client)

	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	// It must have the topics from the first moment: an instance that finds a
	// broker without them gives up, or with a journal that takes too little.
	c.broker = kafka.Embedded(t, kfake.Ports(n), kfake.SeedTopics(2, c.allTopics()...))
	enough := "4259840"
	altered, err := c.broker.Admin(t).AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Name: "max.message.bytes", Value: &enough}}, c.topics.Journal)
	if err != nil || altered[0].Err != nil {
		t.Fatal(err, altered)
	}
	s.ready(s.client)
	registerPatient(t, s.http)
	c.agents()
	waybill(t, "submit", "patient", "--wait", "--id", "o-1", "--server", s.http)
	c.books.check([]string{"o-1"})
	s.stop()
}

func (c *cluster) allTopics() []string {
	return append(c.topics.Partitioned(), c.topics.Status, c.topics.Alerts, c.topics.Workflows, c.topics.DeadLetters)
}

func TestServeWithoutTopics(t *testing.T) {
	c := newCluster(t, kafka.Embedded(t))
	s := c.serve("one")
	s.exits(1)
	s.wants("waybill topics create", c.topics.Journal)
}

func TestSecondDevOnTheSameData(t *testing.T) {
	d := startDev(t)
	second := start(t, "the second dev", "dev", "--data-dir", d.dir, "--kafka-addr", child.FreeAddress(t), "--http-addr", child.FreeAddress(t))
	second.exits(1)
	second.wants("in use by another process", d.dir)
	elsewhere := start(t, "dev elsewhere", "dev", "--data-dir", t.TempDir(), "--kafka-addr", d.kafka, "--http-addr", child.FreeAddress(t))
	elsewhere.exits(1)
	elsewhere.wants(d.kafka, "is in use", "--kafka-addr")
	d.ready(d.client) // nobody disturbed it
	d.stop()
}

// wants checks what a process that ended has said.
func (p *process) wants(texts ...string) {
	p.Helper()
	for _, text := range texts {
		if said := p.log.String(); !strings.Contains(said, text) {
			p.Errorf("%s did not say %q", p.name, text)
		}
	}
}
