package agents

import (
	"crypto/rand"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
)

// replies makes the records of replies.
type replies struct {
	source   string
	instance string
	count    *atomic.Uint64
}

func newReplies(namespace, agent string) replies {
	return replies{
		source:   "/" + namespace + "/agents/" + agent,
		instance: rand.Text()[:8],
		count:    new(atomic.Uint64),
	}
}

// record is the reply to request: what its handler returned.
func (r *replies) record(request *kgo.Record, req *events.Request, output jsontext.Value, err error) *kgo.Record {
	reply := events.Reply{Order: req.Order, Step: req.Step, Attempt: req.Attempt, Undo: req.Undo, Token: req.Token}
	if err != nil {
		reply.Status, reply.Error = events.ReplyFailed, fault(err)
	} else {
		reply.Status, reply.Output = events.ReplyCompleted, output
	}
	value := reply.Append(make([]byte, 0, 128+len(output)))
	if len(value) > events.MaxValue {
		reply.Status, reply.Output = events.ReplyFailed, nil
		reply.Error = fault(Permanent(CodeOutputTooLarge,
			fmt.Errorf("the reply has %d bytes, at most %d can be sent; put the data elsewhere and reply with a reference", len(value), events.MaxValue)))
		value = reply.Append(nil)
	}
	envelope := events.Envelope{
		Source:      r.source,
		Type:        events.StepReplied,
		ID:          r.instance + "-" + strconv.FormatUint(r.count.Add(1), 10),
		Order:       req.Order,
		Time:        time.Now(),
		Traceparent: events.Header(request, events.HeaderTraceparent),
	}
	return envelope.Record(req.ReplyTo, value)
}
