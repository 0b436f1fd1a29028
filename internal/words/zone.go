package words

import (
	"reflect"
	"time"

	"github.com/waybill-dev/waybill/internal/api"
)

// InZone has all times that value points to be those of a zone, which the words say then. They stay the same times.
func InZone(value any, zone *time.Location) { moveTo(reflect.ValueOf(value), zone) }

var timeType, plainType = reflect.TypeFor[api.Time](), reflect.TypeFor[time.Time]()

func moveTo(v reflect.Value, zone *time.Location) {
	if v.CanSet() && (v.Type() == timeType || v.Type() == plainType) {
		switch t := v.Addr().Interface().(type) {
		case *api.Time:
			t.Time = t.In(zone)
		case *time.Time:
			*t = t.In(zone)
		}
		return
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			moveTo(v.Elem(), zone)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				moveTo(v.Field(i), zone)
			}
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return
		}
		for i := range v.Len() {
			moveTo(v.Index(i), zone)
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			moveTo(v.MapIndex(key), zone)
		}
	}
}

// at is a time in its own zone, as Waybill writes it where that is UTC.
func at(t time.Time) string { return t.Format("2006-01-02T15:04:05.000Z07:00") }

// tick is the time of a tick, which is of a whole second, likewise.
func tick(t time.Time) string { return t.Format(time.RFC3339) }
