package httpagent

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// target is where the calls of an operation go. Scheme, host and port are fixed;
// placeholders fill segments of the path and values of the query.
type target struct {
	origin string // scheme://host:port, the port only if the file has it
	parts  []part
}

// part is a piece of a path or query.
type part struct {
	text  string // already encoded
	ref   *reference
	query bool
}

// newTarget makes a target of a URL. One that starts with / or ? lies below
// base. A variable of the environment is taken as it is where it starts the URL,
// or lies in the host or directly behind it, and encoded like any other value
// elsewhere.
func newTarget(base *target, t template) (*target, error) {
	static := t
	if i := slices.IndexFunc(t, func(p piece) bool { return p.ref != nil }); i >= 0 {
		static = t[:i]
	}
	var leading strings.Builder
	for _, p := range static {
		leading.WriteString(p.text)
	}
	lead := leading.String()
	made := &target{}
	skip := 0 // how many bytes of lead are the origin
	switch {
	case strings.HasPrefix(lead, "//"):
		return nil, errors.New("names a host without a scheme; write http:// or https:// before it")
	case strings.HasPrefix(lead, "/"), strings.HasPrefix(lead, "?"):
		if base == nil {
			return nil, errors.New("names no host, and the file has no base; write the whole URL, or add a base")
		}
		made.origin, made.parts = base.origin, slices.Clone(base.parts)
	default:
		origin, err := originOf(lead, len(static) == len(t))
		if err != nil {
			return nil, err
		}
		made.origin, skip = strings.ToLower(origin), len(origin)
	}
	if err := made.append(t, skip); err != nil {
		return nil, err
	}
	// Whatever the placeholders stand for, what is around them must be a URL.
	sample, err := made.render(func(part) (string, error) { return "x", nil })
	if err != nil {
		return nil, err
	}
	if _, err := made.parse(sample); err != nil {
		return nil, err
	}
	return made, nil
}

// originOf returns the scheme, host and port that a URL starts with. All says
// that the text is the whole URL, not only what lies before a placeholder.
func originOf(lead string, all bool) (string, error) {
	scheme, rest, ok := strings.Cut(lead, "://")
	if !ok || !strings.EqualFold(scheme, "http") && !strings.EqualFold(scheme, "https") {
		return "", errors.New("is neither a URL nor a path: start it with http:// or https://, or with / to put it below base; a placeholder cannot choose the host")
	}
	end := strings.IndexAny(rest, "/?#\\")
	if end < 0 {
		if !all {
			return "", errors.New("has a placeholder in its host, but a request cannot choose the host; write the host out, and a / behind it")
		}
		end = len(rest)
	}
	authority := rest[:end]
	if strings.Contains(authority, "@") {
		return "", errors.New(`holds a user or password; write them as a header, Authorization: "Basic ${CREDENTIALS}"`)
	}
	u, err := url.Parse(scheme + "://" + authority)
	if err != nil || u.Hostname() == "" || strings.HasSuffix(u.Host, ":") {
		return "", errors.New("has no valid host; write it like https://payments.internal:8443/charges")
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return "", fmt.Errorf("has port %s; ports are 1 to 65535", shorten(port, 20))
		}
	}
	return lead[:len(scheme)+len("://")+end], nil
}

// append adds the pieces of a URL behind its origin, which has skip bytes.
func (t *target) append(pieces template, skip int) error {
	query := false
	for i, p := range pieces {
		rest := p.text[min(skip, len(p.text)):]
		asIs := p.env == "" || i == 0 || skip > 0 || len(t.parts) == 0
		skip -= len(p.text) - len(rest)
		switch {
		case p.ref != nil:
			if p.ref.optional && !query {
				return fmt.Errorf("has the placeholder {%s?} in its path, where nothing can be left out; remove the ?", p.ref.name)
			}
			t.parts = append(t.parts, part{ref: p.ref, query: query})
		case !asIs:
			t.parts = append(t.parts, part{text: encode(rest, query), query: query})
		default:
			if strings.ContainsFunc(rest, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '#' || r == '\\' }) {
				return errors.New("has a space, #, \\ or a character beyond ASCII; write it percent-encoded, such as %20")
			}
			if rest == "" {
				continue
			}
			path, behind, asks := strings.Cut(rest, "?")
			if query || !asks {
				t.parts = append(t.parts, part{text: rest, query: query})
				continue
			}
			query = true
			t.parts = append(t.parts, part{text: path}, part{text: "?" + behind, query: true})
		}
	}
	return nil
}

// asBase checks that other URLs can lie below the target, and readies it.
func (t *target) asBase() error {
	for _, p := range t.parts {
		if p.ref != nil || p.query {
			return errors.New("has a placeholder or a query; write only scheme, host and the start of the path")
		}
	}
	if last := len(t.parts) - 1; last >= 0 {
		t.parts[last].text = strings.TrimRight(t.parts[last].text, "/")
	}
	return nil
}

// url returns the URL of one call.
func (t *target) url(v *values) (*url.URL, error) {
	raw, err := t.render(func(p part) (string, error) {
		text, _, err := v.text(p.ref, "the URL")
		if err == nil && text == "" && !p.query {
			// The collection's URL instead of the entry's: another operation.
			err = unfit{p.ref.name, "the path of the URL", "it is empty"}
		}
		return text, err
	})
	if err != nil {
		return nil, err
	}
	return t.parse(raw)
}

func (t *target) render(value func(part) (string, error)) (string, error) {
	var b strings.Builder
	b.WriteString(t.origin)
	for _, p := range t.parts {
		if p.ref == nil {
			b.WriteString(p.text)
			continue
		}
		text, err := value(p)
		if err != nil {
			return "", err
		}
		b.WriteString(encode(text, p.query))
	}
	return b.String(), nil
}

func (t *target) parse(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil, errors.New("is no valid URL; characters with a meaning are written percent-encoded, such as %25 for %")
	}
	if u.Scheme+"://"+u.Host != t.origin || u.User != nil {
		return nil, errors.New("would lead to another host") // cannot be: the origin is followed by / or ?
	}
	if path, _, _ := strings.Cut(raw[len(t.origin):], "?"); climbs(path) {
		return nil, errors.New("has a . or .. as a segment of its path, which servers and proxies read as another path")
	}
	return u, nil
}

// encode makes a value one segment of a path, or one value of a query.
func encode(text string, query bool) string {
	if query {
		return url.QueryEscape(text)
	}
	return url.PathEscape(text)
}

// climbs reports whether a path has a segment that stands for another one, also
// to a reader that takes %2F or \ for a separator, or what follows a ; for
// parameters. Encoding the dots would not do: they are the same segment encoded.
func climbs(path string) bool {
	plain, err := url.PathUnescape(path)
	if err != nil {
		return true
	}
	for segment := range strings.FieldsFuncSeq(plain, func(r rune) bool { return r == '/' || r == '\\' }) {
		segment, _, _ = strings.Cut(segment, ";")
		if segment == "." || segment == ".." {
			return true
		}
	}
	return false
}
