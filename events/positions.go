package events

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Positions are the next offsets of a partition's inputs, by their names. Not all
// need be known: a release that did not read an input yet says nothing of it, and
// none is known of a partition that has no journal.
type Positions struct { //nolint:recvcheck // a value prints itself, and only a pointer can be read into
	// next is one more than the offset, so that zero is none.
	next [len(inputs)]int64
	// added are the positions in partitions that somebody added to the inputs, as
	// their JSON has them, in order: nearly always there are none, and positions can
	// be compared so.
	added string
	// newer has the members of inputs that this release does not know, as they were
	// read.
	newer string
}

// At returns where reading of an input goes on, -1 if that is not known.
func (p *Positions) At(in Input) int64 { return p.next[in] - 1 }

// Set says where reading of an input goes on.
func (p *Positions) Set(in Input, offset int64) { p.next[in] = offset + 1 }

// Over returns the positions, and those of before where p knows none. An older
// release may have sealed transactions after a newer one, and knew of fewer inputs:
// how far these were read is what was said last.
func (p Positions) Over(before Positions) Positions {
	for in, next := range p.next {
		if next == 0 {
			p.next[in] = before.next[in]
		}
	}
	if before.added != "" {
		added := p.Added()
		p.added = before.added
		p.put(added)
	}
	if p.newer == "" {
		p.newer = before.newer
	}
	return p
}

// In are those of the inputs that partitions in a format read.
func (p Positions) In(format int) Positions {
	added := slices.DeleteFunc(p.Added(), func(a Added) bool { return a.Input.Since() > format })
	p.added = ""
	p.put(added)
	for in := range p.next {
		if Input(in).Since() > format {
			p.next[in] = 0
		}
	}
	return p
}

// Added is where reading goes on in a partition that somebody added to an input.
type Added struct {
	Input     Input
	Partition int32
	Next      int64
}

// Added are the positions in added partitions, in order.
func (p *Positions) Added() (all []Added) {
	if p.added == "" {
		return nil
	}
	for member := range strings.SplitSeq(p.added, ",") {
		name, next, _ := strings.Cut(member, `":`)
		in, partition, _ := addedName(name[1:])
		offset, _ := strconv.ParseInt(next, 10, 64) // as put wrote it
		all = append(all, Added{in, partition, offset})
	}
	return all
}

// place compares where two are, and not how far they are read.
func (a Added) place(b Added) int {
	return cmp.Or(cmp.Compare(a.Input, b.Input), cmp.Compare(a.Partition, b.Partition))
}

// addedName reads the name of such a position: orders/12.
func addedName(name string) (in Input, partition int32, ok bool) {
	topic, number, _ := strings.Cut(name, "/")
	n, err := strconv.ParseUint(number, 10, 31)
	i := slices.Index(inputs[:], topic)
	return Input(i), int32(n), i >= 0 && err == nil && strconv.FormatUint(n, 10) == number
}

// Of returns where reading goes on in a partition that was added to an input, -1 if
// that is not known.
func (p *Positions) Of(in Input, partition int32) int64 {
	for _, a := range p.Added() {
		if a.Input == in && a.Partition == partition {
			return a.Next
		}
	}
	return -1
}

// SetOf says where reading goes on there.
func (p *Positions) SetOf(in Input, partition int32, offset int64) {
	p.put([]Added{{in, partition, offset}})
}

// put says so of many, which are in order, each once.
func (p *Positions) put(these []Added) {
	var text []byte
	write := func(a Added) { text = fmt.Appendf(text, `"%s/%d":%d,`, inputs[a.Input], a.Partition, a.Next) }
	for _, a := range p.Added() {
		for len(these) > 0 && these[0].place(a) < 0 {
			write(these[0])
			these = these[1:]
		}
		if len(these) == 0 || these[0].place(a) != 0 {
			write(a)
		}
	}
	for _, a := range these {
		write(a)
	}
	p.added = strings.TrimSuffix(string(text), ",")
}

// All says whether the positions of all inputs are known.
func (p *Positions) All() bool {
	for _, next := range p.next {
		if next == 0 {
			return false
		}
	}
	return true
}

// Newer are the positions of inputs that this release does not know, as JSON; ""
// if there are none.
func (p *Positions) Newer() string { return p.newer }

// Append appends the positions' JSON.
func (p *Positions) Append(dst []byte) []byte {
	dst = append(dst, '{')
	begun := len(dst)
	for in, next := range p.next {
		if next != 0 {
			dst = append(append(append(dst, '"'), inputs[in]...), `":`...)
			dst = append(strconv.AppendInt(dst, next-1, 10), ',')
		}
	}
	for _, members := range []string{p.added, p.newer} {
		if members != "" {
			dst = append(append(dst, members...), ',')
		}
	}
	if len(dst) > begun {
		dst = dst[:len(dst)-1]
	}
	return append(dst, '}')
}

func (p Positions) String() string { return string(p.Append(nil)) }

// UnmarshalJSONFrom reads what [Positions.Append] wrote, in this release or in
// another.
func (p *Positions) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	*p = Positions{}
	if d.PeekKind() != '{' {
		return errors.New("positions are an object")
	}
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	var added []Added
	for d.PeekKind() != '}' {
		if err := p.member(d, &added); err != nil {
			return err
		}
	}
	if len(added) > 0 {
		slices.Reverse(added) // of what is there twice the last counts
		slices.SortStableFunc(added, Added.place)
		p.put(slices.CompactFunc(added, func(a, b Added) bool { return a.place(b) == 0 }))
	}
	_, err := d.ReadToken()
	return err
}

// member reads a name and its offset.
func (p *Positions) member(d *jsontext.Decoder, added *[]Added) error {
	read, err := d.ReadValue()
	if err != nil {
		return err
	}
	var room [32]byte // longer than any name
	raw := append(room[:0], read...)
	value, err := d.ReadValue()
	if err != nil {
		return err
	}
	for in, name := range inputs {
		if string(raw[1:len(raw)-1]) != name {
			continue
		}
		offset, err := strconv.ParseUint(string(value), 10, 63)
		if err != nil {
			return fmt.Errorf("the position in the %s is %s", name, value)
		}
		p.Set(Input(in), int64(offset))
		return nil
	}
	if in, partition, ok := addedName(string(raw[1 : len(raw)-1])); ok {
		offset, err := strconv.ParseUint(string(value), 10, 63)
		if err != nil {
			return fmt.Errorf("the position in partition %d of the %s is %s", partition, inputs[in], value)
		}
		*added = append(*added, Added{in, partition, int64(offset)})
		return nil
	}
	if p.newer != "" {
		p.newer += ","
	}
	p.newer += string(raw) + ":" + string(value)
	return nil
}
