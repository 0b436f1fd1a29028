package httpagent

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/waybill-dev/waybill/agents"
	"github.com/waybill-dev/waybill/events"
)

const (
	// maxBody is the size of the largest response that can be a step's output:
	// that of a message, without what a reply has around it.
	maxBody = events.MaxValue - 8<<10
	// maxRefusal is how much is read of a response that says what went wrong.
	maxRefusal = 16 << 10
	// maxExtract is how many characters of it a reply shows.
	maxExtract = 300
)

// readOutput makes the step's output of a response.
func readOutput(o *operation, v *values, resp *http.Response, content []byte) (jsontext.Value, error) {
	// The call was made, and whatever it did was done. A resubmission with a new
	// key would do it again.
	const again = "; what the call did is done, so resubmit the step with the same key once this is corrected"
	if len(content) > maxBody {
		return nil, agents.Permanent(CodeResponseTooLarge,
			fmt.Errorf("the response (%d) has more than %d bytes, which no output may have; set output: none if the workflow does not need it%s", resp.StatusCode, maxBody, again))
	}
	v.status, v.headers = resp.StatusCode, resp.Header
	switch {
	case len(content) == 0:
	case isJSON(resp.Header):
		v.body = jsontext.Value(content)
		if !v.body.IsValid() {
			return nil, agents.Transient(CodeBadResponse,
				fmt.Errorf("the response (%d) says that it is JSON, and is not", resp.StatusCode))
		}
	case !utf8.Valid(content):
		return nil, agents.Permanent(CodeBadResponse,
			fmt.Errorf("the response (%d) is neither JSON nor text; set output: none if the workflow does not need it%s", resp.StatusCode, again))
	default:
		v.body = text(string(content))
	}
	output, ok, err := o.output.append(nil, v, "the output")
	switch {
	case err != nil:
		return nil, agents.Permanent(CodeBadResponse, fmt.Errorf("the response (%d) does not have what the file expects: %w%s", resp.StatusCode, err, again))
	case !ok:
		return nil, nil
	}
	return output, nil
}

func isJSON(headers http.Header) bool {
	media, _, err := mime.ParseMediaType(headers.Get("Content-Type"))
	return err == nil && (media == "application/json" || strings.HasSuffix(media, "+json"))
}

// refused is the error of an answer that is no success.
func (c *caller) refused(resp *http.Response, verdict verdict) error {
	content, err := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
	if err != nil {
		content = nil // the status says enough
	}
	message := fmt.Sprintf("HTTP %d", resp.StatusCode)
	if name := http.StatusText(resp.StatusCode); name != "" {
		message += " " + name
	}
	said := oneLine(c.secrets.Replace(explanation(resp.Header, content)))
	if resp.StatusCode/100 == 3 {
		said = unfollowed(resp)
	}
	if said != "" {
		message += ": " + shorten(said, maxExtract)
	}
	fault := &agents.Error{Code: "http-" + strconv.Itoa(resp.StatusCode), Permanent: verdict == permanent, Err: errors.New(message)}
	if pause, ok := retryAfter(resp.Header, time.Now()); ok && !fault.Permanent {
		return agents.RetryAfter(fault, pause)
	}
	return fault
}

// explanation finds what a response says to people about what went wrong: the
// fields of a problem document (RFC 9457) or similar, or plain text.
func explanation(headers http.Header, content []byte) string {
	media, _, err := mime.ParseMediaType(headers.Get("Content-Type"))
	if err != nil || !utf8.Valid(content) {
		return ""
	}
	switch {
	case isJSON(headers):
		var found []string
		for _, name := range []string{"title", "detail", "message", "error", "error.message"} {
			if said := textOf(descend(content, strings.Split(name, "."))); said != "" {
				found = append(found, said)
			}
		}
		if len(found) > 0 {
			return strings.Join(found, ": ")
		}
		return string(content)
	case media == "text/plain":
		return string(content)
	}
	return "" // markup is for browsers
}

func textOf(value jsontext.Value) string {
	var s string
	if value.Kind() != '"' || json.Unmarshal(value, &s) != nil {
		return ""
	}
	return s
}

// oneLine makes text fit for a line of a log or terminal.
func oneLine(s string) string {
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }), " ")
}

// retryAfter reads for how long a service wants to be left alone.
func retryAfter(headers http.Header, now time.Time) (time.Duration, bool) {
	said := strings.TrimSpace(headers.Get("Retry-After"))
	if said == "" {
		return 0, false
	}
	if seconds, err := strconv.ParseUint(said, 10, 64); err == nil {
		return time.Duration(min(seconds, uint64(longest/time.Second))) * time.Second, true
	} else if errors.Is(err, strconv.ErrRange) {
		return longest, true
	}
	at, err := http.ParseTime(said)
	if err != nil {
		return 0, false
	}
	return min(max(0, at.Sub(now)), longest), true
}
