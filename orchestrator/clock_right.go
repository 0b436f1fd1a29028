//go:build !clockoffset

package orchestrator

const clockOffset = 0
