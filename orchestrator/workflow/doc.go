// Package workflow is the language in which workflows are defined: a YAML file
// that names steps, the agents that do them, how long each may take and what
// happens when one does not succeed.
//
//	workflow: order-fulfilment
//	version: 1
//	input: {type: object, required: [items, total]}   # a JSON Schema
//	steps:                      # each after the one above, unless `after` says otherwise
//	  - name: reserve
//	    agent: inventory
//	    undo: release
//	    timeout: 10s
//	    retry: {attempts: 3, backoff: 1s, multiplier: 2, max: 30s}
//	    exhausted: compensate
//	  - name: charge
//	    agent: payment
//	    undo: refund
//	    when: input.total > 0                         # expressions of CEL
//	    with: '{"amount": input.total, "reservation": steps.reserve.output.id}'
//
// [Parse] reads such a file and returns either a complete, validated
// [Workflow] or every problem in the file with its line and column. The plays
// under testdata show the whole language, good files and refused ones.
//
// The language is a subset of YAML: one document, no anchors, aliases, merge
// keys, tags, directives, keys without a value or, but for expressions, block
// text. JSON is accepted, and is the canonical form (see
// [Workflow.MarshalJSON]).
//
// What depends on an order is asked of a Workflow: [Workflow.CheckInput]
// whether its input is as the file wants it, an [Expression] whether a step
// runs and what its agent gets. Whoever asks records the answer: it need not be
// the same again. Inputs come from anybody, and both end soon whatever they
// hold; files come from people who mean well.
//
// The package reads no file and starts no goroutine. Its functions may be
// called by several goroutines at once.
package workflow
