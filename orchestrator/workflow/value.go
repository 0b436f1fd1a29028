package workflow

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

// numberOf returns a JSON number as CEL computes with it: an int64 where it has
// no fraction and no exponent, a float64 where that keeps every digit.
func numberOf(text string) any {
	if i, err := strconv.ParseInt(text, 10, 64); err == nil {
		return i
	}
	f, err := strconv.ParseFloat(text, 64)
	// A float64 holds any 15 digits.
	if short := len(text) <= 16 && !strings.ContainsAny(text, "eE"); err == nil && (short || normal(text) == normal(strconv.FormatFloat(f, 'e', -1, 64))) {
		return f
	}
	return number(text)
}

// normal writes a number so that equal ones have the same text: its digits
// without zeros at either end, and the power of ten that they are to take.
func normal(text string) string {
	if !strings.ContainsAny(text, ".eE") && !strings.HasSuffix(text, "0") {
		return text
	}
	digits, sign := strings.CutPrefix(text, "-")
	power := "0"
	if i := strings.IndexAny(digits, "eE"); i >= 0 {
		digits, power = digits[:i], digits[i+1:]
	}
	exponent, err := strconv.Atoi(power)
	if err != nil {
		return text // nobody counts so far
	}
	whole, fraction, _ := strings.Cut(digits, ".")
	digits = strings.TrimRight(whole+fraction, "0")
	exponent += len(whole) - len(digits)
	if digits = strings.TrimLeft(digits, "0"); digits == "" {
		return "0"
	}
	if sign {
		digits = "-" + digits
	}
	if exponent != 0 {
		digits += "e" + strconv.Itoa(exponent)
	}
	return digits
}

// number is a JSON number with more digits than CEL's int and double hold. It
// can be passed on, compared with ==, and turned into text or a double; nothing
// else takes it, because the result would be another number than the author
// expects.
type number string

var numberType = types.NewOpaqueType("number")

// Type implements ref.Val.
func (number) Type() ref.Type { return numberType }

// Value implements ref.Val.
func (n number) Value() any { return string(n) }

// Equal implements ref.Val.
func (n number) Equal(other ref.Val) ref.Val {
	o, ok := other.(number)
	return types.Bool(ok && normal(string(n)) == normal(string(o)))
}

// ConvertToType implements ref.Val.
func (n number) ConvertToType(t ref.Type) ref.Val {
	if t == types.TypeType {
		return numberType
	}
	return types.String(n).ConvertToType(t)
}

// ConvertToNative implements ref.Val.
func (n number) ConvertToNative(t reflect.Type) (any, error) {
	return nil, fmt.Errorf("no such overload: a number of so many digits as %v", t)
}

// encode turns a value into JSON, as CEL's own mapping does, except that
// integers stay numbers whatever their size, and that whole doubles have no
// fraction: agents decode 2 into any type of number, but 2.0 not into all.
func encode(v ref.Val) (jsontext.Value, error) {
	var size int
	plain, err := plainValue(v, 0, &size)
	if err != nil {
		return nil, err
	}
	value, err := json.Marshal(plain, json.Deterministic(true), jsontext.AllowInvalidUTF8(true))
	if len(value) > MaxResult {
		return nil, errTooLarge
	}
	return value, err
}

var errTooLarge = fmt.Errorf("its result is larger than %d bytes", MaxResult)

// plainValue returns what the json package takes; size counts how much.
func plainValue(v ref.Val, level int, size *int) (any, error) {
	switch *size++; {
	case *size > MaxResult:
		return nil, errTooLarge
	case level > maxLevels:
		return nil, fmt.Errorf("its result has lists and objects more than %d deep inside one another", maxLevels)
	}
	switch v := v.(type) {
	case number:
		return jsontext.Value(v), nil
	case types.String:
		*size += len(v)
		return string(v), nil
	case types.Bytes:
		*size += len(v)
		return []byte(v), nil
	case types.Double:
		if f := float64(v); math.IsNaN(f) || math.IsInf(f, 0) {
			return nil, fmt.Errorf("the number %v has no form in JSON", f)
		}
		return float64(v) + 0, nil // -0 + 0 is 0
	case types.Int, types.Uint, types.Bool:
		return v.Value(), nil
	case types.Null:
		return nil, nil
	case types.Timestamp:
		return v.UTC(), nil
	case types.Duration:
		return strconv.FormatFloat(v.Seconds(), 'f', -1, 64) + "s", nil
	case traits.Mapper:
		object := make(map[string]any)
		for it := v.Iterator(); it.HasNext() == types.True; {
			key := it.Next()
			name, ok := key.ConvertToType(types.StringType).(types.String)
			if !ok {
				return nil, fmt.Errorf("%s cannot be the name of a member in JSON", describe(key))
			}
			if _, taken := object[string(name)]; taken {
				return nil, fmt.Errorf("two members of an object are named %s", quote(string(name)))
			}
			value, err := plainValue(v.Get(key), level+1, size)
			if err != nil {
				return nil, err
			}
			*size += len(name)
			object[string(name)] = value
		}
		return object, nil
	case traits.Lister:
		list := []any{}
		for it := v.Iterator(); it.HasNext() == types.True; {
			value, err := plainValue(it.Next(), level+1, size)
			if err != nil {
				return nil, err
			}
			list = append(list, value)
		}
		return list, nil
	}
	return nil, fmt.Errorf("%s has no form in JSON", describe(v))
}

// describe names what a value is, for the author of the file.
func describe(v ref.Val) string {
	switch v := v.(type) {
	case types.Null:
		return "null"
	case types.String:
		return "the text " + quote(string(v))
	case types.Int, types.Uint, types.Double, types.Bool:
		return fmt.Sprint(v.Value())
	case *types.Optional:
		return "an optional; end it with .orValue(...), which"
	case traits.Mapper:
		return "an object"
	case traits.Lister:
		return "a list"
	}
	return "a value of the type " + v.Type().TypeName()
}
