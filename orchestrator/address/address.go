// Package address reads the addresses of servers that people and instances name.
package address

import (
	"cmp"
	"errors"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// Parts are what an address may have besides its scheme, host, port and path.
type Parts uint8

// User is a name, with or without a password. Query is what stands behind a ?.
const (
	User Parts = 1 << iota
	Query
)

// longest is how long an advertised address may be, in bytes: the group keeps those of all members in one record.
const longest = 255

// Parse reads an absolute address of http or https: with a host, a port from 1 to 65535 if it has any, no fragment, nothing
// that has to be written otherwise in a host, and no blank anywhere. The error says what it has or lacks, behind "it", and
// repeats nothing of the text, which may have a password.
func Parse(text string, may Parts) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r == 0x7f }):
		return nil, errors.New("it has a blank or a control character")
	case err != nil:
		return nil, errors.New("its host or port cannot be read, or a % is no escape: IPv6 stands in []") // what url says repeats it
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("it does not begin with http:// or https://")
	case u.Hostname() == "":
		return nil, errors.New("it has no host")
	case !isHost(u.Hostname()):
		return nil, errors.New("its host is no name and no IP address")
	case !isPort(u):
		return nil, errors.New("its port is none from 1 to 65535")
	case u.User != nil && may&User == 0:
		return nil, errors.New("it has a user")
	case (u.RawQuery != "" || u.ForceQuery) && may&Query == 0:
		return nil, errors.New("it has a query")
	case strings.Contains(text, "#"):
		return nil, errors.New("it has a #")
	}
	return u, nil
}

// isHost says whether a host, which url has read, is a name or an IP address. A name may have letters of all alphabets, which go
// through IDNA, and a dot at its end.
func isHost(host string) bool {
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	return !strings.HasPrefix(host, ".") && !strings.Contains(host, "..") && !strings.ContainsFunc(host, func(r rune) bool {
		return r < 0x80 && r != '.' && r != '-' && r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	})
}

// isPort says whether the port of an address, if it has any, is one that servers have.
func isPort(u *url.URL) bool {
	if u.Port() == "" {
		return !strings.HasSuffix(u.Host, ":")
	}
	n, err := strconv.ParseUint(u.Port(), 10, 16)
	return err == nil && n > 0
}

// Advertised reads an address that an instance may advertise: one without a user, a query, a / at its end or anything that
// has to be escaped, of at most 255 bytes. The error is as that of [Parse].
func Advertised(text string) (*url.URL, error) {
	u, err := Parse(text, 0)
	switch {
	case err != nil:
		return nil, err
	case len(text) > longest:
		return nil, errors.New("it is longer than 255 bytes")
	case strings.HasSuffix(text, "/"):
		return nil, errors.New("it has a / at its end")
	case u.RawPath != "" || strings.Contains(text, "%") || u.String() != text:
		return nil, errors.New("it has something that has to be escaped, or http in upper case")
	}
	return u, nil
}

// Same says whether two addresses lead to the same place however they are written: with the port that goes without saying or without,
// whatever the case of the host, however an IP address is shortened, with a dot behind the host and a / at the end or without. What
// [Parse] does not read alone is the same as its like.
func Same(a, b string) bool { return canonical(a) == canonical(b) }

func canonical(text string) string {
	u, err := Parse(text, 0)
	if err != nil {
		return text
	}
	host := strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
	if ip, err := netip.ParseAddr(host); err == nil {
		host = ip.String()
	}
	port, _ := strconv.ParseUint(cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme]), 10, 16)
	u.Host = net.JoinHostPort(host, strconv.FormatUint(port, 10))
	return strings.TrimRight(u.String(), "/")
}
