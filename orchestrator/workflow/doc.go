// Package workflow is the language in which workflows are defined: a YAML file
// that names steps, the agents that do them, how long each may take and what
// happens when one does not succeed.
//
//	workflow: order-fulfilment
//	version: 1
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
//
// [Parse] reads such a file and returns either a complete, validated
// [Workflow] or every problem in the file with its line and column. The plays
// under testdata show the whole language, good files and refused ones.
//
// The language is a subset of YAML: one document, no anchors, aliases, merge
// keys, tags, directives, block text or keys without a value. JSON is
// accepted, and is the canonical form (see [Workflow.MarshalJSON]).
//
// The package is pure: it reads no file and no clock and starts no goroutine.
// Its functions may be called by several goroutines at once.
package workflow
