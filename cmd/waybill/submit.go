package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/internal/words"
	"github.com/waybill-dev/waybill/projections"
)

func newSubmit() *cobra.Command {
	var s api.Submission
	var input, deadline string
	var labels []string
	var wait bool
	var timeout time.Duration
	priority := oneOf{allowed: []string{"high", "normal", "low"}}
	cmd := &cobra.Command{
		Use:   "submit WORKFLOW[@VERSION]",
		Short: "Submit an order",
		Long: `Submits an order and prints its id. With --wait it follows the order until it is
final or waits for an operator, prints it, and exits with 0 only if it was
Processed, with 7 if not, and with 8 if --timeout has passed before.

Submitting the same again under its id changes nothing, so a call that failed can
be repeated with the same --id: the error names it where the order may have been taken.
Without an --id each call is another order. An id that is another submission's is an error.
A call that is to be repeated needs a time as its --deadline: +2h is another one each time.`,
		Example: `  waybill submit order-fulfilment --input '{"customer":"c-7","total":42}' --wait
  waybill submit order-fulfilment@1 --id o-1 --input @order.json
  waybill submit order-fulfilment --label region=eu --label campaign=spring
  echo '{}' | waybill submit order-fulfilment --input -`,
		Args: takes(one),
	}
	flags := cmd.Flags()
	flags.StringVar(&s.ID, "id", "", "order id (default: a new one)")
	flags.IntVar(&s.Version, "version", 0, "version of the workflow (default: the newest)")
	flags.StringVar(&input, "input", "", "what the agents work on: JSON, @FILE, or - for standard input")
	flags.StringVar(&s.ReplyTo, "reply-to", "", "topic for status messages (default: <namespace>.status)")
	flags.Var(&priority, "priority", "which orders go first when agents are short")
	flags.StringVar(&deadline, "deadline", "", "when the order must be done: a time such as 2030-01-02T15:04:05Z, or from now on such as +2h")
	flags.StringArrayVar(&labels, "label", nil, "what the order is found by, as NAME=VALUE, besides what its workflow says in search; at most 16")
	flags.BoolVar(&wait, "wait", false, "follow the order to its end")
	flags.DurationVar(&timeout, "timeout", 0, "how long to --wait (default: without end)")
	onlyByFlag(flags, "id", "version", "input", "deadline", "label", "wait")
	server := addServer(flags)
	out := addOutput(flags, "$.orderId")

	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		s.Priority = events.Priority(priority.value)
		if err := nameWorkflow(&s, args[0]); err != nil {
			return err
		}
		var err error
		if s.Deadline, err = readDeadline(deadline); err != nil {
			return err
		}
		if s.ID, err = newID(s.ID); err != nil { // known here, so that whoever hears no more can repeat it, or knows what to look for
			return err
		}
		if s.Labels, err = readLabels(labels); err != nil {
			return usageError{fmt.Errorf("--label: %w", err)}
		}
		if cmd.Flags().Changed("input") {
			value, err := readJSON("--input", input, cmd.InOrStdin())
			if err != nil {
				return err
			}
			s.Input = json.RawMessage(value)
		}
		return server.talk(func(client *api.Client) error {
			id := s.ID
			send := func(ctx context.Context) (err error) {
				id, err = client.Submit(ctx, &s)
				return err
			}
			sent := &sending{s.ID, s.Deadline, send, s.Made}
			if wait {
				return submitAndWait(cmd, client, sent, timeout, out)
			}
			if err := send(cmd.Context()); err != nil {
				return sent.told(1, err)
			}
			return out.print(cmd, api.Receipt{OrderID: id}, func(row func(...any)) { row(id) })
		})
	}
	return cmd
}

// readLabels reads NAME=VALUE, each name once.
func readLabels(all []string) (map[string]string, error) {
	labels := make(map[string]string, len(all))
	for _, text := range all {
		name, value, ok := strings.Cut(text, "=")
		if !ok {
			return nil, fmt.Errorf("%q: write NAME=VALUE", text)
		}
		if _, twice := labels[name]; twice {
			return nil, fmt.Errorf("%s is given twice; an order has one value of a name", name)
		}
		labels[name] = value
	}
	return labels, events.CheckLabels(labels)
}

// nameWorkflow reads WORKFLOW[@VERSION].
func nameWorkflow(s *api.Submission, arg string) error {
	name, version, found := strings.Cut(arg, "@")
	if name == "" {
		return usageError{errors.New("the name of the workflow is empty")}
	}
	s.Workflow = name
	if !found {
		return nil
	}
	n, err := strconv.Atoi(version)
	if err != nil || n < 1 {
		return usageError{fmt.Errorf("%q: behind the @ stands a version, 1 or more", arg)}
	}
	if s.Version != 0 && s.Version != n {
		return usageError{fmt.Errorf("%q and --version %d name different versions", arg, s.Version)}
	}
	s.Version = n
	return nil
}

// newID is the id of an order that is submitted: the one that is given, or a new one.
func newID(given string) (string, error) {
	if given == "" {
		return events.NewOrderID()
	}
	if err := events.CheckOrderID(given); err != nil {
		return "", usageError{fmt.Errorf("--id: %w", err)}
	}
	return given, nil
}

// sending is an order that is submitted.
type sending struct {
	id       string
	deadline *time.Time // nil for none
	send     func(context.Context) error
	made     func(*api.Order) bool // whether this submission made the order of its id
}

