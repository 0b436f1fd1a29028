package console

import (
	"cmp"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// zoneSuffix is behind the name of the cookie that says in which zone the times of pages are.
const zoneSuffix = "-zone"

// zone is that in which a browser has times shown.
func (c *Console) zone(r *http.Request) *time.Location {
	if kept, err := r.Cookie(c.name(r) + zoneSuffix); err == nil {
		if zone, err := zoneOf(kept.Value); err == nil {
			return zone
		}
	}
	return time.UTC
}

// zoneOf is a zone by its name. That of the server's machine is none of them: nobody who looks at a page knows it.
func zoneOf(name string) (*time.Location, error) {
	if zone, err := time.LoadLocation(name); err == nil && name != "" && name != "Local" && name != "localtime" {
		return zone, nil
	}
	return nil, unfit("There is no time zone %s. Write one as the IANA calls it, such as Europe/Berlin, or UTC.", strconv.Quote(name[:min(len(name), 64)]))
}

// setZone has a browser keep in which zone it has times shown.
func (c *Console) setZone(v *visit) (*view, error) {
	zone, err := zoneOf(cmp.Or(v.value("here"), v.value("zone")))
	if err != nil {
		return nil, err
	}
	return &view{to: v.back(c.base), keeps: &kept{zoneSuffix, zone.String()}}, nil
}

// timeIn reads a time, of a zone unless it says its own. One that its clocks never show, or twice, is none.
func timeIn(text string, zone *time.Location) (at time.Time, err error) {
	for _, form := range []string{time.RFC3339, "2006-01-02 15:04", "2006-01-02 15:04:05", "2006-01-02T15:04", "2006-01-02T15:04:05"} {
		if at, err = time.ParseInLocation(form, text, zone); err != nil {
			continue
		}
		if form == time.RFC3339 {
			return at, nil
		}
		if at.Format(form) != text {
			return at, fmt.Errorf("the clocks of %s never show %s: they are set forward then", zone, text)
		}
		for _, other := range []time.Duration{-time.Hour, time.Hour, -30 * time.Minute, 30 * time.Minute, -2 * time.Hour, 2 * time.Hour} { // as far as clocks are set back
			if at.Add(other).Format(form) == text {
				return at, fmt.Errorf("the clocks of %s show %s twice: write it with its offset, such as %s", zone, text, at.Format(time.RFC3339))
			}
		}
		return at, nil
	}
	return at, err
}
