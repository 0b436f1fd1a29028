package events

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"
)

// ErrUnreadable marks a value that is not a JSON object. Whoever reads it puts
// it aside byte for byte; there is nothing in it to answer to.
var ErrUnreadable = errors.New("not a JSON object")

// A payload may repeat a name: it is passed on as it came. Of the fields that
// Waybill itself reads, the last one counts, as in most of the world's parsers.
var coding = json.JoinOptions(jsontext.AllowDuplicateNames(true))

// Decode reads a message. The error wraps [ErrUnreadable] when value is not a
// JSON object; otherwise it names the field that has the wrong form, and what
// could be read before that field stands in the result.
func Decode[M Event | Schedule | Limit | Submission | Request | Reply | Status | Alert | Command | Signal | Wish | Report | Want | Pass | Bid | Grant](value []byte) (M, error) {
	var m M
	err := json.Unmarshal(value, &m, coding)
	if err == nil {
		if jsontext.Value(value).Kind() != '{' {
			return m, fmt.Errorf("%w: it is a %s", ErrUnreadable, jsontext.Value(value).Kind())
		}
		return m, nil
	}
	var semantic *json.SemanticError
	if errors.As(err, &semantic) && jsontext.Value(value).Kind() == '{' && jsontext.Value(value).IsValid(coding) {
		if semantic.JSONPointer != "" {
			return m, fmt.Errorf("field %s has the wrong form: %w", semantic.JSONPointer, err)
		}
		return m, err
	}
	return m, fmt.Errorf("%w: %v", ErrUnreadable, err)
}

// Depth is how many levels of arrays and objects JSON has, in one pass that allocates nothing. Of what is no JSON it is any number.
func Depth(value []byte) (deepest int) {
	now, text := 0, false
	for i := 0; i < len(value); i++ {
		switch c := value[i]; {
		case text && c == '\\':
			i++
		case c == '"':
			text = !text
		case text:
		case c == '[', c == '{':
			now++
			deepest = max(deepest, now)
		case c == ']', c == '}':
			now--
		}
	}
	return deepest
}

// NewOrderID returns an id for an order whose caller gives it none: they sort by when they
// were made.
func NewOrderID() (string, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return "", fmt.Errorf("make an order id: %w", err)
	}
	return id.String(), nil
}

// CheckOrderID says what is wrong with id as the id of an order, nil if nothing.
func CheckOrderID(id string) error {
	switch {
	case id == "":
		return errors.New("the order id is empty; set the record's key to it")
	case len(id) > MaxOrderID:
		return fmt.Errorf("the order id has %d bytes; at most %d are allowed", len(id), MaxOrderID)
	case !utf8.ValidString(id):
		return errors.New("the order id is not UTF-8")
	}
	return nil
}
