package console

// keyChoice is with which idempotency keys what failed is asked for again.
type keyChoice struct {
	Flag  string // of the command; "" is what is done where nobody chooses
	Title string
	Says  string // what that does: in full, for a form, and for who is about to confirm it
}

// keyChoices are all of them, the first is what is done where nobody chooses. It is decided by the rule of
// docs/messages.md#which-key-a-resubmission-takes.
var keyChoices = []keyChoice{
	{
		"", "As fits each step",
		"A step, or an undo, that its agent answered with an error for good, a permanent one or that of its last attempt, takes a new key, so that its service tries it anew; so do the items of a list that failed. All else keeps its key, so that its service recognises what it may have done; so does an undo of which an attempt was not answered.",
	},
	{
		"sameKey", "Those of before",
		"All that failed keeps its key: a service that remembers the key answers what it answered before, an error too. But the items of a list that failed are done anew.",
	},
	{
		"newKey", "New ones",
		"All that failed takes a new key: a service that did it without its answer being heard does it twice.",
	},
}

// keysSay is what a command does that has these flags.
func keysSay(sameKey, newKey bool) string {
	for _, c := range keyChoices {
		if sameKey && c.Flag == "sameKey" || newKey && c.Flag == "newKey" {
			return c.Says
		}
	}
	return keyChoices[0].Says
}

// keysField is the field of a form that has somebody choose; see [visit.keys].
func keysField() field {
	f := field{Name: "keys", Title: "Idempotency keys", Kind: "one of"}
	for _, c := range keyChoices {
		f.Options = append(f.Options, option{c.Flag, c.Title, c.Says})
	}
	return f
}

// keys is the flag that was chosen, "" for none. The flags by their own names count, too: so forms had them.
func (v *visit) keys() (flag string, _ error) {
	chosen := v.value("keys")
	for _, c := range keyChoices {
		if c.Flag == "" || c.Flag != chosen && !v.Form.Has(c.Flag) {
			continue
		}
		if flag != "" {
			return "", unfit("The idempotency keys of before are wanted, and new ones; choose one of the two.")
		}
		flag = c.Flag
	}
	if flag != chosen && chosen != "" {
		return "", unfit("The idempotency keys are none of those that can be chosen: %q.", chosen)
	}
	return flag, nil
}
