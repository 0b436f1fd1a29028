package events_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/waybill-dev/waybill/events"
)

// A digest may not change with a release: it stands in journals.
func TestDigestIsForEver(t *testing.T) {
	s := events.Submission{
		Workflow: "order", Version: 2, Input: []byte(`{"n":1}`), ReplyTo: "shop.status", Priority: events.High,
		Deadline: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC),
	}
	for want, s := range map[string]*events.Submission{"6e3GCPNqqYqdFr9UAAJnMw": &s, "VFB9Zw-MMIPbL4djYJwfhw": {}} {
		if got := s.Digest(); got != want {
			t.Errorf("the digest of %+v is %s, and was %s", s, got, want)
		}
	}
}

func TestDigest(t *testing.T) {
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	all := events.Submission{Workflow: "w", Version: 1, Input: []byte(`{"a":1,"b":[2,{"c":"x"}]}`), ReplyTo: "r", Priority: events.High, Deadline: at}
	for what, c := range map[string]struct {
		change func(*events.Submission)
		same   bool
	}{
		"white space and order":      {func(s *events.Submission) { s.Input = []byte(" { \"b\" : [2, {\"c\":\"x\"}],\n\"a\":1}") }, true},
		"spelling of a text":         {func(s *events.Submission) { s.Input = []byte(`{"a":1,"b":[2,{"c":"\u0078"}]}`) }, true},
		"spelling of a number":       {func(s *events.Submission) { s.Input = []byte(`{"a":1.0,"b":[0.2e1,{"c":"x"}]}`) }, true},
		"a time in another zone":     {func(s *events.Submission) { s.Deadline = at.In(time.FixedZone("", 3600)) }, true},
		"less than a millisecond":    {func(s *events.Submission) { s.Deadline = at.Add(time.Microsecond) }, true},
		"another time":               {func(s *events.Submission) { s.Deadline = at.Add(time.Millisecond) }, false},
		"no time":                    {func(s *events.Submission) { s.Deadline = time.Time{} }, false},
		"another workflow":           {func(s *events.Submission) { s.Workflow = "x" }, false},
		"another version":            {func(s *events.Submission) { s.Version = 0 }, false},
		"another topic":              {func(s *events.Submission) { s.ReplyTo = "" }, false},
		"another priority":           {func(s *events.Submission) { s.Priority = "" }, false},
		"another value":              {func(s *events.Submission) { s.Input = []byte(`{"a":2,"b":[2,{"c":"x"}]}`) }, false},
		"another order of elements":  {func(s *events.Submission) { s.Input = []byte(`{"a":1,"b":[{"c":"x"},2]}`) }, false},
		"no labels":                  {func(s *events.Submission) { s.Labels = map[string]string{} }, true},
		"by somebody":                {func(s *events.Submission) { s.By = "ana" }, true},
		"a label":                    {func(s *events.Submission) { s.Labels = map[string]string{"a": "b"} }, false},
		"a rerun":                    {func(s *events.Submission) { s.RerunOf = "o-1" }, false},
		"no input":                   {func(s *events.Submission) { s.Input = nil }, false},
		"a boundary between members": {func(s *events.Submission) { s.Workflow, s.Version, s.ReplyTo, s.Priority = "w1", 0, "", "rhigh" }, false},
	} {
		s := all
		c.change(&s)
		if got := s.Digest() == all.Digest(); got != c.same {
			t.Errorf("%s: the same: %t", what, got)
		}
	}
	for _, pair := range [][2]string{
		{`9007199254740993`, `9007199254740992`},
		{`{"a":1,"a":2}`, `{"a":2,"a":1}`},
		{`{"a":1,"a":[2],"b":3}`, `{"b":3,"a":1,"a":[2]}`},
		{`"1"`, `1`},
		{`null`, ``},
	} {
		a, b := events.Submission{Input: []byte(pair[0])}, events.Submission{Input: []byte(pair[1])}
		if a.Digest() == b.Digest() {
			t.Errorf("%s and %s have one digest", pair[0], pair[1])
		}
	}
	for _, pair := range [][2]map[string]string{
		{{"a": "b"}, {"a": "c"}}, {{"a": "b"}, {"b": "b"}}, {{"a": "b", "c": "d"}, {"a": "d", "c": "b"}}, {{"a": ""}, nil},
	} {
		a, b := events.Submission{Labels: pair[0]}, events.Submission{Labels: pair[1]}
		if a.Digest() == b.Digest() {
			t.Errorf("%v and %v have one digest", pair[0], pair[1])
		}
	}
}

// A rerun of one order is not one of another, nor what has a label of that name.
func TestDigestOfReruns(t *testing.T) {
	digests := make(map[string]string)
	for what, s := range map[string]events.Submission{
		"of o-1":        {RerunOf: "o-1"},
		"of o-2":        {RerunOf: "o-2"},
		"with a label":  {RerunOf: "o-1", Labels: map[string]string{"a": "b"}},
		"by a label":    {Labels: map[string]string{"rerunOf": "o-1"}},
		"by two labels": {Labels: map[string]string{"a": "b", "rerunOf": "o-1"}},
	} {
		if other, taken := digests[s.Digest()]; taken {
			t.Errorf("%s and %s have one digest", what, other)
		}
		digests[s.Digest()] = what
	}
}

// Whoever submits knows the digest that the order will have.
func TestDigestOfWhatIsSent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anyMessage[events.Submission]().Draw(t, "submission")
		value, err := s.Encode()
		if err != nil {
			t.Fatal(err)
		}
		sent, err := events.Decode[events.Submission](value)
		if err != nil || sent.Digest() != s.Digest() {
			t.Fatalf("%s: %v", value, err)
		}
	})
	for _, input := range []string{`{"a":"\u0078","a":1.50}`, ` [ 1.0 , { "b" : 1, "b" : "\/" } ] `} {
		s := events.Submission{Input: []byte(input)}
		value, err := s.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if sent, err := events.Decode[events.Submission](value); err != nil || sent.Digest() != s.Digest() {
			t.Errorf("%s: %v", value, err)
		}
	}
}
