package console

import (
	"cmp"
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
	if zone, err := time.LoadLocation(name); err == nil && name != "" && name != "Local" {
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

// timeIn reads a time, of a zone unless it says its own.
func timeIn(text string, zone *time.Location) (at time.Time, err error) {
	for _, form := range []string{time.RFC3339, "2006-01-02 15:04", "2006-01-02 15:04:05", "2006-01-02T15:04", "2006-01-02T15:04:05"} {
		if at, err = time.ParseInLocation(form, text, zone); err == nil {
			return at, nil
		}
	}
	return at, err
}
