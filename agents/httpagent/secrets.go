package httpagent

import (
	"cmp"
	"net/url"
	"slices"
	"strings"
)

// shortestSecret is the length from which values of the environment are hidden.
// Shorter ones would make holes in ordinary text, and keep nothing secret.
const shortestSecret = 4

// hide returns what removes secrets from text, also as URLs and JSON have them.
func hide(secrets []string) *strings.Replacer {
	var forms []string
	for _, secret := range secrets {
		if len(secret) >= shortestSecret {
			quoted := strings.Trim(string(text(secret)), `"`)
			forms = append(forms, secret, url.PathEscape(secret), url.QueryEscape(secret), quoted)
		}
	}
	// The first that matches is taken: one secret may start with another.
	slices.SortFunc(forms, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), strings.Compare(a, b)) })
	forms = slices.DeleteFunc(slices.Compact(forms), func(form string) bool { return form == "" })
	pairs := make([]string, 0, 2*len(forms))
	for _, form := range forms {
		pairs = append(pairs, form, "***")
	}
	return strings.NewReplacer(pairs...)
}
