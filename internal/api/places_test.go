package api

import (
	"encoding/base64"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/projections"
)

// Where a page ends is said as it is, also between two milliseconds, where no order is named.
func TestPlacesOfPages(t *testing.T) {
	at := time.UnixMilli(1_767_225_600_123)
	for _, place := range []projections.OpenPlace{{At: at, Order: "o-1"}, {At: at, Order: "a/b"}, {At: at}} {
		text := cursor(&place)
		got, err := readPlace(text)
		if err != nil || !got.At.Equal(at) || got.Order != place.Order {
			t.Errorf("%+v is %s, which is read as %+v, %v", place, text, got, err)
		}
	}
	for _, text := range []string{"?", "MQ", base64.RawURLEncoding.EncodeToString([]byte("/o-1")), base64.RawURLEncoding.EncodeToString([]byte("99999999999999999999/o-1"))} {
		if got, err := readPlace(text); err == nil {
			t.Errorf("%s is read as %+v", text, got)
		}
	}
}

// A request for approvals goes on over pages of orders of which none is asked for, and ends once it has looked at enough,
// whatever of that is visible.
func TestWhatOneRequestForApprovalsLooksAt(t *testing.T) {
	const limit = 2
	for name, c := range map[string]struct {
		visible, hidden int // of each page
		found           int // of each order
		reads, looks    int // that are wanted
	}{
		"all are asked for":                    {limit, 0, 1, 1, limit},
		"none of what is visible is asked for": {limit, 0, 0, maxLooked / limit, maxLooked},
		"and much is not visible":              {limit, maxLooked/2 - limit, 0, 2, maxLooked},
		"a page has cost enough, with one":     {1, 10, 1, 1, 11},
		"with none":                            {0, maxLooked, 0, 1, maxLooked},
		"with none, as records are large":      {0, 3, 0, 1, 3},
	} {
		reads, looked := 0, 0
		next, err := gather(nil, limit, func(after *projections.OpenPlace) (projections.OpenPage, error) {
			if want := fmt.Sprint(reads); reads > 0 && after.Order != want {
				t.Errorf("%s: it goes on behind %q, and not %q", name, after.Order, want)
			}
			reads++
			page := projections.OpenPage{Next: &projections.OpenPlace{Order: fmt.Sprint(reads)}, Looked: c.visible + c.hidden}
			for range c.visible {
				page.Orders = append(page.Orders, &projections.Order{ID: fmt.Sprint(reads)})
			}
			looked += page.Looked
			return page, nil
		}, func(*projections.Order) (int, int, error) { return c.found, 0, nil })
		if err != nil || next == nil || next.Order != fmt.Sprint(reads) || !slices.Equal([]int{reads, looked}, []int{c.reads, c.looks}) {
			t.Errorf("%s: %d pages of %d orders were read, the next is behind %v, %v", name, reads, looked, next, err)
		}
	}
}
