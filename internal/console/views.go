package console

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode"

	"github.com/waybill-dev/waybill/internal/api"
)

// viewsSuffix is behind the name of the cookie that has the views of a browser: filters of orders, by names that
// somebody gave them. They are the browser's, as bookmarks are: no instance keeps anything of who looks, and another
// browser gets one by its address.
const viewsSuffix = "-views"

// How many views a browser keeps, how long their names are, in characters, and how large all of them, in bytes: a
// browser throws a cookie away that is larger than 4096, and says nothing.
const (
	maxViews    = 20
	maxViewName = 60
	maxAllViews = 3000
)

// savedView is a link to a list.
type savedView struct {
	Name, Path string
	Here       bool // it is the list that is shown
}

// filter is what a list of orders, or a form, asks for, also as it stands in the list's address.
func (v *visit) filter() (f api.Filter, pairs []string) {
	f = api.Filter{State: v.value("state"), Workflow: v.value("workflow"), Step: v.value("step")}
	pairs = []string{"state", f.State, "workflow", f.Workflow, "step", f.Step}
	for _, where := range v.Form["where"] {
		if where = strings.TrimSpace(where); where != "" {
			f.Where = append(f.Where, where)
			pairs = append(pairs, "where", where)
		}
	}
	return f, pairs
}

// views are the filters that a browser keeps, by their names. What a browser should not have is not among them.
func (c *Console) views(r *http.Request) url.Values {
	all := make(url.Values)
	cookie, err := r.Cookie(c.name(r) + viewsSuffix)
	if err != nil {
		return all
	}
	kept, err := url.ParseQuery(cookie.Value)
	if err != nil {
		return all
	}
	for name, queries := range kept {
		if _, err := url.ParseQuery(queries[0]); err == nil && queries[0] != "" && len(all) < maxViews {
			all.Set(name, queries[0])
		}
	}
	return all
}

// savedViews are links to the lists that a browser keeps.
func (c *Console) savedViews(v *visit, here []string) (all []savedView) {
	views := c.views(v.Request)
	for _, name := range slices.Sorted(maps.Keys(views)) {
		path := "/orders?" + views.Get(name)
		all = append(all, savedView{name, c.base + path, path == link("/orders", here...)})
	}
	return all
}

// saveView has a browser keep a filter under a name.
func (c *Console) saveView(v *visit) (*view, error) {
	name := v.value("name")
	_, pairs := v.filter()
	path, views := link("/orders", pairs...), c.views(v.Request)
	_, query, filtered := strings.Cut(path, "?")
	switch {
	case !filtered:
		return nil, unfit("Nothing is filtered, and the list of all orders needs no view. Filter first.")
	case name == "" || len([]rune(name)) > maxViewName || strings.ContainsFunc(name, unicode.IsControl):
		return nil, unfit("A view has a name of 1 to %d characters, on one line.", maxViewName)
	case views.Get(name) == "" && len(views) >= maxViews:
		return nil, unfit("A browser keeps %d views, and has as many. Remove one first.", maxViews)
	}
	views.Set(name, query)
	all := views.Encode()
	if len(all) > maxAllViews {
		return nil, unfit("A browser keeps no more than %d bytes of views. Remove one first, or keep the list as a bookmark.", maxAllViews)
	}
	return &view{to: path, done: "view", keeps: &kept{viewsSuffix, all}}, nil
}

// removeView has a browser keep a filter no more. The list stays what it is.
func (c *Console) removeView(v *visit) (*view, error) {
	views, name := c.views(v.Request), v.value("name")
	if !views.Has(name) {
		return nil, missing("This browser keeps no view %s.", fmt.Sprintf("%q", name))
	}
	views.Del(name)
	_, pairs := v.filter()
	return &view{to: link("/orders", pairs...), done: "no-view", keeps: &kept{viewsSuffix, views.Encode()}}, nil
}