// told says, behind the error of the n-th attempt, how to ask for the same order again where it may have been taken.
func (s *sending) told(n int, err error) error {
	if !unsure(n, err) {
		return err
	}
	return s.again(err)
}

// again says behind an error how to ask for the same order again.
func (s *sending) again(err error) error {
	flags := "--id " + words.Clean(s.id)
	if s.deadline != nil { // from now on would be another time
		flags += " --deadline " + s.deadline.UTC().Format(time.RFC3339Nano)
	}
	return fmt.Errorf("%w; asked for again with %s it is one order", err, flags)
}

func submitAndWait(cmd *cobra.Command, client *api.Client, s *sending, timeout time.Duration, out *output) error {
	ctx := cmd.Context()
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	if err := submitSurely(ctx, s); err != nil {
		return stopped(ctx, err)
	}
	o, err := follow(ctx, client, s.id, stands, nil)
	if errors.As(err, new(*api.Problem)) {
		return fmt.Errorf("order %s was submitted, and cannot be followed: %w", words.Clean(s.id), err)
	}
	if err != nil {
		return err
	}
	if !s.made(o) {
		return fmt.Errorf("order %s was made by another submission, and this one changed nothing; choose another --id", words.Clean(s.id))
	}
	if err := printOrder(cmd, out, o); err != nil {
		return err
	}
	return isNot(o, projections.Processed)
}

// stopped says of an error whether it is one because ctx has ended.
func stopped(ctx context.Context, err error) error {
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return lateError{err}
	case ctx.Err() != nil:
		return stoppedError{err}
	}
	return err
}

// submitSurely submits again when the server went away in between, or takes nothing
// now: submitting an id again changes nothing. If it gives up, the error says how to go on.
func submitSurely(ctx context.Context, s *sending) error {
	const attempts = 50
	for n := 1; ; n++ {
		err := s.send(ctx)
		pause := 200 * time.Millisecond
		var problem *api.Problem
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil, n == attempts:
			return s.again(err)
		case n == 1 && errors.Is(err, api.ErrAway):
			return err // it was never there
		case !errors.As(err, &problem):
		case problem.Status != http.StatusServiceUnavailable && problem.Status != http.StatusTooManyRequests && !fromProxy(problem):
			return err
		default:
			pause = max(pause, problem.RetryAfter)
		}
		select {
		case <-ctx.Done():
			return s.again(err)
		case <-time.After(pause):
		}
	}
}

// stands says that an order goes on by itself no more: it is final, or waits for an operator, as far as
// the server knows also where that is about an order that does a step of it.
func stands(o *api.Order) bool {
	return o.ProcessState.Final() || o.ProcessState == projections.Error || inErrorBelow(o) != ""
}

// inErrorBelow is an order that does a step of one, and waits for an operator; "" if none does.
func inErrorBelow(o *api.Order) string {
	for i := range o.Steps {
		if c := o.Steps[i].Child; c != nil && c.ProcessState != nil && *c.ProcessState == projections.Error {
			return c.Order
		}
	}
	return ""
}

// passes says that another answer may come later to who asks for an order: it is not there yet, or
// elsewhere for a moment, or its server restarts.
func passes(err error) bool {
	var problem *api.Problem
	if !errors.As(err, &problem) {
		return true
	}
	switch problem.Status {
	case http.StatusNotFound, http.StatusMisdirectedRequest, http.StatusTooManyRequests:
		return true
	}
	return problem.Status >= 500
}

// fromProxy says that a proxy answers, which reaches no server, or has no answer of one that may have done what it was
// asked for.
func fromProxy(p *api.Problem) bool {
	return p.Status == http.StatusBadGateway || p.Status == http.StatusGatewayTimeout
}

// mayCome says of the first error of who asks for an order whether to go on: who is going to wait for
// it learns that no server is there, and is told of an order that may never be.
func mayCome(cmd *cobra.Command, id string, err error) error {
	var problem *api.Problem
	switch {
	case errors.As(err, &problem) && problem.Status == http.StatusNotFound:
		fmt.Fprintf(cmd.ErrOrStderr(), "There is no order %s yet; it is waited for.\n", words.Clean(id))
	case !errors.As(err, &problem), fromProxy(problem):
		return err
	}
	return nil
}

// follow asks for the order until it is as it is wanted. An order that is
// not there yet and a server that restarts are waited for, unless an error of the first
// question ends that.
func follow(ctx context.Context, client *api.Client, id string, wanted func(*api.Order) bool, ends func(error) error) (*api.Order, error) {
	seen := "nothing was seen of it since"
	for pause := 5 * time.Millisecond; ; pause = min(pause*3/2, 500*time.Millisecond) {
		o, err := client.Order(ctx, id)
		if err != nil && ends != nil && ctx.Err() == nil {
			if end := ends(err); end != nil {
				return nil, end
			}
		}
		ends = nil
		var problem *api.Problem
		switch {
		case err == nil && wanted(o):
			return o, nil
		case err == nil:
			seen = "it was " + string(o.ProcessState)
		case ctx.Err() != nil: // told below
		case errors.As(err, &problem) && problem.Status == http.StatusNotFound:
			seen = "it was not accepted yet"
		case !passes(err):
			return nil, err
		default:
			seen = err.Error()
		}
		select {
		case <-ctx.Done():
			return nil, stopped(ctx, fmt.Errorf("gave up waiting for order %s; %s; see `waybill order get`", words.Clean(id), seen))
		case <-time.After(pause):
		}
	}
}
