package projections

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/cockroachdb/pebble/v2"
)

// Orders are found by their labels. The index of each name and value has them as the listing
// has them: by workflow, newest first, so that several such lists can be gone through side by
// side, and workflows that are not visible be passed over.

// labels writes what the order is found by.
func (w *writer) labels(o *Order) {
	w.uint(uint64(len(o.Labels)))
	for _, name := range names(o.Labels) {
		w.text(name)
		w.text(o.Labels[name])
	}
}

// labels reads what the writer's labels wrote.
func (r *reader) labels(o *Order) {
	n := r.count()
	if n > 0 {
		o.Labels = make(map[string]string, n)
	}
	for range n {
		name := r.text()
		o.Labels[name] = r.text()
	}
}

func labelPrefix(partition int32, name, value string) []byte {
	k := appendPrefix(make([]byte, 0, 128), partition, kindLabel)
	k = append(append(k, name...), 0)
	return append(append(k, value...), 0)
}

// labelPlace is where the order stands in the list of each of its labels.
func labelPlace(o *Order) []byte {
	k := append([]byte(o.Workflow), 0)
	k = binary.BigEndian.AppendUint64(k, ^uint64(o.AcceptedAt.UnixMilli()))
	return append(k, o.ID...)
}

// splitLabelPlace takes such a place apart. A workflow of which an order was accepted has no NUL.
func splitLabelPlace(place []byte) (workflow, id string, ok bool) {
	nul := bytes.IndexByte(place, 0)
	if nul < 0 || len(place) < nul+1+8 {
		return "", "", false
	}
	return string(place[:nul]), string(place[nul+1+8:]), true
}

// indexLabels moves an order in the index of labels.
func indexLabels(b *pebble.Batch, partition int32, o, old *Order) error {
	for name, value := range old.Labels {
		if now, has := o.Labels[name]; has && now == value {
			continue
		}
		if err := b.Delete(append(labelPrefix(partition, name, value), labelPlace(old)...), nil); err != nil {
			return err
		}
	}
	for name, value := range o.Labels {
		if before, had := old.Labels[name]; had && before == value {
			continue
		}
		if err := b.Set(append(labelPrefix(partition, name, value), labelPlace(o)...), nil, nil); err != nil {
			return err
		}
	}
	return nil
}

// find adds to the page the orders of a partition that have all labels of the filter. Of the
// lists of several labels it goes on in each where the others have got to: what it costs goes by
// the shortest, and not by those that one label alone would find.
func (r *summaries) find(ctx context.Context, p int32, it *pebble.Iterator, f *Filter, page *Page) (full bool, _ error) {
	var lists [][]byte
	for _, name := range slices.Sorted(maps.Keys(f.Labels)) {
		lists = append(lists, labelPrefix(p, name, f.Labels[name]))
	}
	var place []byte // that comes next, in any of them
	if f.Workflow != "" {
		place = append([]byte(f.Workflow), 0)
	}
	within := place
	switch from := slices.Concat(lists[0], place); {
	case bytes.Compare(f.After, after(from)) >= 0:
		return false, nil
	case bytes.Compare(f.After, from) > 0:
		place = f.After[len(lists[0]):]
	}
	it.SetBounds(prefix(p, kindLabel), after(prefix(p, kindLabel)))
	for n, agree := 0, 0; ; n++ { // so many of the lists before have the place
		if err := ctx.Err(); err != nil {
			return false, err
		}
		list := lists[n%len(lists)]
		if !it.SeekGE(slices.Concat(list, place)) || !bytes.HasPrefix(it.Key(), slices.Concat(list, within)) {
			if err := it.Error(); err != nil {
				return false, damage(err)
			}
			return false, nil
		}
		have := bytes.Clone(it.Key()[len(list):])
		workflow, id, ok := splitLabelPlace(have)
		if !ok {
			return false, fmt.Errorf("%w: label key %x", errDamaged, it.Key())
		}
		if f.Visible != nil && !f.Visible(workflow) {
			place, agree = after(append([]byte(workflow), 0)), 0
			continue
		}
		if r.enough() {
			page.Next = slices.Concat(lists[0], have)
			return true, nil
		}
		r.keys++
		if agree == 0 || !bytes.Equal(have, place) {
			place, agree = have, 0
		}
		if agree++; agree < len(lists) {
			continue
		}
		if len(page.Orders) == f.Limit {
			page.Next = slices.Concat(lists[0], have)
			return true, nil
		}
		o, err := r.order(p, id)
		if err != nil {
			return false, err
		}
		if !o.has(f.Labels) || !bytes.Equal(labelPlace(o), have) {
			return false, fmt.Errorf("%w: order %q is found by labels that it does not have", errDamaged, id)
		}
		if (f.State == "" || o.State == f.State) && f.looked(o) {
			page.Orders = append(page.Orders, o)
		}
		place, agree = append(bytes.Clone(have), 0), 0 // the first behind it
	}
}

// has says whether the order has all those labels.
func (o *Order) has(labels map[string]string) bool {
	for name, value := range labels {
		if is, has := o.Labels[name]; !has || is != value {
			return false
		}
	}
	return true
}
