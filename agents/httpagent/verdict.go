package httpagent

import "strconv"

// verdict is what an answer means for the step.
type verdict string

const (
	success   verdict = "success"
	transient verdict = "transient" // it may heal by itself
	permanent verdict = "permanent" // it cannot (A5)
)

// answerNetwork stands for the lack of an answer.
const answerNetwork = "network"

// verdicts are a file's exceptions from the rules, by a status, a class of them
// such as 5xx, or network.
type verdicts map[string]verdict

// on returns what a status means: a 2xx is a success, a 5xx or 429 may heal, and
// anything else cannot.
func (v verdicts) on(status int) verdict {
	if given, ok := v[strconv.Itoa(status)]; ok {
		return given
	}
	if given, ok := v[strconv.Itoa(status/100)+"xx"]; ok {
		return given
	}
	switch {
	case status/100 == 2:
		return success
	case status/100 == 5, status == 429:
		return transient
	}
	return permanent
}

// onNone returns what it means that no answer could be had.
func (v verdicts) onNone() verdict {
	if given, ok := v[answerNetwork]; ok {
		return given
	}
	return transient
}
