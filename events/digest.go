package events

import (
	"crypto/sha256"
	"encoding/base64"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// Digest is equal for submissions that say the same, and differs for others: 128
// bits of SHA-256 over the members as they were given. Of the input neither white
// space counts, nor the order of names, nor how texts and fractions are spelled;
// integers count digit by digit, however long. Where an input repeats a name, the order
// counts. Without labels, and of what is no rerun, it is what it was before there were any.
func (s *Submission) Digest() string {
	input := s.Input.Clone()
	if input.Canonicalize(jsontext.CanonicalizeRawInts(false)) != nil {
		_ = input.Canonicalize(jsontext.CanonicalizeRawInts(false), jsontext.AllowDuplicateNames(true), jsontext.ReorderRawObjects(false)) // what is no JSON counts as it is
	}
	b := make([]byte, 0, 128+len(input))
	for _, member := range [][]byte{
		[]byte(s.Workflow), strconv.AppendInt(nil, int64(s.Version), 10), []byte(s.ReplyTo), []byte(s.Priority), input,
	} {
		b = strconv.AppendInt(b, int64(len(member)), 10)
		b = append(append(b, ' '), member...)
	}
	if !s.Deadline.IsZero() {
		b = AppendTime(b, s.Deadline)
	}
	if len(s.Labels) > 0 {
		o := object{b: b}
		o.pairs("labels", s.Labels)
		b = o.b
	}
	if s.RerunOf != "" { // its name tells it from what a label says
		o := object{b: b}
		o.text("rerunOf", s.RerunOf)
		b = o.b
	}
	sum := sha256.Sum256(b)
	return base64.RawURLEncoding.EncodeToString(sum[:16])
}
