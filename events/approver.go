package events

import "strings"

// approverRole is how the roles begin of those who may decide.
const approverRole = "approver/"

// MaxSubmitters is of how many others an order knows that they submitted those that it does again.
const MaxSubmitters = 32

// ApproverRole is a role of those who may decide, as [Actor] has it.
func ApproverRole(name string) string { return approverRole + name }

// Approver is the name of such a role, "" of any other.
func Approver(role string) string {
	name, is := strings.CutPrefix(role, approverRole)
	if !is {
		return ""
	}
	return name
}
