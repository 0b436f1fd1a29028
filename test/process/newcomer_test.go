//go:build unix

package process

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/oracle"
	"github.com/waybill-dev/waybill/test/reliability"
)

// at once is a workflow whose orders end as soon as they are read: a great many are soon made.
const atOnce = `
workflow: at-once
steps: [{name: only, agent: nobody, do: it, when: "false"}]
`

const newcomerPartitions = 12

// newcomer has an empty instance join two that know a great many orders. Whoever is asked for
// any of these, and whenever, nobody says that there is no such order; and each partition is
// served all the time, which is a figure.
func newcomer(t *testing.T, broker *kafka.Broker, size *sizes) reliability.Figures {
	t.Helper()
	c := newCluster(t, broker)
	c.createTopicsWhenever(newcomerPartitions)
	flags := []string{"--session-timeout", size.session, "--close", size.close}
	one, two := c.two(flags...)
	one.owned(one, two)
	registerSource(t, one.http, atOnce)
	for _, i := range []*serve{one, two} {
		i.knows("at-once")
	}
	client := c.broker.Client(t)
	submit := func(id string, acked func(*kgo.Record)) {
		client.Produce(t.Context(), &kgo.Record{Topic: c.topics.Orders, Key: []byte(id), Value: []byte(`{"workflow":"at-once"}`)}, func(r *kgo.Record, err error) {
			if err != nil {
				t.Errorf("submit: %v", err)
			}
			acked(r)
		})
	}
	flush := func() {
		if err := client.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	processed := func(i *serve, ids []string) {
		for _, id := range ids {
			i.within(size.patience(), "order "+id+" is Processed", func() error {
				o, err := i.client.Order(t.Context(), id)
				if err == nil && o.ProcessState != projections.Processed {
					err = fmt.Errorf("it is %s", o.ProcessState)
				}
				return err
			})
		}
	}

	// The first of a partition may be overtaken, while Kafka is asked about topics.
	var first []string
	for ids := (turns{prefix: "w", from: make([]int, newcomerPartitions)}); len(first) < newcomerPartitions; {
		first = append(first, ids.next())
		submit(first[len(first)-1], func(*kgo.Record) {})
	}
	flush()
	processed(one, first)

	began := time.Now()
	last := make([]string, newcomerPartitions)
	for n := range size.newcomers {
		submit("f-"+strconv.Itoa(n), func(r *kgo.Record) { last[r.Partition] = string(r.Key) })
	}
	flush()
	for _, i := range []*serve{one, two} {
		processed(i, last)
	}
	filled := time.Since(began)

	// They come all the time, to all partitions in turn.
	stop, cease := context.WithCancel(t.Context())
	var busy sync.WaitGroup
	defer busy.Wait()
	defer cease()
	var pulse []string
	busy.Go(func() {
		tick := time.NewTicker(pulseEvery)
		defer tick.Stop()
		ids := turns{prefix: "p", from: make([]int, newcomerPartitions)}
		for stop.Err() == nil {
			pulse = append(pulse, ids.next())
			submit(pulse[len(pulse)-1], func(*kgo.Record) {})
			<-tick.C
		}
	})
	change := change{what: "an empty instance joins", began: time.Now()}
	three := c.serve("three", flags...)
	answers := make(map[string]int)
	busy.Go(func() {
		for n := 0; stop.Err() == nil; n = (n + 7919) % size.newcomers {
			for _, s := range []*serve{one, two, three} {
				_, err := s.client.Order(t.Context(), "f-"+strconv.Itoa(n))
				var problem *api.Problem
				switch {
				case err == nil:
					answers["the order"]++
				case errors.As(err, &problem):
					if answers[strconv.Itoa(problem.Status)]++; problem.Status != http.StatusServiceUnavailable {
						t.Errorf("%s answers for order f-%d: %v", s.name, n, err)
						return
					}
				default:
					answers["nothing"]++ // it does not listen yet
				}
			}
		}
	})
	three.within(size.patience(), "it has its share", func() error {
		all, err := three.client.Partitions(t.Context())
		if err != nil {
			return err
		}
		mine := 0
		for _, p := range all {
			if p.Owner != nil && *p.Owner == three.name {
				mine++
			}
		}
		if mine < newcomerPartitions/3 {
			return fmt.Errorf("it has %d partitions", mine)
		}
		return three.client.Ready(t.Context())
	})
	change.ended = time.Now()
	cease()
	busy.Wait()
	flush()
	processed(one, pulse[max(0, len(pulse)-newcomerPartitions):])

	decisions, moved := make(map[int32][]time.Time), make(map[int32]bool)
	ended := 0
	for r := range oracle.Records(t, broker.Brokers, c.topics.Journal) {
		e, err := events.Decode[events.Event](r.Value)
		if err != nil {
			t.Fatal(err)
		}
		if e.Type == events.OrderCompleted {
			ended++
		}
		if r.Timestamp.After(change.began) {
			decisions[r.Partition] = append(decisions[r.Partition], r.Timestamp)
			moved[r.Partition] = moved[r.Partition] || e.Type == events.PartitionClaimed
		}
	}
	if want := len(first) + size.newcomers + len(pulse); ended != want {
		t.Errorf("of %d orders %d have ended", want, ended)
	}
	var of [2]time.Duration
	count := 0
	for p := range int32(newcomerPartitions) {
		kind := 0
		if moved[p] {
			kind = 1
			count++
		}
		of[kind] = max(of[kind], longestGap(decisions[p], change))
	}
	if size.whole && max(of[0], of[1]) > 5*time.Second {
		t.Errorf("a partition was silent for %s", max(of[0], of[1]))
	}
	for _, s := range []*serve{one, two, three} {
		s.stop()
	}
	return reliability.Figures{{Name: fmt.Sprintf("%d finished orders", size.newcomers), Value: reliability.Figures{
		{Name: "finished a second", Value: int(float64(size.newcomers) / filled.Seconds())},
		{Name: "its share after", Value: tenths(change.ended.Sub(change.began))},
		{Name: "answers with the order", Value: answers["the order"]},
		{Name: "503", Value: answers["503"]},
		{Name: "404", Value: answers["404"]},
		{Name: "none yet", Value: answers["nothing"]},
		{Name: "partitions moved", Value: count},
		{Name: "longest silence of one that moved", Value: of[1].Round(time.Millisecond).String()},
		{Name: "of one that stayed", Value: of[0].Round(time.Millisecond).String()},
	}}}
}

// knows waits until the instance knows a workflow: what is submitted before waits, and
// others overtake it.
func (s *serve) knows(workflow string) {
	s.Helper()
	s.until(s.name+" knows the workflow "+workflow, func() error {
		_, err := s.client.Workflow(s.Context(), workflow, 0)
		return err
	})
}
