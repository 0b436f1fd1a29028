package services

import (
	"fmt"
	"net/http"
)

// Carrier takes parcels.
//
//	POST /parcels   {"order":"o-1","to":"c-7"}   201 {"tracking":"trk-1","to":"c-7"}
//	GET  /parcels
//
// A call that repeats an Idempotency-Key is answered with 200 and the parcel of
// the first one. A parcel that left cannot be called back.
type Carrier struct {
	service
	parcels []*Parcel
	byKey   map[string]*Parcel
}

// Parcel is a parcel that left.
type Parcel struct {
	Tracking string `json:"tracking"`
	Order    string `json:"order"`
	To       string `json:"to,omitzero"`
	Key      string `json:"key"`
	// Calls is how many calls with the key came in, whatever became of them.
	Calls int `json:"calls"`
}

type parcelCall struct {
	Order string `json:"order"`
	To    string `json:"to"`
}

type shipped struct {
	Tracking string `json:"tracking"`
	To       string `json:"to,omitzero"`
}

// NewCarrier returns a carrier that is healthy.
func NewCarrier(config Config) *Carrier {
	c := &Carrier{byKey: make(map[string]*Parcel)}
	c.begin("carrier", config)
	c.mux.HandleFunc("POST /parcels", operate(&c.service, opParcel, result{
		http.StatusUnprocessableEntity, refusal{"no-route", "there is no route to this address"}, "refused the parcel for good: 422",
	}, c.parcel))
	c.mux.HandleFunc("GET /parcels", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, c.Parcels()) })
	return c
}

func (c *Carrier) parcel(key string, in parcelCall) result {
	if p := c.byKey[key]; p != nil {
		return result{http.StatusOK, shipped{p.Tracking, p.To}, fmt.Sprintf("knew the key %s: answered with %s again and booked nothing", key, p.Tracking)}
	}
	p := &Parcel{Tracking: fmt.Sprintf("trk-%d", len(c.parcels)+1), Order: in.Order, To: in.To, Key: key}
	c.parcels, c.byKey[key] = append(c.parcels, p), p
	return result{http.StatusCreated, shipped{p.Tracking, p.To}, "booked the parcel " + p.Tracking}
}

// Parcels returns all parcels in their order.
func (c *Carrier) Parcels() []Parcel {
	c.mu.Lock()
	defer c.mu.Unlock()
	parcels := make([]Parcel, 0, len(c.parcels))
	for _, p := range c.parcels {
		entry := *p
		entry.Calls = c.calls[p.Key]
		parcels = append(parcels, entry)
	}
	return parcels
}
