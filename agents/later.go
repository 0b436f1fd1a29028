package agents

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
)

// ErrLater is what a handler returns that does not answer, since somebody else will: by the
// [Token] of the attempt, which the handler took with [TokenOf] and put where that somebody finds
// it. The request is finished then, and does not come again: return it only once the token is safe.
var ErrLater = errors.New("the answer comes later")

// Token is what it takes to answer an attempt, from whichever process, with an [Answerer]. It is
// text to be stored, and to be kept like a password: it holds the token of its request.
type Token string

// TokenOf returns the token of the attempt whose handler has the context.
func TokenOf(ctx context.Context) (Token, error) {
	a, err := attemptOf(ctx)
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(&a.call.asked)
	if err != nil {
		return "", fmt.Errorf("agents: token: %w", err)
	}
	return Token(base64.RawURLEncoding.EncodeToString(text)), nil
}

// ErrOver says that an attempt is over: no answer to it counts any more.
var ErrOver = errors.New("the attempt is over")

// ErrTooLarge says that an answer is larger than a message may be.
var ErrTooLarge = errors.New("the reply is larger than a message may be")

// Answerer answers attempts by their tokens. Safe for concurrent use.
//
// An answer counts as any: for the attempt that its token is of, once, and in time, which the
// orchestrator decides. Meanwhile the attempt may have expired, or its order been cancelled: then
// the answer is recorded as late or stale, and changes nothing, and nobody is told here. Where the
// step was asked for again there is another token, of the next attempt, under the same idempotency
// key: whoever stores tokens by [Request.IdempotencyKey], the newest in the place of those before,
// answers the attempt that runs.
type Answerer struct {
	client  *kgo.Client
	replies replies
}

// NewAnswerer returns an [Answerer] on a Kafka of which brokers are some. The options are those
// of [Config.KafkaOptions].
func NewAnswerer(brokers []string, options ...kgo.Opt) (*Answerer, error) {
	if len(brokers) == 0 {
		return nil, errors.New("agents: no brokers; give the addresses of some")
	}
	client, err := kgo.NewClient(append(append([]kgo.Opt{
		kgo.ClientID("waybill-answerer"), kgo.MetadataMinAge(metadataEvery), kgo.AlwaysRetryEOF(), kgo.UnknownTopicRetries(unknownTopicLooks),
	}, options...), replying(brokers)...)...)
	if err != nil {
		return nil, fmt.Errorf("agents: %w", err)
	}
	return &Answerer{client: client, replies: newReplies("")}, nil
}

// Close ends the connections to Kafka.
func (a *Answerer) Close() { a.client.Close() }

// Complete answers that what was asked for is done, with an output that is written as JSON. It
// returns nil once Kafka has the answer. It fails with [ErrOver] if that would come too late for sure, and with
// [ErrTooLarge] if it would have more than 1 MiB, as which a handler's own output fails its step for good: here
// nothing is sent, so that what was done can be answered with a reference to the output, or with Fail. On an error of Kafka's
// the answer may be there all the same; to answer again does no harm.
func (a *Answerer) Complete(ctx context.Context, t Token, output any) error {
	text, err := json.Marshal(output)
	if err != nil {
		return fmt.Errorf("agents: write the output as JSON: %w", err)
	}
	if string(text) == "null" {
		text = nil
	}
	_, err = a.answer(ctx, t, status(jsontext.Value(text), nil))
	return err
}

// Fail answers with an error, as a handler that returns it: see [Permanent] and [Transient]. Else it
// does what Complete does.
func (a *Answerer) Fail(ctx context.Context, t Token, fault error) error {
	if fault == nil {
		return errors.New("agents: fail: there is no error")
	}
	_, err := a.answer(ctx, t, status(nil, fault))
	return err
}

// Extend says that somebody is still at it, as the function [Extend] does, and returns until when
// the attempt has time at least, if it is not over by then for other reasons. It sends that each
// time, so call it once in half of the timeout or so.
func (a *Answerer) Extend(ctx context.Context, t Token) (until time.Time, err error) {
	said := time.Now()
	of, err := a.answer(ctx, t, events.Reply{Status: events.ReplyProgress})
	if err != nil {
		return time.Time{}, err
	}
	if until = of.least(said); until.Before(of.CompleteBy) {
		until = of.CompleteBy
	}
	return until, nil
}

func (a *Answerer) answer(ctx context.Context, t Token, reply events.Reply) (of asked, err error) {
	text, err := base64.RawURLEncoding.DecodeString(string(t))
	if err == nil {
		err = json.Unmarshal(text, &of)
	}
	switch {
	case err != nil:
		return of, fmt.Errorf("agents: this is no token of an attempt: %w", err)
	case !events.ValidTopic(of.ReplyTo) || of.Order == "":
		return of, errors.New("agents: this is no token of an attempt")
	case !time.Now().Before(of.over()): // A4
		return of, fmt.Errorf("agents: step %s of order %q, attempt %d: %w since %s", of.Step, of.Order, of.Attempt, ErrOver, of.over().Format(time.RFC3339))
	case reply.Status == events.ReplyProgress && of.ExtendTo.IsZero():
		return of, fmt.Errorf("agents: step %s of order %q: %w", of.Step, of.Order, ErrNotExtendable)
	}
	value, err := of.write(&reply)
	if err == nil {
		err = a.client.ProduceSync(ctx, a.replies.enclose(&of, value)).FirstErr()
	}
	if err != nil {
		return of, fmt.Errorf("agents: answer step %s of order %q: %w", of.Step, of.Order, err)
	}
	return of, nil
}
