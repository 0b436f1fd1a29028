package events

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Check says in what e is not as its type has it: a field is missing, or there is
// one that such an event does not carry. It is for tests and tools: what is in a
// journal is read as it is.
func (e *Event) Check() error {
	carried := carries[e.Type]
	if carried == nil {
		return fmt.Errorf("there is no type of events %q", e.Type)
	}
	value := reflect.ValueOf(e).Elem()
	for i, when := range carried {
		if when == maybe {
			continue
		}
		switch set := !value.Field(i).IsZero(); {
		case when == always && !set:
			return fmt.Errorf("%s has no %s", e.Type, fields[i])
		case when == never && set:
			return fmt.Errorf("%s carries no %s, and has one", e.Type, fields[i])
		}
	}
	return nil
}

type carrying uint8

const (
	never carrying = iota
	maybe
	always
)

// fields are the names in JSON of an event's fields, in their order.
var fields = func() (all []string) {
	for field := range reflect.TypeFor[Event]().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		all = append(all, name)
	}
	return all
}()

// carries says of each type which of the fields it carries: [Specs], ready to be
// looked up.
var carries = func() map[Type][]carrying {
	all := make(map[Type][]carrying, len(Specs))
	for _, spec := range Specs {
		must, may := spec.Fields()
		must = append(must, "type", "at")
		if !spec.OfPartition {
			must = append(must, "order", "seq")
		}
		carried := make([]carrying, len(fields))
		for i, name := range fields {
			switch {
			case slices.Contains(must, name):
				carried[i] = always
			case slices.Contains(may, name):
				carried[i] = maybe
			}
		}
		all[spec.Type] = carried
	}
	return all
}()
